"""The fenced append: every durable step of a claimed run, one statement each.

Owns the writes made under a claim's token, and the one way in which a run ends (`ENDING`), which
is also how a run is ended from outside (`endings`). History is only ever appended to.

Whoever writes a run locks its row first and takes its next `seq` from it; two writers of one run
are therefore in line, and their items without gaps.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import StaleClaimError, StoreUnavailableError
from adjourn.schemas.internal.state import End, Park, Requeue, Write, Written
from adjourn.schemas.records.items import ItemBody, stored
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import BEHIND, GIVEN_BACK, RUN_COLUMNS, RUNNING_FOR
from adjourn.store.postgres.runs.children import CHILDREN, child_params

ENDING_ATTEMPTS: Final = 20
"""An ending is tried again when another write of the run came between; each try means one such write."""

_TOTALS: Final = """
    input_tokens = r.input_tokens + :input_tokens, output_tokens = r.output_tokens + :output_tokens,
    requests = r.requests + :requests, cost = r.cost + :cost,
    turns = r.turns + :turns, tool_calls = r.tool_calls + :tool_calls,
    updated_at = adjourn.adjourn_now()
"""
_MOST_WAKES: Final = 2**62
"""A counter that something else than Adjourn has moved to its end must not keep its run from ending."""
_RETRY_AT: Final = """
    case when :pause_seconds > 0
        then greatest(r.retry_at, adjourn.adjourn_now() + make_interval(secs => :pause_seconds)) else r.retry_at end
"""
"""Until when the models of run `r` that could not be asked are left alone: one time for all of them, the latest."""
_MAY_REST: Final = f"r.revision = :seen_revision and {_RETRY_AT} > adjourn.adjourn_now()"
_NEW_ITEMS: Final = """
    unnest(cast(:kinds as text[]), cast(:bodies as text[])) with ordinality as new(kind, body, place)
"""


_OPENED: Final = """, opened as (
    insert into adjourn.actions (
        id, run_id, thread_id, call_id, name, request_id, asked, on_timeout, default_resume,
        status, opened_at, expires_at, child_run_id, child_group, any_of
    )
    select
        new.id, run.id, run.thread_id, new.call_id, new.name, new.request_id, new.asked, new.on_timeout,
        new.default_resume, 'pending', run.updated_at, run.updated_at + make_interval(secs => new.timeout_seconds),
        new.child_run_id, new.child_group, new.any_of
    from run, unnest(
        cast(:action_ids as text[]), cast(:call_ids as text[]), cast(:names as text[]),
        cast(:request_ids as text[]), cast(:asked as text[]), cast(:on_timeouts as text[]),
        cast(:defaults as text[]), cast(:timeouts as double precision[]),
        cast(:child_run_ids as text[]), cast(:child_groups as text[]), cast(:any_ofs as text[])
    ) as new(
        id, call_id, name, request_id, asked, on_timeout, default_resume, timeout_seconds, child_run_id, child_group,
        any_of
    )
)"""


def _append(becomes: str, opened: str = _OPENED) -> sa.TextClause:
    """The append, with what it makes of the run."""
    return sa.text(f"""
with run as (
    update adjourn.runs as r
    set seq = r.seq + cardinality(cast(:bodies as text[])), retry_at = {_RETRY_AT}, {becomes} {_TOTALS}
    where r.id = :run_id and r.token = :token
    returning r.id, r.thread_id, r.seq, r.status, r.revision, r.updated_at, r.seconds + {RUNNING_FOR} as seconds,
        r.status = 'queued' and r.due_at > adjourn.adjourn_now() as rests
), appended as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, run.seq - cardinality(cast(:bodies as text[])) + new.place, run.updated_at, new.kind, new.body
    from run, {_NEW_ITEMS}
){opened}
select run.status, run.revision, run.seq, run.updated_at as at, null as next_run_id, run.seconds, run.rests from run
""")


# A crash before the commit: nothing was written, and the run is claimed again when its lease has
# run out; what had been computed is computed again. After: the items are there and the waits are
# open, and whoever claims the run next reads them. Not repeatable: the items would be there twice.
APPEND = _append("", opened="")

# The same, and waits are opened with it. Most writes open none, and a statement without that part is cheaper.
OPEN = _append("")

# The same, and each wait is for a run, which is started with it, under the parent's token. A crash before the
# commit: there is no child, and its call is planned again. After: the child is due, and its wake-up, if it was
# never published, is published by the sweep; the call waits for it, and starts no other.
SPAWN = _append("", opened=_OPENED + CHILDREN)

# The same, and the claim is given back, but only if the counter is the one that the holder saw:
# both are of the row's newest version, locked. Else the run stays `running` under its token and
# the holder looks again. A crash after the commit: the parked run waits for an answer like any other.
PARK = _append(f"""
    status = case when r.revision = :seen_revision then 'parked' else r.status end,
    token = case when r.revision = :seen_revision then null else r.token end,
    claimed_at = case when r.revision = :seen_revision then null else r.claimed_at end,
    seconds = r.seconds + case when r.revision = :seen_revision then {RUNNING_FOR} else 0 end,
    lease_until = case when r.revision = :seen_revision then null else r.lease_until end,
    deaths = case when r.revision = :seen_revision then 0 else r.deaths end,
