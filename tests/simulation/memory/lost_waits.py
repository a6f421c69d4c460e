"""`adjourn.store.postgres.runs.lost_waits` in memory, where no row is ever lost."""

from __future__ import annotations

from adjourn.store.postgres.runs.lost_waits import FIRST, LostWaits
from tests.simulation.memory.tables import Memory


def find(db: Memory, after: str, limit: int, wakeup_retry_seconds: float) -> LostWaits:
    def found() -> LostWaits:
        waiting = {action.run_id for action in db.actions.values() if action.status == "pending"}
        idle = [row.id for row in db.runs.values() if row.status == "parked" and row.id not in waiting]
        assert not idle, f"{idle} wait for nothing"
        return LostWaits([], (), FIRST)

    return db.statement("lost_waits", found)
