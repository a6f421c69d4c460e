"""`adjourn.store.postgres.answers.early_answers` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from adjourn.store.memory.tables import EarlyRow, Memory
from adjourn.store.results import EarlyAnswer
from adjourn.store.rules import EARLY_RECEIPT_SECONDS


def keep(
    db: Memory,
    *,
    action_id: str,
    body: str,
    answered_by: str | None,
    channel: str | None = None,
    awaited: bool = False,
) -> int | None:
    def insert() -> int | None:
        kept = sum(row.action_id == action_id and row.receipt is None for row in db.early.values())
        if kept >= db.tuning.early_answers_per_action or len(db.early) >= db.tuning.early_answers_kept:
            return None
        row = EarlyRow(db.next_id("early"), action_id, body, answered_by, db.now, channel, awaited)
        db.early[row.id] = row
        return row.id

    return db.statement("keep_early", insert)


def of_action(db: Memory, action_id: str) -> tuple[EarlyAnswer, ...]:
    return db.statement("early_of", lambda: _read(db, lambda row: row.action_id == action_id), repeatable=True)


def for_open_actions(db: Memory, limit: int, after: int = 0) -> tuple[EarlyAnswer, ...]:
    def find() -> tuple[EarlyAnswer, ...]:
        return _read(db, lambda row: row.action_id in db.actions and row.id > after)[:limit]

    return db.statement("early_for_open", find, repeatable=True)


def drop(db: Memory, ids: Sequence[int]) -> None:
    def delete() -> None:
        for id in ids:
            db.early.pop(id, None)

    db.statement("drop_early", delete, repeatable=True)


def conclude(db: Memory, id: int, receipt: str) -> None:
    def update() -> None:
        row = db.early.get(id)
        if row is not None and row.receipt is None:
            row.receipt = receipt

    db.statement("conclude_early", update, repeatable=True)


def receipt(db: Memory, id: int) -> str | None:
    def read() -> str | None:
        row = db.early.get(id)
        return None if row is None else row.receipt

    return db.statement("early_receipt", read, repeatable=True)


def prune(db: Memory) -> int:
    def delete() -> int:
        oldest = db.now - timedelta(days=db.tuning.early_answer_days)
        oldest_receipt = db.now - timedelta(seconds=EARLY_RECEIPT_SECONDS)
        old = [
            row.id
            for row in db.early.values()
            if (row.received_at < oldest and row.action_id not in db.actions)
            or (row.receipt is not None and row.received_at < oldest_receipt)
        ]
        for id in old:
            del db.early[id]
        return len(old)

    return db.statement("prune_early", delete, repeatable=True)


def _read(db: Memory, wanted: Callable[[EarlyRow], bool]) -> tuple[EarlyAnswer, ...]:
    rows = [row for row in db.early.values() if row.receipt is None and wanted(row)]
    return tuple(
        EarlyAnswer(row.id, row.action_id, row.body, row.answered_by, row.channel, row.awaited, row.received_at)
        for row in rows
    )
