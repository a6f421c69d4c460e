"""What was forgotten: the statements of the sweep.

Owns the search for runs and actions that nobody is about to move on. Each statement goes by what
the rows say now, takes what it can lock (`skip locked`) up to a limit, and may be run by any
number of workers at once.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.errors import ContradictedError
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ACTIVE, BEHIND, DECIDES, GIVEN_BACK, RESTS, closed_by, kept_in_time, woken
from adjourn.store.postgres.runs.endings import poison
from adjourn.store.results import Overdue
from adjourn.store.rules import LONGEST_RETRY

MOST_COUNTED: Final = 1_000_000
"""A counter that something else than Adjourn has moved to its end must not stop the search for other runs."""

# A wake-up that was lost, or not acted on, is given again, each time after twice the pause.
# A crash before the commit: the next sweep finds the same. After: the wake-up is not published, and
# found missing once more when its new time has come.
UNSENT = sa.text(f"""
with late as materialized (
    select id from adjourn.runs
    where status = 'queued' and due is not null and wakeup_at <= (select adjourn.adjourn_now())
    order by wakeup_at
    limit :limit
    for update skip locked
)
update adjourn.runs as r
set wakeups = least(r.wakeups, {MOST_COUNTED}) + 1,
    wakeup_at = adjourn.adjourn_now()
        + make_interval(secs => :wakeup_retry_seconds * least(power(2, least(r.wakeups, 9) + 1), {LONGEST_RETRY}))
from late
where r.id = late.id
returning r.id, r.due
""")

# A run waits behind another of its thread and is made due by the end of that one. If that one ended
# in a statement that had begun before this one was enqueued, it did not see it: it is made due here.
# A crash before the commit: the next sweep finds the same. After: it is due, like any other.
STRANDED = sa.text(f"""
with stranded as materialized (
    select w.id from adjourn.runs w
    where w.{BEHIND}
        and not exists (select from adjourn.runs where thread_id = w.thread_id and {ACTIVE})
        and w.ordinal = (select min(ordinal) from adjourn.runs where thread_id = w.thread_id and {BEHIND})
    limit :limit
    for update skip locked
)
update adjourn.runs as r
set due = 'turn', due_at = adjourn.adjourn_now(), wakeups = 0, updated_at = adjourn.adjourn_now(),
    wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds)
from stranded
where r.id = stranded.id
returning r.id, r.due
""")

# Leases run out: the worker died, or hangs. The run is due again, for a process of its own, unless
# it has died there often enough; such a run is only reported (`again` is false) and ended after.
# A crash before the commit: the next sweep finds the same. After: the run is due, and found by
# `UNSENT`, or still held by nobody, and found here.
ABANDONED = sa.text(f"""
with dead as materialized (
    select id, token, least(deaths, {MOST_COUNTED}) as deaths from adjourn.runs
    where status = 'running' and lease_until <= (select adjourn.adjourn_now())
    order by lease_until
    limit :limit
    for update skip locked
), again as (
    update adjourn.runs as r
    set status = 'queued', due = 'suspect', deaths = dead.deaths + 1, {GIVEN_BACK}, wakeups = 0,
        due_at = adjourn.adjourn_now(), updated_at = adjourn.adjourn_now(),
        wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds)
    from dead
    where r.id = dead.id and dead.deaths < :suspect_deaths
    returning r.id
)
select dead.id, dead.token, dead.deaths + 1 as deaths, again.id is not null as again
from dead left join again on again.id = dead.id
""")


# Deadlines. Locks the runs, then expires their actions, then moves each run once by the number of
# its actions: one statement must not update a row twice. An action that was answered between the
# snapshot and the lock is no longer pending and is left alone.
# (`woken` goes by the status in the row, as in `actions.ANSWER`.)
# A deadline that decides closes the other waits of its `ask_any`: a default answers, another fails the run. Of several
# such deadlines that have passed, the first decides, however late the sweep is.
# A wait that was answered in time and whose answer no worker has validated yet is left to that answer.
# A crash before the commit: the next sweep finds the same, or an answer that is late does. After:
# the runs that rested are due.
def _overdue(which: str) -> sa.TextClause:
    return sa.text(f"""
