"""`adjourn.store.early_answers` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from adjourn.schemas.policy import Policy
from adjourn.store.early_answers import EarlyAnswer
from tests.simulation.memory.tables import EarlyRow, Memory

_POLICY = Policy()


def keep(
    db: Memory,
    *,
    action_id: str,
    body: str,
    answered_by: str | None,
    per_action: int = _POLICY.early_answers_per_action,
    total: int = _POLICY.early_answers_kept,
) -> bool:
    def insert() -> bool:
        kept = sum(row.action_id == action_id for row in db.early.values())
        if kept >= per_action or len(db.early) >= total:
            return False
        row = EarlyRow(db.next_id("early"), action_id, body, answered_by, db.now)
        db.early[row.id] = row
        return True

    return db.statement("keep_early", insert)


def of_action(db: Memory, action_id: str) -> tuple[EarlyAnswer, ...]:
    return db.statement("early_of", lambda: _read(db, lambda row: row.action_id == action_id), repeatable=True)


def for_open_actions(db: Memory, limit: int) -> tuple[EarlyAnswer, ...]:
    def find() -> tuple[EarlyAnswer, ...]:
        return _read(db, lambda row: row.action_id in db.actions)[:limit]

    return db.statement("early_for_open", find, repeatable=True)


def drop(db: Memory, ids: Sequence[int]) -> None:
    def delete() -> None:
        for id in ids:
            db.early.pop(id, None)

    db.statement("drop_early", delete, repeatable=True)


def prune(db: Memory, days: float = _POLICY.early_answer_days) -> int:
    def delete() -> int:
        oldest = db.now - timedelta(days=days)
        old = [row.id for row in db.early.values() if row.received_at < oldest and row.action_id not in db.actions]
        for id in old:
            del db.early[id]
        return len(old)

    return db.statement("prune_early", delete, repeatable=True)


def _read(db: Memory, wanted: Callable[[EarlyRow], bool]) -> tuple[EarlyAnswer, ...]:
    rows = filter(wanted, db.early.values())
    return tuple(EarlyAnswer(row.id, row.action_id, row.body, row.answered_by) for row in rows)
