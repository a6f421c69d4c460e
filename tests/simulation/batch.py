"""Many seeds, one after the other, and what came of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

from tests.simulation.mutations import MUTATIONS
from tests.simulation.stage import stage
from tests.simulation.world import World


@dataclass
class Batch:
    """What was tried, and what was wrong."""

    seeds: int = 0
    findings: dict[int, list[str]] = field(default_factory=dict)
    """By seed."""
    counts: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Batch) -> Batch:
        self.seeds += other.seeds
        self.findings.update(other.findings)
        self.counts += other.counts
        return self


def simulate(seeds: Iterable[int], mutation: str | None = None, *, enough: int | None = None) -> Batch:
    """Run seeds, with a rule taken away if `mutation` names one. Stops after `enough` findings."""
    batch = Batch()
    with stage(), MUTATIONS[mutation]() if mutation else nullcontext():
        for seed in seeds:
            world = World(seed)
            world.run()
            batch.seeds += 1
            batch.counts += world.witness.counts
            if world.witness.found:
                batch.findings[seed] = world.witness.found
            if len(batch.findings) == enough:
                break
    return batch


def replay(seed: int, mutation: str | None = None) -> World:
    """The world of one seed, with a trace of all that happened in it."""
    with stage(), MUTATIONS[mutation]() if mutation else nullcontext():
        world = World(seed, traced=True)
        world.run()
        return world
