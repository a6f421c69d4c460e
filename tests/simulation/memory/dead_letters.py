"""`adjourn.store.postgres.answers.dead_letters` in memory."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Issue
from tests.simulation.memory.tables import Memory

_TUNING = Tuning()


def add(
    db: Memory,
    *,
    channel: str,
    status: str,
    detail: str,
    body: bytes,
    action_id: str | None = None,
    issues: Sequence[Issue] = (),
    max_bytes: int = _TUNING.dead_letter_bytes,
) -> None:
    def insert() -> None:
        db.dead_letters[db.next_id("dead")] = {
            "channel": channel,
            "status": status,
            "detail": detail,
            "body": body[:max_bytes],
            "action_id": action_id,
            "issues": tuple(issues),
        }

    db.statement("dead_letter", insert)


def prune(db: Memory, keep: int = _TUNING.dead_letters_kept) -> int:
    def delete() -> int:
        last = max(db.dead_letters, default=0)
        old = [id for id in db.dead_letters if id <= last - keep]
        for id in old:
            del db.dead_letters[id]
        return len(old)

    return db.statement("prune_dead_letters", delete, repeatable=True)
