"""Events as Postgres has them: the items of a thread after a place, for viewers that Redis cannot tell.

Reads only, and by keys: what a page costs does not grow with the thread, nor what is read of the runs below with
what is over there.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.events import ThreadPosition, event_of
from adjourn.store.postgres import reading
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import (
    ACTION_ID,
    ACTIONS_JSON,
    ENDED,
    RESOLUTIONS_JSON,
    WAITED_FOR,
    actions_of,
    items_json,
    items_with_answers,
    output_of,
)
from adjourn.store.results import NESTED_PER_PAGE, RUNS_PER_PAGE, Extent, RunPage

ITEMS: Final = 200
"""Items of each run of a page, at most."""
RUNS_BELOW: Final = 5_000
"""Runs below a run that are looked at, those nearest to it first. What others wait for is found as these end."""

# Of a copied run (`forks`) the waits are those of another: they are told as items, for nobody to answer.
READ = sa.text(f"""
with run as materialized (
    select r.id, r.ordinal, r.seq, r.status, r.output, r.updated_at,
        case when r.ordinal = :ordinal then :seq else 0 end as after_seq
    from adjourn.runs r
    where r.thread_id = :thread_id and r.ordinal >= :ordinal
    order by r.ordinal
    limit {RUNS_PER_PAGE}
)
select run.id, run.ordinal, run.seq, run.status, run.output, run.updated_at,
    page.items, opened.actions, ended.resolutions,
    not (run.{ENDED}) and exists(
        select from (select * from adjourn.actions a where a.run_id = run.id offset 0) w
        where w.status = 'pending' and w.child_run_id is not null
    ) as delegates
from run
cross join lateral (
    select {items_json("i.seq")} as items,
        array_agg(case when i.kind = 'suspension' then {ACTION_ID} end) as opened,
        array_agg(case when i.kind = 'resolution' then {ACTION_ID} end) as ended
    from (
        select * from adjourn.items i
        where i.run_id = run.id and i.seq > run.after_seq
        order by i.seq
        limit {ITEMS}
    ) as i
) as page
cross join lateral (
    select {ACTIONS_JSON} as actions from adjourn.actions a where a.id = any(page.opened) and a.run_id = run.id
) as opened
cross join lateral (
    select {RESOLUTIONS_JSON} as resolutions from adjourn.actions a where a.id = any(page.ended)
) as ended
order by run.ordinal
""")

BELOW = sa.text(f"""
with {WAITED_FOR}, chosen as (
    (
        select a.* from (select id from under limit {RUNS_BELOW}) r cross join lateral (
            select * from adjourn.actions a where a.run_id = r.id offset 0
        ) a
        where r.id <> :run_id and a.status = 'pending' and a.child_run_id is null
            and a.id <> all(cast(:told as text[]))
        order by a.opened_at, a.id
        limit {NESTED_PER_PAGE}
    )
    union all
    select a.* from adjourn.actions a where a.id = any(cast(:told as text[])) and a.status <> 'pending'
)
select {ACTIONS_JSON} as actions from chosen a
""")

EXTENT = sa.text("select thread_id, ordinal, seq from adjourn.runs where id = :run_id")


def read(db: Database, thread_id: str, after: ThreadPosition) -> list[RunPage]:
    params = {"thread_id": thread_id, "ordinal": after.run, "seq": after.seq}
    return reading.read(db, READ, params, lambda rows: [_page_of(row) for row in rows])


def below(db: Database, run_id: str | None, told: Collection[str]) -> tuple[ActionState, ...]:
    return actions_of(db.one(BELOW, {"run_id": run_id, "told": list(told)}, repeatable=True).actions)


def extent(db: Database, run_id: str) -> Extent | None:
    row = db.one(EXTENT, {"run_id": run_id}, repeatable=True)
    return (
        None
        if row is None
        else Extent(row.thread_id, ThreadPosition(row.ordinal, 0), ThreadPosition(row.ordinal, row.seq))
    )


def _page_of(row: Any) -> RunPage:
    # One for a child is nobody's to answer: it is told as an item.
    opened = {state.action.id: state.action for state in actions_of(row.actions) if state.child is None}
    # A run that failed and was retried has more than one end, and only the last one an output.
    output = output_of(row) if row.status == "completed" else None
    events = []
    for item in items_with_answers(row.items, row.resolutions):
        last = item.seq == row.seq
        action = opened.get(getattr(item.body, "action_id", ""))
        events.append(event_of(item, row.ordinal, action, output if last else None))
    return RunPage(
        row.id, ThreadPosition(row.ordinal, row.seq), row.status, row.updated_at, tuple(events), row.delegates
    )
