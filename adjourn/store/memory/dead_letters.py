"""`adjourn.store.postgres.answers.dead_letters` in memory."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.records.answers import Issue
from adjourn.store.memory.tables import Memory
from adjourn.store.results import DeadLetter


def add(
    db: Memory,
    *,
    channel: str,
    status: str,
    detail: str,
    body: bytes,
    action_id: str | None = None,
    issues: Sequence[Issue] = (),
) -> None:
    def insert() -> None:
        id, stored = db.next_id("dead"), body[: db.tuning.dead_letter_bytes]
        db.dead_letters[id] = DeadLetter(id, db.now, channel, status, detail, action_id, stored, tuple(issues))

    db.statement("dead_letter", insert)


def list(db: Memory, limit: int = 100) -> tuple[DeadLetter, ...]:
    def read() -> tuple[DeadLetter, ...]:
        newest = sorted(db.dead_letters.values(), key=lambda letter: letter.id, reverse=True)
        return tuple(newest[:limit])

    return db.statement("dead_letters", read, repeatable=True)


def prune(db: Memory) -> int:
    def delete() -> int:
        last = max(db.dead_letters, default=0)
        old = [id for id in db.dead_letters if id <= last - db.tuning.dead_letters_kept]
        for id in old:
            del db.dead_letters[id]
        return len(old)

    return db.statement("prune_dead_letters", delete, repeatable=True)
