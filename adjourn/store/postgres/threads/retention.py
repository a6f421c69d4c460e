"""Retention: threads that have ended long ago are read out whole and taken away.

The unit is a thread, since a later run on it reads the earlier ones. A thread with any run that has
not ended, or with one that ended lately, is left alone as a whole.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.store.postgres import reading
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ACTIONS_JSON, ENDED, RUNS_JSON, actions_of, items_json, items_of, runs_of
from adjourn.store.results import ArchivedThread

_DAY_SECONDS: Final = 86_400

# Reads only.
OLD = sa.text(f"""
select t.id from adjourn.threads t
where t.created_at <= adjourn.adjourn_now() - make_interval(secs => :seconds)
    and (cast(:after as text) is null or t.id > :after)
    and not exists (
        select from adjourn.runs r join adjourn.runs p on p.id = r.parent_run_id
        where r.thread_id = t.id and not p.{ENDED}
    )
    and not exists (
        select from adjourn.runs r
        where r.thread_id = t.id
            and (not r.{ENDED} or r.unpropagated
                or r.updated_at > adjourn.adjourn_now() - make_interval(secs => :seconds))
    )
order by t.id
limit :limit
""")

# Reads only, from one snapshot.
READ = sa.text(f"""
select
    t.last_ordinal,
    (select {RUNS_JSON} from adjourn.runs r where r.thread_id = :thread_id) as runs,
    (
        select {items_json("r.ordinal, i.seq")}
        from adjourn.runs r join adjourn.items i on i.run_id = r.id where r.thread_id = :thread_id
    ) as items,
    (
        select {ACTIONS_JSON} from adjourn.runs r join adjourn.actions a on a.run_id = r.id
        where r.thread_id = :thread_id
    ) as actions
from adjourn.threads t where t.id = :thread_id
""")

# Takes the thread's lock first, as a start on it does: a run that starts meanwhile is seen here, and
# the thread stays, or starts afterwards on a thread that is new again.
# A crash before the commit: the thread is there, and found again. After: it is gone.
DELETE = sa.text(f"""
with thread as materialized (
    select t.id from adjourn.threads t
    where t.id = :thread_id and t.last_ordinal = :last_ordinal
    for update
), gone_runs as (
    delete from adjourn.runs r using thread
    where r.thread_id = thread.id
        and not exists (select from adjourn.runs a where a.thread_id = thread.id and not a.{ENDED})
    returning r.id
), gone_items as (
    delete from adjourn.items i using gone_runs where i.run_id = gone_runs.id
), gone_actions as (
    delete from adjourn.actions a using gone_runs where a.run_id = gone_runs.id
), gone_groups as (
    delete from adjourn.child_groups g using gone_runs where g.run_id = gone_runs.id
), gone_thread as (
    delete from adjourn.threads t using thread where t.id = thread.id and exists (select from gone_runs)
)
select count(*) as runs from gone_runs
""")


def old(db: Database, days: float, limit: int, after: str | None = None) -> list[str]:
    params: dict[str, Any] = {"seconds": days * _DAY_SECONDS, "limit": limit, "after": after}
    return [row.id for row in db.execute(OLD, params, repeatable=True)]


def read(db: Database, thread_id: str) -> ArchivedThread | None:

    def load(rows: Sequence[Any]) -> ArchivedThread | None:
        for row in rows:
            return ArchivedThread(
                thread_id=thread_id,
                last_ordinal=row.last_ordinal,
                runs=runs_of(row.runs),
                items=items_of(row.items),
                actions=actions_of(row.actions),
            )
        return None

    return reading.read(db, READ, {"thread_id": thread_id}, load)


def delete(db: Database, thread: ArchivedThread) -> bool:
    row = db.one(DELETE, {"thread_id": thread.thread_id, "last_ordinal": thread.last_ordinal}, repeatable=True)
    return bool(row.runs)