with late as materialized (
    select a.id, a.run_id, a.any_of, a.on_timeout, a.expires_at from adjourn.actions a
    where a.status = 'pending' and a.expires_at <= (select adjourn.adjourn_now()) and not {kept_in_time("a")}
        and {which}
    order by a.expires_at
    limit :limit
), first as materialized (
    select distinct on (any_of) any_of, id from late
    where any_of is not null and {DECIDES}
    order by any_of, expires_at, id
), run as materialized (
    select r.id, {RESTS} as rests, adjourn.adjourn_now() as now from adjourn.runs r
    where r.id in (select run_id from late)
    for update skip locked
), expired as (
    update adjourn.actions as a
    set status = 'expired', resolved_at = run.now, resume = a.default_resume
    from run, late
    where a.id = late.id and late.run_id = run.id and a.status = 'pending'
        and not exists (select from first where first.any_of = late.any_of and first.id <> late.id)
    returning a.id as action_id, a.call_id, run.id as run_id, run.rests, run.now,
        case when a.{DECIDES} then a.any_of end as decided_group, a.on_timeout = 'fail_run' as fails
), {closed_by("expired", "w.run_id")}, moved as materialized (
    select ended.*, run.rests, row_number() over (partition by run_id order by ended.status desc, ended.id) as place,
        count(*) over (partition by run_id) as total
    from (
        select action_id as id, call_id, run_id, now, 'expired' as status from expired
        union all
        select id, call_id, run_id, now, 'cancelled' from closed
    ) ended join run on run.id = ended.run_id
), woken as (
    update adjourn.runs as r
    set seq = r.seq + m.total, revision = r.revision + m.total, updated_at = m.now,
        {woken("m.now")}
    from moved m
    where r.id = m.run_id and m.place = 1
    returning r.id, r.seq
), recorded as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select woken.id, woken.seq - m.total + m.place, m.now, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', m.call_id, 'action_id', m.id, 'status', m.status
    )::text
    from woken join moved m on m.run_id = woken.id
)
select run_id, rests, array_agg(id) as action_ids from moved group by run_id, rests
""")


OVERDUE = _overdue("true")
OVERDUE_OF_RUN = _overdue("a.run_id = :run_id")

# Reads only.
OVERDUE_RUNS = sa.text("""
select distinct run_id from (
    select run_id from adjourn.actions
    where status = 'pending' and expires_at <= (select adjourn.adjourn_now())
    order by expires_at
    limit :limit
) as late
""")

# After a loss of Redis every wake-up is gone: all are given again at the next sweep, not when their
# time has come. A crash before the commit: nothing changed, they come in their time.
MAKE_ALL_DUE = sa.text("""
with queued as materialized (
    select id from adjourn.runs where status = 'queued' and due is not null for update skip locked
)
update adjourn.runs as r
set wakeup_at = greatest(r.due_at, adjourn.adjourn_now()), wakeups = 0
from queued
where r.id = queued.id
returning r.id
""")


def unsent(db: Database, limit: int) -> list[WakeUp]:
    params = {"limit": limit, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
    return _wakeups(db, UNSENT, params) + _wakeups(db, STRANDED, params)


def abandoned(db: Database, limit: int) -> list[WakeUp]:
    rows = db.execute(
        ABANDONED,
        {
            "limit": limit,
            "suspect_deaths": db.tuning.suspect_deaths,
            "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
        },
    )
    wakeups = [WakeUp(run_id=row.id, due="suspect") for row in rows if row.again]
    for row in rows:
        if not row.again:
            wakeups += poison(db, row.id, row.token, row.deaths, at_once=False)
    return wakeups


def overdue(db: Database, limit: int) -> Overdue:
    params = {"limit": limit, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
    try:
        return _expired(db.execute(OVERDUE, params), ())
    except ContradictedError:
        rows: list[Any] = []
        damaged = []
        for late in db.execute(OVERDUE_RUNS, {"limit": limit}):
            try:
                rows += db.execute(OVERDUE_OF_RUN, {**params, "run_id": late.run_id})
            except ContradictedError as error:
                damaged.append(DamagedRecordError("runs", late.run_id, late.run_id, str(error)))
        return _expired(rows, damaged)


def _expired(rows: Sequence[Any], damaged: Sequence[DamagedRecordError]) -> Overdue:
    return Overdue(
        wakeups=[WakeUp(run_id=row.run_id, due="reentry") for row in rows if row.rests],
        action_ids=[action_id for row in rows for action_id in row.action_ids],
        damaged=tuple(damaged),
    )


def make_all_due(db: Database) -> None:
    db.execute(MAKE_ALL_DUE, {})


def _wakeups(db: Database, statement: sa.TextClause, params: dict[str, float]) -> list[WakeUp]:
    return [WakeUp(run_id=row.id, due=row.due) for row in db.execute(statement, params)]
