"""Threads: how a conversation is seen from outside.

Owns reads only; threads are made by the start of a run (`runs`).
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.items import Item
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.reading import read
from adjourn.store.postgres.rows import (
    ACTIONS_JSON,
    ACTIVE,
    RUNS_JSON,
    actions_of,
    items_json,
    items_of,
    runs_of,
    runs_under,
)
from adjourn.store.results import Seen, ThreadSummary, Wait

# Reads only, from one snapshot: what it shows was true together.
SNAPSHOT = sa.text(f"""
select
    (select {RUNS_JSON} from adjourn.runs r where r.thread_id = :thread_id) as runs,
    (
        select {items_json("r.ordinal, i.seq")}
        from adjourn.runs r join adjourn.items i on i.run_id = r.id where r.thread_id = :thread_id
    ) as items,
    (
        select {ACTIONS_JSON} from ({runs_under("thread_id = :thread_id")}) r join adjourn.actions a on a.run_id = r.id
        where a.status = 'pending' and a.child_run_id is null
    ) as actions,
    (
        select {RUNS_JSON} from ({runs_under("thread_id = :thread_id")}) u join adjourn.runs r on r.id = u.id
        where r.thread_id <> :thread_id and r.{ACTIVE}
    ) as runs_below,
    (
        select {items_json("r.created_at, r.id, i.seq")}
        from ({runs_under("thread_id = :thread_id")}) u join adjourn.runs r on r.id = u.id
            join adjourn.items i on i.run_id = r.id
        where r.thread_id <> :thread_id and r.{ACTIVE}
    ) as items_below,
    (
        select coalesce(json_agg(json_build_array(a.run_id, a.call_id, a.id) order by a.opened_at, a.id)::text, '[]')
        from ({runs_under("thread_id = :thread_id")}) r join adjourn.actions a on a.run_id = r.id
        where a.status = 'pending'
    ) as waits
""")

# Reads only.
LIST = sa.text("""
select t.id, t.created_at, r.updated_at, r.agent, r.status, r.id as run_id
from adjourn.threads t
cross join lateral (
    select * from adjourn.runs where thread_id = t.id order by ordinal desc limit 1
) r
order by t.created_at desc, t.id desc
limit :limit
""")


def snapshot(db: Database, thread_id: str) -> tuple[tuple[Run, ...], tuple[Item, ...], tuple[PendingAction, ...]]:
    seen = look(db, thread_id)
    return seen.runs, seen.items, seen.pending


def look(db: Database, thread_id: str) -> Seen:
    return read(db, SNAPSHOT, {"thread_id": thread_id}, _seen)


def _seen(rows: Sequence[Any]) -> Seen:
    (row,) = rows
    return Seen(
        runs=runs_of(row.runs),
        items=items_of(row.items),
        pending=tuple(state.action for state in actions_of(row.actions)),
        runs_below=runs_of(row.runs_below),
        items_below=items_of(row.items_below),
        waits=tuple(Wait(*each) for each in json.loads(row.waits)),
    )


def list(db: Database, limit: int = 100) -> tuple[ThreadSummary, ...]:
    rows = db.execute(LIST, {"limit": limit}, repeatable=True)
    return tuple(
        ThreadSummary(row.id, row.created_at, row.updated_at, row.agent, row.status, row.run_id) for row in rows
    )