""")

# The same, and the run is due again. A crash after the commit and before the wake-up is published:
# the sweep publishes it.
REQUEUE = _append(f"""
    status = 'queued', {GIVEN_BACK}, deaths = 0, due = :due, wakeups = 0,
    due_at = adjourn.adjourn_now(), wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds),
""")

# The same, but it rests until its models may be asked again, if the counter is the one that the holder saw: what came
# meanwhile found no run that rested, and is looked at now. Only the sweep publishes a wake-up of a run that rests,
# when it is due.
REST = _append(f"""
    status = 'queued', {GIVEN_BACK}, deaths = 0, due = :due, wakeups = 0,
    due_at = case when {_MAY_REST} then {_RETRY_AT} else adjourn.adjourn_now() end,
    wakeup_at = case when {_MAY_REST} then {_RETRY_AT}
        else adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds) end,
""")


def ending(guard: str, last: str = "r.seq") -> sa.TextClause:
    """The last write of a run for which `guard` holds: it ends, what is open closes, the next run is due.
    (Not if it only waited behind another run itself: then that one still is the thread's.)

    The open actions are those of the statement's snapshot, so the run has to be of that snapshot
    too: a `seq` that moved on while the row's lock was waited for means that an action may have
    been opened or answered meanwhile. Then nothing is done (`held` in the snapshot, but not `ended`) and the caller
    tries again. `last` is the place of the run's last item.
    """
    return sa.text(f"""
with seen as materialized (
    select r.id, r.seq, {last} as last, r.due is not null as active, coalesce({guard}, false) as held
    from adjourn.runs r
    where r.id = :run_id
), open as materialized (
    select a.id, a.call_id, a.child_run_id, row_number() over (order by a.opened_at, a.id) as place
    from adjourn.actions a
    where a.run_id = :run_id and a.status = 'pending'
), run as (
    update adjourn.runs as r
    set seq = seen.last + (select count(*) from open) + cardinality(cast(:bodies as text[])),
        status = :status, output = :output, error = :error,
        {GIVEN_BACK}, deaths = :deaths, revision = least(r.revision, {_MOST_WAKES}) + 1, {_TOTALS},
        unpropagated = r.parent_run_id is not null or exists (select from open where child_run_id is not null)
    from seen
    where r.id = seen.id and r.seq = seen.seq and ({guard})
    returning {RUN_COLUMNS}, r.ordinal, r.seq, r.revision, r.unpropagated, seen.last as base, seen.active
), closed as (
    update adjourn.actions as a
    set status = 'cancelled', resolved_at = run.updated_at, reason = :closing_reason
    from run, open
    where a.id = open.id
), resolutions as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, run.base + open.place, run.updated_at, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', open.call_id, 'action_id', open.id, 'status', 'cancelled'
    )::text
    from run, open
), appended as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, run.seq - cardinality(cast(:bodies as text[])) + new.place, run.updated_at, new.kind, new.body
    from run, {_NEW_ITEMS}
), next as (
    update adjourn.runs as n
    set due = 'turn', due_at = run.updated_at, wakeups = 0, updated_at = run.updated_at,
        wakeup_at = run.updated_at + make_interval(secs => :wakeup_retry_seconds)
    from run
    where run.active and n.status = 'queued' and n.due is null and n.id = (
        select id from adjourn.runs where thread_id = run.thread_id and {BEHIND} order by ordinal limit 1
    )
    returning n.id
)
select
    seen.held, run.id is not null as ended,
    {RUN_COLUMNS.replace("r.", "run.")}, run.ordinal, run.seq, run.revision, run.unpropagated, run.updated_at as at,
    false as rests, next.id as next_run_id,
    (select coalesce(json_agg(id order by place)::text, '[]') from open) as closed_action_ids
