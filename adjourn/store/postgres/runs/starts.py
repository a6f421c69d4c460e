"""Runs: how one starts, and how runs are read.

Owns the insert of `runs` and the rule that a thread has one active run. The rest of a run's life
is next door and offered from here: `claims` (who may write it), `writes` (the fenced append) and
`endings` (cancel, and death).
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import RunIdClashError, StoreUnavailableError, ThreadBusyError
from adjourn.schemas.internal.start_requests import StartRequest
from adjourn.schemas.internal.state import Started
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.items import ITEM, Item, MessageItem, stored
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.reading import read
from adjourn.store.postgres.rows import (
    ACTION_ID,
    ACTIVE,
    BEHIND,
    RESOLUTIONS_JSON,
    RUN_COLUMNS,
    items_json,
    items_of,
    items_with_answers,
    run_of,
)
from adjourn.store.postgres.runs.claims import claim, put_back, reload, renew
from adjourn.store.postgres.runs.endings import cancel, close_orphan, record_death, record_refusal
from adjourn.store.postgres.runs.writes import write
from adjourn.store.results import Cancelled

__all__ = [
    "Cancelled",
    "cancel",
    "claim",
    "close_orphan",
    "get",
    "items",
    "items_to_show",
    "list",
    "put_back",
    "record_death",
    "record_refusal",
    "reload",
    "renew",
    "start",
    "write",
]

_START_ATTEMPTS: Final = 20
"""A start is tried again when a run of its thread started or ended between two statements of it."""

# Taking the thread's next ordinal locks the thread, so starts on one thread stand in line. Each
# still has the snapshot of its own begin, so one that waited may not see the run that the other
# started; then the unique index `runs_active` refuses the row, and nothing is returned.
# A crash before the commit: nothing was started. After: the run is due, and its wake-up, if it was
# never published, is published by the sweep. Sent again it finds the run there and does nothing.
START = sa.text(f"""
with busy as materialized (
    select exists (select from adjourn.runs where thread_id = :thread_id and {ACTIVE})
        or exists (select from adjourn.runs where thread_id = :thread_id and {BEHIND}) as busy
), thread as (
    insert into adjourn.threads as t (id, created_at, last_ordinal)
    select :thread_id, adjourn.adjourn_now(), 1
    from busy
    where (not busy.busy or :enqueue) and not exists (select from adjourn.runs where id = :run_id)
    on conflict (id) do update set last_ordinal = t.last_ordinal + 1
    returning t.id, t.last_ordinal, adjourn.adjourn_now() as now
), run as (
    insert into adjourn.runs (
        id, thread_id, ordinal, agent, status, due, due_at, wakeup_at, seq, limits, state_version,
        created_at, updated_at
    )
    select
        :run_id, thread.id, thread.last_ordinal, :agent, 'queued', case when busy.busy then null else 'turn' end,
        thread.now, thread.now + make_interval(secs => :wakeup_retry_seconds), 1, :limits, :state_version,
        thread.now, thread.now
    from thread, busy
    on conflict do nothing
    returning id, due, created_at
), message as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, 1, run.created_at, 'message', :body from run
)
select due is not null as due, created_at from run
""")

# Why a start wrote nothing: its run is there already, or its thread is busy. Reads only. Of a run that is there,
# the request that started it is read as well: another request for its id is refused.
IN_THE_WAY = sa.text(f"""
(select true as same, r.id, r.thread_id, r.status, r.due, r.agent, r.limits,
    (select i.body from adjourn.items i where i.run_id = r.id and i.seq = 1) as body,
    exists (select from adjourn.items i where i.run_id = r.id and i.kind = 'retry') as retried
 from adjourn.runs r where r.id = :run_id)
union all
(select false, id, thread_id, status, due, null, null, null, null
 from adjourn.runs where thread_id = :thread_id and {ACTIVE})
union all
(select false, id, thread_id, status, due, null, null, null, null
 from adjourn.runs where thread_id = :thread_id and {BEHIND}
 order by ordinal limit 1)
