"""Suspect runs: which of their wake-ups a process is started for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adjourn.schemas.records.runs import RunStatus
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresStore
from adjourn.worker.process import quarantine as quarantine
from adjourn.worker.process.quarantine import Quarantine
from tests.flow.answering import settings_for
from tests.store.steps import Steps
from tests.waiting import wait_until


class Started:
    """Stands where `subprocess` does, and keeps the commands. Each process ends at once and says nothing."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self) -> None:
        self.run_ids: list[str] = []

    def Popen(self, command: list[str], **options: Any) -> Any:
        self.run_ids.append(command[-2])
        return SimpleNamespace(wait=lambda: 0, kill=lambda: None)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr(quarantine, "subprocess", made)
    return made


@pytest.fixture
def steps(database_url: str) -> Iterator[Steps]:
    db = Database(database_url)
    yield Steps(db)
    db.dispose()


STATUSES: list[tuple[RunStatus | None, bool, int]] = [
    ("queued", True, 1),
    ("queued", False, 0),
    ("running", False, 0),
    ("cancelled", False, 0),
    (None, False, 0),
]


@pytest.mark.parametrize(("status", "is_suspect", "wanted"), STATUSES)
def test_only_a_run_that_waits_for_a_process_gets_one(
    steps: Steps,
    database_url: str,
    redis_url: str,
    started: Started,
    status: RunStatus | None,
    is_suspect: bool,
    wanted: int,
) -> None:
    run_id = "run-that-is-not-there"
    if status is not None:
        run_id = steps.start().run_id
    if is_suspect:
        steps.claim(run_id)
        steps.advance(61)
        forgotten.abandoned(steps.db, 10)
    if status == "running":
        steps.claim(run_id)
    if status == "cancelled":
        runs.cancel(steps.db, run_id, reason="not wanted", by="me")
    services: Any = SimpleNamespace(store=PostgresStore(steps.db), build=None)
    made = Quarantine(lambda: settings_for(database_url, redis_url), lambda: services)
    made.submit(run_id)
    wait_until(lambda: not made._in_line, what="the end of the line")
    made.stop()
    assert started.run_ids == [run_id] * wanted
