"""A bounded part of the simulation; `python -m tests.simulation` runs as much of it as one likes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.simulation.batch import replay, simulate
from tests.simulation.mutations import MUTATIONS, RARE

pytestmark = pytest.mark.timeout(900)
SEEDS = range(400)
REPLAYED = 17
WITHIN = 400
"""Seeds in which a rule that is gone has to be missed."""
TRIED = ("kills", "stale writes", "answers accepted", "answers early", "answers late", "runs failed", "runs cancelled")
DIGEST = (
    "import hashlib, sys; from tests.simulation.batch import replay; "
    "print(hashlib.sha256(repr(replay(int(sys.argv[1])).trace).encode()).hexdigest())"
)


def test_nothing_is_lost_and_nothing_happens_twice() -> None:
    batch = simulate(SEEDS)
    assert batch.findings == {}
    assert all(batch.counts[name] >= 10 for name in TRIED), batch.counts


def test_a_seed_replays_exactly_in_another_process() -> None:
    here = hashlib.sha256(repr(replay(REPLAYED).trace).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run(
        [sys.executable, "-c", DIGEST, str(REPLAYED)], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == here


@pytest.mark.parametrize("mutation", sorted(MUTATIONS.keys() - RARE))
def test_a_rule_that_is_taken_away_is_missed(mutation: str) -> None:
    assert simulate(range(WITHIN), mutation, enough=1).findings
