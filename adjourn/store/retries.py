"""How a run that failed goes on: it is due again, and the waits that were closed with it are open again.

Owns the one statement that takes a run out of an end. What is recorded stays: the end stands in the
log as it happened, and a `retry` after it.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import sqlalchemy as sa

from adjourn.schemas.errors import (
    ChildRunError,
    NotFoundError,
    NotRetryableError,
    StoreUnavailableError,
    ThreadBusyError,
)
from adjourn.schemas.events import Place
from adjourn.schemas.items import RetryItem, stored
from adjourn.schemas.limits import Limits
from adjourn.schemas.runs import Hint, Run
from adjourn.store.database import Database
from adjourn.store.records import ACTIVE, BEHIND, RUN_COLUMNS, run_of
from adjourn.store.writes import REHINT_SECONDS

ATTEMPTS: Final = 20
"""A retry is tried again when a run of its thread began between its snapshot and its lock of the thread."""

# A run becomes its thread's active one, as by a start, so it takes the thread's next ordinal as a start
# does (and leaves it unused): of two that do so, the one that waited for the lock finds the ordinal
# moved on and does nothing, for it may not have seen the run of the other. `runs_active` is never met.
# It stays on its queue: a run that killed its workers is tried in a process of its own again.
# A wait that was closed with the run has no answer; one that somebody declined has one, and stays as it is.
# One for a child stays closed, for the child was closed as well: its call starts another.
# A crash before the commit: the run is failed, as it was. After: it is due, and its hint, if it was
# never published, is published by the sweep. A wait without a record in Redis is looked up here.
RETRY = sa.text(rf"""
with seen as materialized (
    select r.id, r.thread_id, r.status, r.parent_run_id, t.last_ordinal,
        substring(r.error from '^{{"type" ?: ?"(\w+)"') as type,
        (
            select o.id from adjourn.runs o where o.thread_id = r.thread_id and (o.{ACTIVE} or o.{BEHIND})
            order by o.ordinal limit 1
        ) as busy
    from adjourn.runs r join adjourn.threads t on t.id = r.thread_id
    where r.id = :run_id
), thread as (
    update adjourn.threads as t
    set last_ordinal = t.last_ordinal + 1
    from seen
    where t.id = seen.thread_id and t.last_ordinal = seen.last_ordinal
        and seen.busy is null and seen.parent_run_id is null
        and seen.status = 'failed' and seen.type = any(cast(:types as text[]))
    returning t.id
), run as (
    update adjourn.runs as r
    set status = 'queued', error = null, deaths = 0, retry_at = null, seq = r.seq + 1, wakes = r.wakes + 1, hints = 0,
        limits = coalesce(:limits, r.limits), due_at = adjourn.adjourn_now(), updated_at = adjourn.adjourn_now(),
        hint_at = adjourn.adjourn_now() + make_interval(secs => :rehint_seconds)
    from thread
    where r.id = :run_id and r.status = 'failed'
    returning {RUN_COLUMNS}, r.ordinal, r.seq, r.due
), reopened as (
    update adjourn.actions as a
    set status = 'pending', resolved_at = null, reason = null
    from run
    where a.run_id = run.id and a.status = 'cancelled' and a.answer_id is null and a.child_run_id is null
        and a.closed_by is null
), ungrouped as (
    delete from adjourn.child_groups g using run where g.run_id = run.id
), appended as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, run.seq, run.updated_at, 'retry', :body from run
)
select seen.thread_id as in_thread, seen.parent_run_id as parent, seen.status as was, seen.type, seen.busy,
    run.id is not null as retried, run.ordinal, run.seq, run.due, {RUN_COLUMNS.replace("r.", "run.")}
from seen left join run on true
""")

BUSY = sa.text("select status from adjourn.runs where id = :run_id")


class Retried(NamedTuple):
    """A run that goes on."""

    run: Run
    hint: Hint
    """To publish."""
    place: Place
    """Of the `retry`."""


def retry(
    db: Database,
    run_id: str,
    *,
    types: Collection[str],
    by: str | None,
    limits: Limits | None = None,
    rehint_seconds: float = REHINT_SECONDS,
) -> Retried:
    """Make a run due again that failed with an error of one of `types`; `limits` take the place of its own.

    Raises `NotFoundError`, `ChildRunError`, `NotRetryableError` for a run that has not failed, or with another
    error, and `ThreadBusyError` if another run of its thread has not ended.
    """
    params = {
        "run_id": run_id,
        "types": sorted(types),
        "limits": None if limits is None else limits.model_dump_json(),
        "body": stored(RetryItem(by=by)),
        "rehint_seconds": rehint_seconds,
    }
    for _ in range(ATTEMPTS):
        row = db.one(RETRY, params)
        if row is None:
            raise NotFoundError("run", run_id)
        if row.retried:
            return Retried(run_of(row), Hint(run_id=run_id, due=row.due), Place(row.ordinal, row.seq))
        if row.parent is not None:
            raise ChildRunError(run_id, row.parent)
        if row.was != "failed" or row.type not in types:
            raise NotRetryableError(run_id, row.was, row.type)
        if row.busy is not None:
            busy = db.one(BUSY, {"run_id": row.busy}, repeatable=True)
            raise ThreadBusyError(row.in_thread, row.busy, busy.status if busy else "ended")
    raise StoreUnavailableError("PostgreSQL", f"the thread of run {run_id} changed at every attempt to retry it")
