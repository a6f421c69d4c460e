"""What a seed lets go wrong, and how often. Each seed has its own mixture: much of a few things, none of others.

A world where everything fails all the time seldom gets far enough for the subtle faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self

from tests.simulation import tools


@dataclass(frozen=True)
class Profile:
    """Rates are per point: before and after every statement, command, effect and model call."""

    give_way: float
    crash: float
    freeze: float
    """A whole process stands still, past its leases perhaps, and goes on later."""
    stall: float
    """One thread does."""
    unavailable: float
    """PostgreSQL is not reached: nobody knows whether the statement was done."""
    sent_again: float
    """A repeatable statement is done twice, as when the connection breaks after the commit."""
    wakeup_lost: float
    answer_lost: float
    repeated: float
    """Of messages."""
    delayed: float
    model_fails: float
    """How often the provider is out of order."""
    clock_back: float
    """At each step: the database's clock goes back, as when another server takes over."""
    redis_lost: float
    """A command to Redis that does nothing."""
    renews: bool
    """Whether leases are renewed at all."""
    skews: bool
    """Whether the clocks of processes are wrong."""
    haste: float
    """How much more often time makes a leap."""
    workers: int
    threads: int
    runs: int
    steps: int
    tools: tuple[str, ...]

    @classmethod
    def drawn(cls, dice: random.Random) -> Self:
        """A mixture."""

        def sometimes(*rates: float) -> float:
            return dice.choice(rates) if dice.random() < 0.4 else 0.0

        return cls(
            give_way=dice.choice([0.1, 0.3, 0.7]),
            crash=sometimes(0.003, 0.01, 0.03),
            freeze=sometimes(0.003, 0.01, 0.03),
            stall=sometimes(0.003, 0.01, 0.03),
            unavailable=sometimes(0.005, 0.02),
            sent_again=sometimes(0.01, 0.1),
            wakeup_lost=sometimes(0.1, 0.5, 1.0),
            answer_lost=sometimes(0.1, 0.4),
            repeated=sometimes(0.1, 0.5),
            delayed=sometimes(0.1, 0.5),
            model_fails=sometimes(0.05, 0.9),
            clock_back=sometimes(0.03),
            redis_lost=sometimes(0.05, 0.3),
            renews=dice.random() < 0.7,
            skews=dice.random() < 0.3,
            haste=sometimes(1.0, 4.0),
            workers=dice.choice([1, 2, 3]),
            threads=dice.choice([1, 1, 2]),
            runs=dice.choice([1, 2, 2, 3, 5]),
            steps=dice.choice([60, 120, 200]),
            tools=tuple(dice.sample(tools.NAMES, dice.randint(2, 6))),
        )
