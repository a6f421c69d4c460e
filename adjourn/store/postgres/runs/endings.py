"""How a run ends from outside: cancelled by somebody, or taken from a worker that died.

Owns what may be done to a run without its claim. Each of these takes the claim away, so that
whoever held it can write nothing more.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import DamagedRecordError, PoisonedRunError, RunError, StatementRefusedError
from adjourn.schemas.internal.state import End
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import EndItem
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import GIVEN_BACK, RUN_COLUMNS, run_of
from adjourn.store.postgres.runs.claims import PUT_BACK_DUE
from adjourn.store.postgres.runs.writes import (
    NO_TOTALS,
    end_params,
    ending,
    item_params,
    try_ending,
)
from adjourn.store.results import Cancelled
from adjourn.store.rules import CLOSED_BY_CANCEL, CLOSED_BY_FAILURE, cancelled, orphaned

# A crash before the commit: nothing was cancelled. After: the run has ended, answers are late, and
# a worker that still drives it finds its claim lost. Sent again it finds the run ended.
CANCEL = ending("r.status in ('queued', 'running', 'parked')")

# The same, of a child of a run that has ended, if nothing has happened to it since its `revision` was read: a retry of
# the tree moves that on, and then the child is waited for again. A crash: as above.
CLOSE_ORPHAN = ending("r.status in ('queued', 'running', 'parked') and r.revision = :orphan_revision")

_LAST_ITEM: Final = "coalesce((select max(i.seq) from adjourn.items i where i.run_id = r.id), 0)"
"""The place of the last item that there is, whatever `seq` says. For the end of a run that may be damaged."""

# A run of which a row cannot be read. One that a newer version has written is left alone: it may well read it.
# A crash before the commit: whatever reads the row next does it. After: as after any end.
DAMAGED = ending(f"r.status in ('queued', 'running', 'parked') and r.state_version <= {STATE_VERSION}", _LAST_ITEM)

# The end of a run that killed its worker too often, if nobody renewed or took its claim meanwhile.
# A crash before the commit: the next sweep finds the run as this one did. After: it has ended.
POISON = ending("r.token = :token and (:at_once or r.lease_until <= adjourn.adjourn_now())", _LAST_ITEM)

# Reads only. Also the run that this one's end has made due: whoever ended it may have died before its wake-up.
ENDED_RUN = sa.text(f"""
select {RUN_COLUMNS}, r.unpropagated, (
    select n.id from adjourn.runs n where n.thread_id = r.thread_id and n.status = 'queued' and n.due = 'turn'
) as next_run_id
from adjourn.runs r where r.id = :run_id
""")


def _again(guard: str, becomes: str) -> sa.TextClause:
    """A run for which `guard` holds is taken from its holder and due again, one death nearer to its end.

    Nothing has changed if it has died often enough (`again` is false).
    """
    return sa.text(f"""
