"""Forks: a thread that begins as a copy of another one, up to some item of it.

Owns the one statement that copies. It takes no lock on the old thread and writes nothing to it, so its runs
go on meanwhile; what it copies has ended in the fork, so nothing there is due, waits, or runs again.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import ForkRefusedError, NotFoundError
from adjourn.schemas.internal.forks import COPY_OF_FAILED, CUT
from adjourn.schemas.records import ids
from adjourn.schemas.records.items import stored
from adjourn.schemas.strict_json import digest
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ENDED

MAX_SEQ: Final = 2**31 - 1
"""That the column can hold."""
_DIGITS: Final = 32
"""Of a digest, in the ids of the runs of a fork: 128 bits."""

# The items are copied as they stand, with their places; call ids too, which are unique within a thread. A run
# of which the end is not copied (`cut`) gets what a run gets that is ended from outside: its open waits are
# resolved as cancelled, and an end stands last. Actions, claims and totals are left behind, so what was spent
# is not counted again.
# All is read from the one snapshot of the statement: an answer or a turn that commits meanwhile is in the
# copy as a whole or not at all. Two forks to one id meet at the insert of the thread, where the second waits
# for the first and then does nothing.
# A crash before the commit: there is no fork. After: it is there whole, and whoever asks again is given it.
FORK = sa.text(f"""
with at as materialized (
    select r.ordinal, coalesce(cast(:seq as integer), r.seq) as seq,
        cast(:seq as integer) is null or :seq <= r.seq as found
    from adjourn.runs r
    where r.thread_id = :thread_id and case when cast(:run_id as text) is null then r.{ENDED} else r.id = :run_id end
    order by r.ordinal desc
    limit 1
), copied as materialized (
    select r.*, row_number() over (order by r.ordinal) as place,
        case when r.ordinal = at.ordinal then at.seq else r.seq end as upto
    from adjourn.runs r, at
    where r.thread_id = :thread_id and r.ordinal <= at.ordinal and at.found
        and (cast(:run_id as text) is not null or r.{ENDED})
), thread as (
    insert into adjourn.threads (id, created_at, last_ordinal)
    select :new_thread_id, adjourn.adjourn_now(), count(*) from copied
    having count(*) > 0
    on conflict do nothing
    returning id, created_at
), fork as materialized (
    select copied.*, :fork_id || '.' || copied.place as copy_id, thread.id as copy_thread_id, thread.created_at as now,
        last.kind <> 'end' as cut, case when last.kind = 'end' then adjourn.json_or_null(last.body) end as ending
    from thread, copied join adjourn.items last on last.run_id = copied.id and last.seq = copied.upto
), open as materialized (
    select fork.copy_id, fork.upto, fork.now, adjourn.json_or_null(i.body) ->> 'call_id' as call_id,
        adjourn.json_or_null(i.body) ->> 'action_id' as action_id,
        row_number() over (partition by fork.copy_id order by i.seq) as place
    from fork join adjourn.items i on i.run_id = fork.id and i.seq <= fork.upto and i.kind = 'suspension'
    where fork.cut and not exists (
        select from adjourn.items e
        where e.run_id = fork.id and e.seq <= fork.upto and e.kind = 'resolution'
            and adjourn.json_or_null(e.body) ->> 'action_id' = adjourn.json_or_null(i.body) ->> 'action_id'
    )
), run as (
    insert into adjourn.runs (
        id, thread_id, ordinal, agent, status, due_at, wakeup_at, seq, limits, output, error, state_version,
        created_at, updated_at
    )
    select fork.copy_id, fork.copy_thread_id, fork.place, fork.agent,
        case when fork.cut then :cut_status else coalesce(fork.ending ->> 'status', fork.status) end,
        fork.now, fork.now,
        fork.upto + (select count(*) from open where open.copy_id = fork.copy_id) + cast(fork.cut as integer),
        fork.limits, case when fork.ending ->> 'status' = 'completed' then fork.output end,
        case
            when fork.cut then :cut_error
            when fork.ending ->> 'status' = 'failed' then json_build_object(
                'type', cast(:failed_type as text), 'message', cast(:failed_message as text),
                'data', fork.ending -> 'error'
            )::text
            else (fork.ending -> 'error')::text
        end,
        fork.state_version, fork.created_at, case when fork.cut then fork.now else fork.updated_at end
    from fork
), recorded as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select fork.copy_id, i.seq, i.at, i.kind, i.body
    from fork join adjourn.items i on i.run_id = fork.id and i.seq <= fork.upto
    union all
    select open.copy_id, open.upto + open.place, open.now, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', open.call_id, 'action_id', open.action_id, 'status', 'cancelled'
    )::text
    from open
    union all
    select fork.copy_id, fork.upto + 1 + (select count(*) from open where open.copy_id = fork.copy_id), fork.now,
        'end', :cut_item
    from fork
    where fork.cut
)
select (select found from at) as found, exists (select from thread) as made,
    exists (select from adjourn.runs where thread_id = :thread_id) as known
""")

# Reads only: whose the id of a fork is that was there before it.
FIRST_RUN = sa.text("select id from adjourn.runs where thread_id = :new_thread_id order by ordinal limit 1")


def fork(db: Database, *, thread_id: str, run_id: str | None, seq: int | None, new_thread_id: str | None) -> str:
    if seq is not None and run_id is None:
        raise ForkRefusedError(thread_id, "an item was named without its run", "give run_id= as well")
    if seq is not None and not 0 < seq <= MAX_SEQ:
        raise NotFoundError(f"item of run {run_id}:", str(seq))
    into = ids.new_thread_id() if new_thread_id is None else new_thread_id
    fork_id = f"run_{digest([thread_id, run_id, seq, into])[:_DIGITS]}"
    row = db.one(FORK, _params(thread_id, run_id, seq, into, fork_id), repeatable=True)
    if row.made:
        return into
    if not row.known:
        raise NotFoundError("thread", thread_id)
    if row.found is None and run_id is None:
        raise ForkRefusedError(thread_id, "no run of it has ended", "wait for one, or name a run_id=")
    if row.found is None:
        raise NotFoundError(f"run of thread {thread_id}:", str(run_id))
    if not row.found:
        raise NotFoundError(f"item of run {run_id}:", str(seq))
    first = db.one(FIRST_RUN, {"new_thread_id": into}, repeatable=True)
    if first is None or first.id != f"{fork_id}.1":
        raise ForkRefusedError(thread_id, f"{into} is another thread", "give an id that no thread has")
    return into


def _params(thread_id: str, run_id: str | None, seq: int | None, into: str, fork_id: str) -> dict[str, Any]:
    assert CUT.error is not None
    return {
        "thread_id": thread_id,
        "run_id": run_id,
        "seq": seq,
        "new_thread_id": into,
        "fork_id": fork_id,
        "cut_status": CUT.status,
        "cut_error": CUT.error.model_dump_json(),
        "cut_item": stored(CUT),
        "failed_type": COPY_OF_FAILED.type,
        "failed_message": COPY_OF_FAILED.message,
    }
