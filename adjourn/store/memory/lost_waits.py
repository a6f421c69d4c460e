"""`adjourn.store.postgres.runs.lost_waits` in memory, where no row is ever lost."""

from __future__ import annotations

from adjourn.store.memory.tables import Memory
from adjourn.store.results import FIRST_PAGE, LostWaits


def lost_waits(db: Memory, after: str, limit: int) -> LostWaits:
    def found() -> LostWaits:
        waiting = {action.run_id for action in db.actions.values() if action.status == "pending"}
        idle = [row.id for row in db.runs.values() if row.status == "parked" and row.id not in waiting]
        assert not idle, f"{idle} wait for nothing"
        return LostWaits([], (), FIRST_PAGE)

    return db.statement("lost_waits", found)