with dead as materialized (
    select id, token, deaths from adjourn.runs
    where id = :run_id and {guard}
    for update
), again as (
    update adjourn.runs as r
    set status = 'queued', deaths = r.deaths + 1, {GIVEN_BACK}, wakeups = 0,
        updated_at = adjourn.adjourn_now(), {becomes}
    from dead
    where r.id = dead.id and dead.deaths < :suspect_deaths
    returning r.id
)
select dead.id, dead.token, dead.deaths + 1 as deaths, again.id is not null as again
from dead left join again on again.id = dead.id
""")


# The death of a process made for one run, as seen by the one who made it; no lease is waited for.
# A crash before the commit: the sweep finds the run when its lease has run out. After: it is due again.
DIED = _again(
    "status = 'running' and due = 'suspect'",
    "due_at = adjourn.adjourn_now(), wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds)",
)

# What a run had to store was refused. It killed nobody and stays on its queue; each pause is twice the one before.
# A crash before the commit: the sweep finds the run when its lease has run out. After: the sweep gives its wake-up
# when it is due, and no answer wakes it before that.
REFUSED = _again(
    "token = :token",
    f"due = {PUT_BACK_DUE}, retry_at = null, "
    + ", ".join(
        f"{column} = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds * power(2, r.deaths))"
        for column in ("due_at", "wakeup_at")
    ),
)


def cancel(db: Database, run_id: str, *, reason: str | None, by: str | None) -> Cancelled | None:
    return _end_live(db, CANCEL, run_id, cancelled(reason, by), CLOSED_BY_CANCEL)


def close_orphan(db: Database, run_id: str, revision: int) -> Cancelled | None:
    return _end_live(db, CLOSE_ORPHAN, run_id, orphaned(), CLOSED_BY_CANCEL, orphan_revision=revision)


def fail_damaged(db: Database, error: DamagedRecordError) -> Cancelled | None:
    return _end_live(db, DAMAGED, error.run_id, End.failed(error), CLOSED_BY_FAILURE)


def _end_live(
    db: Database,
    statement: sa.TextClause,
    run_id: str,
    end: End,
    closing_reason: str,
    **more: Any,
) -> Cancelled | None:
    """End a run for which the guard of the statement holds, whoever has claimed it."""
    row = _end(db, statement, run_id, None, end, closing_reason, **more)
    if row is None:
        return None
    if not row.ended:
        ended = db.one(ENDED_RUN, {"run_id": run_id}, repeatable=True)
        return Cancelled(run_of(ended), False, next_run_id=ended.next_run_id, unpropagated=ended.unpropagated)
    place = ThreadPosition(row.ordinal, row.seq)
    closed = tuple(json.loads(row.closed_action_ids))
    return Cancelled(run_of(row), True, place, closed, row.next_run_id, row.unpropagated)


def record_death(db: Database, run_id: str) -> Sequence[WakeUp]:
    row = db.one(
        DIED,
        {
            "run_id": run_id,
            "suspect_deaths": db.tuning.suspect_deaths,
            "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
        },
    )
    if row is None:
        return ()
    if row.again:
        return (WakeUp(run_id=run_id, due="suspect"),)
    return poison(db, run_id, row.token, row.deaths, at_once=True)


def record_refusal(
    db: Database,
    run_id: str,
    token: str,
    problem: str,
) -> Sequence[WakeUp]:
    params = {
        "run_id": run_id,
        "token": token,
        "suspect_deaths": db.tuning.suspect_deaths,
        "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
    }
    row = db.one(REFUSED, params)
    if row is None or row.again:
        return ()
    error = StatementRefusedError(run_id, row.deaths, problem)
    return _fail(db, run_id, token, error, row.deaths, at_once=True)


def poison(db: Database, run_id: str, token: str, deaths: int, *, at_once: bool) -> Sequence[WakeUp]:
    """Fail a run that killed its worker `deaths` times, unless its claim moved on since.

    `at_once` does so before its lease has run out. Returns the wake-up of the next run of its thread.
    """
    return _fail(db, run_id, token, PoisonedRunError(run_id, deaths), deaths, at_once=at_once)


def _fail(
    db: Database,
    run_id: str,
    token: str,
    why: RunError,
    deaths: int,
    *,
    at_once: bool,
) -> Sequence[WakeUp]:
    row = _end(db, POISON, run_id, token, End.failed(why), CLOSED_BY_FAILURE, deaths=deaths, at_once=at_once)
    if row is None or not row.ended or row.next_run_id is None:
        return ()
    return (WakeUp(run_id=row.next_run_id, due="turn"),)


def _end(
    db: Database,
    statement: sa.TextClause,
    run_id: str,
    token: str | None,
    end: End,
    closing_reason: str,
    *,
    deaths: int = 0,
    **more: Any,
) -> Any:
    params = {
        "run_id": run_id,
        "token": token,
        **item_params((EndItem(status=end.status, error=end.error),)),
        **NO_TOTALS,
        **end_params(end, closing_reason, db.tuning.wakeup_retry_seconds, deaths=deaths),
        **more,
    }
    return try_ending(db, statement, params)
