"""Everything that is stored, as either store has it, to be compared."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

import sqlalchemy as sa

from adjourn.schemas.records.answers import Issue
from adjourn.store.memory.tables import Memory
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ACTIONS_JSON, RUN_COLUMNS, actions_of, items_json, items_of, run_of

SEEDS = 10
STEPS = 160
_HIDDEN = (
    "due",
    "due_at",
    "wakeup_at",
    "wakeups",
    "token",
    "lease_until",
    "claimed_at",
    "revision",
    "seq",
    "ordinal",
    "state_version",
    "unpropagated",
    "retry_at",
    "newer_than",
)
"""Columns that no record shows."""
RUNS = sa.text(f"select {RUN_COLUMNS}, {', '.join(_HIDDEN)} from adjourn.runs r order by r.id")
ITEMS = sa.text(f"select {items_json('i.run_id, i.seq')} as items from adjourn.items i")
ACTIONS = sa.text(f"select {ACTIONS_JSON} as actions from adjourn.actions a")
EARLY = sa.text("""
select id, action_id, body, answered_by, received_at, channel, awaited, receipt from adjourn.early_answers order by id
""")
GROUPS = sa.text("select run_id, name, open from adjourn.child_groups order by run_id, name")
BUILDS = sa.text("select id, place, live_until from adjourn.builds order by id")
DEAD = sa.text("select id, at, channel, status, detail, body, action_id, issues from adjourn.dead_letters order by id")


def stored_in_memory(db: Memory) -> dict[str, Any]:
    rows = sorted(db.runs.values(), key=lambda row: row.id)
    acts = sorted(db.actions.values(), key=lambda row: row.order)
    return {
        "runs": [(row.record(), *(getattr(row, name) for name in _HIDDEN)) for row in rows],
        "items": tuple(item for row in rows for item in row.items),
        "actions": tuple(row.record() for row in acts),
        "groups": [(*key, count) for key, count in sorted(db.groups.items())],
        "builds": [(name, *row) for name, row in sorted(db.builds.items())],
        "early": [astuple(row) for row in db.early.values()],
        "dead letters": [letter._asdict() for letter in db.dead_letters.values()],
    }


def stored_in_postgres(db: Database) -> dict[str, Any]:
    letters = [row._asdict() for row in db.execute(DEAD, {})]
    for letter in letters:
        letter["body"] = bytes(letter["body"])
        letter["issues"] = tuple(Issue.model_validate(issue) for issue in json.loads(letter["issues"]))
    return {
        "runs": [(run_of(row), *(getattr(row, name) for name in _HIDDEN)) for row in db.execute(RUNS, {})],
        "items": items_of(db.one(ITEMS, {}).items),
        "actions": actions_of(db.one(ACTIONS, {}).actions),
        "groups": [tuple(row) for row in db.execute(GROUPS, {})],
        "builds": [tuple(row) for row in db.execute(BUILDS, {})],
        "early": [tuple(row) for row in db.execute(EARLY, {})],
        "dead letters": letters,
    }
