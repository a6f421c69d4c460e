"""Claims: who may write a run, until when, and all that the next step of it needs.

Owns the token and the lease of `runs`. What is written under a claim is in `writes`.

A claim's `revision`, items and actions are read in one statement, from its one snapshot, and never
from the row that the statement has just locked: that row may be newer than the snapshot, and a
counter newer than the actions read beside it would let a run park on an answer it never saw.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.internal.state import Claim
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.damage import damage_of
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import (
    ACTIONS_JSON,
    BODIES,
    ENDED,
    GIVEN_BACK,
    RUN_COLUMNS,
    RUNNING_FOR,
    actions_of,
    quoted,
    refuse,
    run_of,
    stored_items,
    stored_items_by_run,
)

_LOADED = f"""
    {RUN_COLUMNS}, r.ordinal, r.revision, r.seq, own.items, before.items as earlier,
    cast(own.bytes + before.bytes as bigint) as history_bytes,
    (
        select {ACTIONS_JSON} from adjourn.actions a where a.run_id = r.id
    ) as actions,
    {RUNNING_FOR} as running_for,
    coalesce(r.retry_at > adjourn.adjourn_now(), false) as paused
"""
_BYTES = "sum(octet_length(i.body))"
# The id of a run is one of ours: there is nothing in it that JSON would escape.
_HISTORY = f"""
    cross join lateral (
        select coalesce('[' || {BODIES} || ']', '[]') as items, coalesce({_BYTES}, 0) as bytes
        from adjourn.items i where i.run_id = r.id
    ) as own
    cross join lateral (
        select
            coalesce('{{' || string_agg('"' || h.id || '":[' || h.items || ']', ',' order by h.ordinal) || '}}', '{{}}')
                as items,
            coalesce(sum(h.bytes), 0) as bytes
        from (
            select e.id, e.ordinal, {BODIES} as items, {_BYTES} as bytes
            from adjourn.runs e join adjourn.items i on i.run_id = e.id
            where e.thread_id = r.thread_id and e.ordinal < r.ordinal and e.{ENDED}
            group by e.id
        ) as h
    ) as before
"""

# The only statement that commits without waiting for the disk: a claim that a crash of Postgres
# forgets is a run that is due again, and the first write under the forgotten token changes nothing.
# A crash of the worker before the commit: nobody holds the run, its wake-up or the sweep finds it.
# After: the lease runs out, the sweep makes it due again.
# Sent again with the same token it returns what that token already holds.
# A run that this build, or a later one, could not drive is left to builds that are newer still, for as long as one of
# them is live. `place` is the build's, null in a process that has not registered as one, which takes every run.
# A run that a newer version has written, or a run before it on its thread, is left to workers of that version: this
# one could not read it.
CLAIM = sa.text(f"""
with relaxed as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
), held as (
    update adjourn.runs as r
    set status = 'running', token = :token, state_version = :state_version, updated_at = adjourn.adjourn_now(),
        lease_until = adjourn.adjourn_now() + make_interval(secs => :lease_seconds),
        claimed_at = case when r.token = :token then r.claimed_at else adjourn.adjourn_now() end
    from relaxed
    where r.id = :run_id and r.state_version <= :state_version and (
        r.token = :token
        or (r.status = 'queued' and r.due_at <= adjourn.adjourn_now() and (r.due = 'suspect') = :suspect)
    ) and (
        r.newer_than is null or cast(:place as bigint) is null or r.newer_than < :place
        or not exists (select from adjourn.builds b where b.place > :place and b.live_until > adjourn.adjourn_now())
    ) and not exists (
        select from adjourn.runs e
        where e.thread_id = r.thread_id and e.ordinal < r.ordinal and e.state_version > :state_version
    )
    returning r.id
)
select {_LOADED}
from held join adjourn.runs r on r.id = held.id {_HISTORY}
""")

# Reads only. A crash before or after changes nothing.
RELOAD = sa.text(f"select {_LOADED} from adjourn.runs r {_HISTORY} where r.id = :run_id and r.token = :token")

# A crash before the commit: the leases end when they would have. After: they last longer by one term.
RENEW = sa.text("""
update adjourn.runs as r
set lease_until = adjourn.adjourn_now() + make_interval(secs => :lease_seconds)
from unnest(cast(:run_ids as text[]), cast(:tokens as text[])) as mine(run_id, token)
where r.id = mine.run_id and r.token = mine.token
returning r.id
""")

PUT_BACK_DUE: Final = "case r.due when 'suspect' then 'suspect' else 'reentry' end"
"""What a run that is given back is due for: one that is tried in a process of its own stays on that queue."""

# A crash before the commit: the leases run out and the sweep counts a death. After: the runs are
# due, and found by the sweep if their wake-ups are never published.
PUT_BACK = sa.text(f"""
update adjourn.runs as r
set status = 'queued', due = {PUT_BACK_DUE},
    due_at = adjourn.adjourn_now(), wakeup_at = adjourn.adjourn_now(), wakeups = 0,
    {GIVEN_BACK}, updated_at = adjourn.adjourn_now()
from unnest(cast(:run_ids as text[]), cast(:tokens as text[])) as mine(run_id, token)
where r.id = mine.run_id and r.token = mine.token
returning r.id, r.due
""")


def claim(db: Database, run_id: str, *, suspect: bool, token: str, place: int | None = None) -> Claim | None:
    row = db.one(
        CLAIM,
        {
            "run_id": run_id,
            "token": token,
            "suspect": suspect,
            "lease_seconds": db.tuning.lease_seconds,
            "state_version": STATE_VERSION,
            "place": place,
        },
        repeatable=True,
    )
    return None if row is None else _loaded(db, row, token)


def reload(db: Database, claim: Claim) -> Claim:
    row = db.one(RELOAD, {"run_id": claim.run.id, "token": claim.token}, repeatable=True)
    if row is None:
        raise StaleClaimError(claim.run.id)
    return _loaded(db, row, claim.token)


def _loaded(db: Database, row: Any, token: str) -> Claim:
    try:
        return _claim_of(row, token)
    except ValueError:
        again = db.one(quoted(RELOAD), {"run_id": row.id, "token": token}, repeatable=True)
    if again is None:
        raise StaleClaimError(row.id)
    return _claim_of(again, token)


def renew(db: Database, held: Sequence[tuple[str, str]]) -> set[str]:
    rows = db.execute(RENEW, {**_columns(held), "lease_seconds": db.tuning.lease_seconds}, repeatable=True)
    return {row.id for row in rows}


def put_back(db: Database, held: Sequence[tuple[str, str]]) -> list[WakeUp]:
    rows = db.execute(PUT_BACK, _columns(held), repeatable=True)
    return [WakeUp(run_id=row.id, due=row.due) for row in rows]


def _columns(held: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {"run_ids": [run_id for run_id, _ in held], "tokens": [token for _, token in held]}


def _claim_of(row: Any, token: str) -> Claim:
    run = run_of(row, status="running")
    items = stored_items(row.id, row.items)
    actions = actions_of(row.actions, refuse)
    if (damage := damage_of(run, items, row.seq, actions)) is not None:
        raise damage
    return Claim(
        run=run.model_copy(update={"seconds": run.seconds + row.running_for}),
        ordinal=row.ordinal,
        token=token,
        revision=row.revision,
        earlier=stored_items_by_run(row.earlier),
        items=items,
        actions=actions,
        history_bytes=row.history_bytes,
        paused=row.paused,
    )