from seen left join run on true left join next on true
""")


# The end, by the holder of the claim. A crash before the commit: the run is claimed again and comes
# to the same end, or asks its last question once more. After: the run has ended; if the wake-up of the
# next run is never published the sweep finds it.
END = ending("r.token = :token")


def write(db: Database, run_id: str, token: str, seen_revision: int, write: Write) -> Written:
    if write.actions and not write.items:
        raise ValueError("a write that opens waits has to record their suspensions: an ending goes by the items' seq")
    params = {"run_id": run_id, "token": token, **item_params(write.items), **_totals(write)}
    match write.becomes:
        case End() as end:
            return _end(db, params, write, end)
        case None if not write.actions:
            row = db.one(APPEND, params)
        case None:
            children = [action.child for action in write.actions if action.child is not None]
            statement, more = (
                (SPAWN, child_params(children, db.tuning.wakeup_retry_seconds)) if children else (OPEN, {})
            )
            row = db.one(statement, params | _action_params(write) | more)
        case Park():
            row = db.one(PARK, params | _action_params(write) | {"seen_revision": seen_revision})
        case Requeue(due=due, after_pause=after_pause):
            again = {"due": due, "seen_revision": seen_revision, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
            row = db.one(REST if after_pause else REQUEUE, params | _action_params(write) | again)
    if row is None:
        raise StaleClaimError(run_id)
    return _written(row, params)


def _end(db: Database, params: dict[str, Any], write: Write, end: End) -> Written:
    if write.actions:
        raise ValueError("a write that ends the run cannot open waits: nobody would ever read the answer")
    params |= end_params(end, "the run ended", db.tuning.wakeup_retry_seconds)
    row = try_ending(db, END, params)
    if row is None or not row.ended:
        raise StaleClaimError(params["run_id"])
    closed = tuple(json.loads(row.closed_action_ids))
    return replace(_written(row, params), closed_action_ids=closed, unpropagated=row.unpropagated)


def try_ending(db: Database, statement: sa.TextClause, params: dict[str, Any]) -> Any:
    """Run a statement of `ending` until it has ended the run, or its guard does not hold.

    Returns its row: `None` if there is no such run, `ended` false if the guard did not hold.
    """
    for _ in range(ENDING_ATTEMPTS):
        row = db.one(statement, params)
        if row is None or row.ended or not row.held:
            return row
    raise StoreUnavailableError("PostgreSQL", f"run {params['run_id']} was written to at every attempt to end it")


def item_params(items: tuple[ItemBody, ...]) -> dict[str, Any]:
    """The parameters of `_NEW_ITEMS`."""
    return {"kinds": [item.kind for item in items], "bodies": [stored(item) for item in items]}


def end_params(end: End, closing_reason: str, wakeup_retry_seconds: float, *, deaths: int = 0) -> dict[str, Any]:
    """The parameters of an ending, but for the run, the token, the items and the totals."""
    return {
        "status": end.status,
        "output": None if end.output is None else json.dumps(end.output),
        "error": None if end.error is None else end.error.model_dump_json(),
        "closing_reason": closing_reason,
        "wakeup_retry_seconds": wakeup_retry_seconds,
        "deaths": deaths,
    }


_ADDED: Final = ("input_tokens", "output_tokens", "requests", "cost", "turns", "tool_calls", "pause_seconds")
NO_TOTALS: Final = dict.fromkeys(_ADDED, 0)
"""Of a write that adds nothing to what a run has used, nor to a pause."""


def _totals(write: Write) -> dict[str, Any]:
    usage = write.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "requests": usage.requests,
        "cost": usage.cost,
        "turns": write.turns,
        "tool_calls": write.tool_calls,
        "pause_seconds": write.pause_seconds,
    }


def _action_params(write: Write) -> dict[str, Any]:
    new = write.actions
    return {
        "action_ids": [action.id for action in new],
        "call_ids": [action.origin.tool_call_id for action in new],
        "names": [action.name for action in new],
        "request_ids": [action.request_id for action in new],
        "asked": [action.model_dump_json() for action in new],
        "on_timeouts": [action.on_timeout for action in new],
        "defaults": [json.dumps(action.default) if action.on_timeout == "default" else None for action in new],
        "timeouts": [action.timeout_seconds for action in new],
        "child_run_ids": [action.child.run_id if action.child else None for action in new],
        "child_groups": [action.child.group if action.child else None for action in new],
        "any_ofs": [action.any_of for action in new],
    }


def _written(row: Any, params: dict[str, Any]) -> Written:
    return Written(
        bytes=sum(len(body.encode()) for body in params["bodies"]),
        status=row.status,
        revision=row.revision,
        seq=row.seq,
        at=row.at,
        rests=row.rests,
        next_run_id=row.next_run_id,
        seconds=row.seconds,
    )