""")

GET = sa.text(f"select {RUN_COLUMNS} from adjourn.runs r where r.id = :run_id")

ITEMS = sa.text(f"""
select {items_json("i.seq")} as items
from adjourn.items i where i.run_id = :run_id and i.seq > :after_seq
""")

# The items name the actions: those of a forked run are of the run that it was copied from.
ITEMS_TO_SHOW = sa.text(f"""
select {items_json("i.seq")} as items, (
    select {RESOLUTIONS_JSON} from adjourn.actions a where a.id in (
        select {ACTION_ID} from adjourn.items i where i.run_id = :run_id and i.kind = 'resolution'
    )
) as resolutions
from adjourn.items i where i.run_id = :run_id
""")

LIST_OF_THREAD = sa.text(f"""
select {RUN_COLUMNS}
from adjourn.runs r
where r.thread_id = :thread_id and (cast(:status as text) is null or r.status = :status)
order by r.ordinal desc
limit :limit
""")

# For people, and reads the whole table: an index on the age of runs would cost every step of a run.
LIST = sa.text(f"""
select {RUN_COLUMNS}
from adjourn.runs r
where cast(:status as text) is null or r.status = :status
order by r.created_at desc, r.id desc
limit :limit
""")


def start(
    db: Database,
    *,
    run_id: str,
    thread_id: str,
    agent: str,
    text: str,
    data: Any = None,
    limits: Limits | None,
    enqueue: bool,
    any_thread: bool = False,
) -> Started:
    message = MessageItem(text=text, data=data)
    request = StartRequest(agent, None if any_thread else thread_id, message, limits)
    params = {
        "run_id": run_id,
        "thread_id": thread_id,
        "agent": agent,
        "body": stored(message),
        "limits": None if limits is None else limits.model_dump_json(),
        "state_version": STATE_VERSION,
        "enqueue": enqueue,
        "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
    }
    for _ in range(_START_ATTEMPTS):
        started = db.one(START, params, repeatable=True)
        if started is not None:
            return Started(run_id=run_id, thread_id=thread_id, created=True, due=started.due, at=started.created_at)
        others = db.execute(IN_THE_WAY, {"run_id": run_id, "thread_id": thread_id}, repeatable=True)
        for other in others:
            if other.same:
                if differing := request.differing(_request_of(other)):
                    raise RunIdClashError(run_id, differing)
                return Started(run_id=run_id, thread_id=other.thread_id, created=False, due=other.due is not None)
        if others and not enqueue:
            raise ThreadBusyError(thread_id, others[0].id, others[0].status)
    raise StoreUnavailableError("PostgreSQL", f"thread {thread_id} changed at every attempt to start a run on it")


def _request_of(row: Any) -> StartRequest:
    """The request that started a run. A damaged part of it is not compared, nor limits that a retry may have given."""
    message, limits, knows_limits = None, None, not row.retried
    with suppress(ValueError):
        item = ITEM.validate_json(row.body or "")
        message = item if item.kind == "message" else None
    try:
        limits = None if row.limits is None else Limits.model_validate_json(row.limits)
    except ValueError:
        knows_limits = False
    return StartRequest(row.agent, row.thread_id, message, limits, knows_limits)


def get(db: Database, run_id: str) -> Run | None:
    row = db.one(GET, {"run_id": run_id}, repeatable=True)
    return None if row is None else run_of(row)


def items(db: Database, run_id: str, after_seq: int = 0) -> tuple[Item, ...]:
    return read(db, ITEMS, {"run_id": run_id, "after_seq": after_seq}, lambda rows: items_of(rows[0].items))


def items_to_show(db: Database, run_id: str) -> tuple[Item, ...]:
    return read(
        db, ITEMS_TO_SHOW, {"run_id": run_id}, lambda rows: items_with_answers(rows[0].items, rows[0].resolutions)
    )


def list(
    db: Database, *, thread_id: str | None = None, status: RunStatus | None = None, limit: int = 100
) -> tuple[Run, ...]:
    if thread_id is None:
        rows = db.execute(LIST, {"status": status, "limit": limit}, repeatable=True)
    else:
        params = {"thread_id": thread_id, "status": status, "limit": limit}
        rows = db.execute(LIST_OF_THREAD, params, repeatable=True)
    return tuple(run_of(row) for row in rows)
