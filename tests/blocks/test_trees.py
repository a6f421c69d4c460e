"""A bounded part of the comparison; `python -m tests.blocks` runs as much of it as one likes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from adjourn import App
from tests.blocks.mutations import MUTATIONS
from tests.blocks.real import RealTrial
from tests.blocks.simulated import CALM, Trial, compared
from tests.simulation.stage import stage
from tests.world import World

pytestmark = pytest.mark.timeout(900)
TREES = range(50)
REAL_TREES = range(16)
WITHIN = 150
"""Trees in which a rule that is gone has to be missed."""
TRIED = ("deaths", "effect", "once", "request", "waits", "runs completed", "runs failed")


def test_whatever_goes_wrong_the_same_is_done() -> None:
    counts: Counter[str] = Counter()
    with stage():
        for tree in TREES:
            findings, counted = compared(tree)
            assert findings == [], f"tree {tree}"
            counts += counted
    assert all(counts[what] >= 10 for what in TRIED), counts


def test_on_postgres_the_same_is_done(database_url: str, redis_url: str) -> None:
    deaths = 0
    world = World(App(), database_url, redis_url)
    try:
        for tree in REAL_TREES:
            with stage():
                undisturbed = Trial(tree, CALM, random.Random(tree)).run()
            trial = RealTrial(tree, world)
            assert [*undisturbed.differences(trial.run())] == [], f"tree {tree}"
            deaths += trial.deaths
    finally:
        world.close()
    assert deaths >= 10


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(mutation: str) -> None:
    with stage(), MUTATIONS[mutation]():
        assert any(compared(tree)[0] for tree in range(WITHIN))
