"""The thread that renews leases outlives whatever goes wrong in it."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, cast

from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.postgres.database import Database
from adjourn.tasks.host.leases import LeaseKeeper

PATIENCE = 10


class Row(NamedTuple):
    id: str


class Breaking:
    """A database whose first statement breaks in a way that nobody foresaw."""

    def __init__(self) -> None:
        self.asked = 0
        self.renewed = threading.Event()

    def execute(self, statement: object, params: dict[str, Any], **_: bool) -> list[Row]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("never seen before")
        self.renewed.set()
        return [Row(run_id) for run_id in params["run_ids"]]


def test_leases_are_renewed_after_an_error_that_nobody_foresaw() -> None:
    db = Breaking()
    supervisor = LeaseKeeper(cast(Database, db), Tuning(lease_seconds=0.03))
    try:
        with supervisor.hold("run_1", "token") as lease:
            assert db.renewed.wait(PATIENCE)
            assert not lease.lost
    finally:
        supervisor.stop()
