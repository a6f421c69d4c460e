"""The bounded chaos: about a hundred answers under twenty random faults, once as ever and once as never before."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.chaos import Effort, run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

EFFORT = Effort(answers=100, faults=20, seconds=120, in_flight=25, pause_seconds=0.35)


@pytest.mark.parametrize("seed", [20_240, None], ids=["fixed seed", "random seed"])
def test_nothing_is_lost_and_nothing_is_done_twice(server_folder: Path, seed: int | None) -> None:
    seed = secrets.randbelow(2**32) if seed is None else seed
    print(f"seed {seed}")
    report = run(server_folder, seed, EFFORT, print)
    print(report)
    assert report.findings == []
    assert report.accepted >= EFFORT.answers
    assert sum(report.faults.values()) == EFFORT.faults
