"""The bounded chaos: sixty answers under twelve random faults, the same ones unless ADJOURN_CHAOS_SEED is set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.chaos import Effort, run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

SEED = int(os.environ.get("ADJOURN_CHAOS_SEED", "20240"))
EFFORT = Effort(answers=60, faults=12, seconds=120, in_flight=25, pause_seconds=0.35)


def test_nothing_is_lost_and_nothing_is_done_twice(server_folder: Path) -> None:
    report = run(server_folder, SEED, EFFORT, print)
    print(report)
    assert report.findings == []
    assert report.accepted >= EFFORT.answers
    assert sum(report.faults.values()) == EFFORT.faults
