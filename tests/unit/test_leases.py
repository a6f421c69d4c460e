"""The thread that renews leases outlives whatever goes wrong in it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.protocol import Store
from adjourn.tasks.host.leases import LeaseKeeper

PATIENCE = 10


class Breaking:
    """A store whose first act breaks in a way that nobody foresaw."""

    def __init__(self) -> None:
        self.asked = 0
        self.renewed = threading.Event()

    @property
    def claims(self) -> Breaking:
        return self

    def renew(self, held: Sequence[tuple[str, str]]) -> set[str]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("never seen before")
        self.renewed.set()
        return {run_id for run_id, _ in held}


def test_leases_are_renewed_after_an_error_that_nobody_foresaw() -> None:
    db = Breaking()
    supervisor = LeaseKeeper(cast(Store, db), Tuning(lease_seconds=0.03))
    try:
        with supervisor.hold("run_1", "token") as lease:
            assert db.renewed.wait(PATIENCE)
            assert not lease.lost
    finally:
        supervisor.stop()
