"""The search for parked runs that nothing can wake, because a row that they waited for is lost."""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import sqlalchemy as sa

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ACTIVE, woken
from adjourn.store.results import FIRST_PAGE, LostWaits

# A page of the active runs, by the index `runs_active`: a deployment may have any number of parked runs, and they are
# looked at in turn. A run parks only beside a pending action, and an answer makes it due in the same statement. So a
# parked run without one has lost a row. It is due again: the worker that loads it names the row, or continues if it
# was only told of no end. A run that waits for a child that does not exist is named here.
# A crash before the commit: the next round finds the same. After: the run is due, like any other.
LOST_WAITS = sa.text(f"""
with page as materialized (
    select r.id, r.thread_id, r.status from adjourn.runs r
    where r.{ACTIVE} and r.thread_id > :after
    order by r.thread_id
    limit :limit
), idle as materialized (
    select r.id from adjourn.runs r
    where r.id in (select id from page where status = 'parked') and r.status = 'parked'
        and not exists (select from adjourn.actions a where a.run_id = r.id and a.status = 'pending')
    for update skip locked
), again as (
    update adjourn.runs as r
    set revision = r.revision + 1, updated_at = adjourn.adjourn_now(), {woken("adjourn.adjourn_now()")}
    from idle where r.id = idle.id
    returning r.id, r.due
), childless as materialized (
    select page.id, min(a.child_run_id) as child_id from page join adjourn.actions a on a.run_id = page.id
    where page.status = 'parked' and a.status = 'pending' and a.child_run_id is not null
        and not exists (select from adjourn.runs c where c.id = a.child_run_id)
    group by page.id
)
select page.thread_id, again.id as due_id, again.due, childless.id as parent_id, childless.child_id
from page left join again on again.id = page.id left join childless on childless.id = page.id
order by page.thread_id
""")


def lost_waits(db: Database, after: str, limit: int) -> LostWaits:
    rows = db.execute(
        LOST_WAITS, {"after": after, "limit": limit, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
    )
    return LostWaits(
        wakeups=[WakeUp(run_id=row.due_id, due=row.due) for row in rows if row.due_id is not None],
        damaged=tuple(
            DamagedRecordError("runs", row.child_id, row.parent_id, "there is no such run, and its parent waits for it")
            for row in rows
            if row.parent_id is not None
        ),
        last=rows[-1].thread_id if len(rows) == limit else FIRST_PAGE,
    )
