"""What is recorded of runs, for whoever looks at it and takes no claim.

Reads only. A run is read with its items and actions in one statement, so that they are of one
moment; what earlier runs of its thread said is not read: nothing that is decided depends on it.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.items import StoredItem
from adjourn.store.postgres.damage import damage_of
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.reading import read
from adjourn.store.postgres.rows import (
    ACTIONS_JSON,
    ACTIVE,
    BEHIND,
    RUN_COLUMNS,
    actions_of,
    items_json,
    items_of,
    run_of,
)
from adjourn.store.results import RunHistory

PAGE: Final = 100
"""Runs that are held in memory at a time."""

_LOADED = f"""
select {RUN_COLUMNS}, r.ordinal, r.seq,
    (select {items_json("i.seq")} from adjourn.items i where i.run_id = r.id) as items,
    (select {ACTIONS_JSON} from adjourn.actions a where a.run_id = r.id) as actions
from adjourn.runs r
"""

LOG = sa.text(f"{_LOADED} where r.id = :run_id")


def _page(which: str) -> sa.TextClause:
    """The next runs of a kind; each kind has a partial index that begins with the thread."""
    return sa.text(f"""
{_LOADED}
where {which} and (r.thread_id, r.ordinal) > (:thread_id, :ordinal)
order by r.thread_id, r.ordinal
limit :limit
""")


KINDS: Final = (_page(ACTIVE), _page(BEHIND))


def of_run(db: Database, run_id: str) -> RunHistory | None:
    return read(db, LOG, {"run_id": run_id}, lambda rows: _log_of(rows[0]) if rows else None)


def unfinished(db: Database, page: int = PAGE) -> Iterator[RunHistory]:
    for kind in KINDS:
        thread_id, ordinal = "", 0
        while True:
            params = {"thread_id": thread_id, "ordinal": ordinal, "limit": page}
            found = read(db, kind, params, lambda rows: [(row.ordinal, _log_of(row)) for row in rows])
            yield from (log for _, log in found)
            if len(found) < page:
                break
            ordinal, last = found[-1]
            thread_id = last.run.thread_id


def _log_of(row: Any) -> RunHistory:
    run, items = run_of(row), items_of(row.items)
    damaged: list[DamagedRecordError] = []
    actions = actions_of(row.actions, damaged.append)
    if damaged:
        return RunHistory(run, items, actions, damaged[0])
    damage = damage_of(run, tuple(StoredItem(run.id, item.seq, item.body) for item in items), row.seq, actions)
    return RunHistory(run, items, actions, damage)
