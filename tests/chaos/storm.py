"""The storm: strikes the scene again and again, at random, and heals what it did when its time has come."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any, Final

import psycopg
import redis

from adjourn.schemas.errors import AdjournError
from tests.chaos.faults import FAULTS, Fault, Target
from tests.chaos.scene import Scene, Slot

CRASHING: Final = "postgres"


class Storm:
    """Faults of one scene under one seed, of the one target that `only` names, if it does.

    The order of the faults follows from the seed; their moments do not.
    """

    def __init__(self, scene: Scene, dice: Random, only: Target | None = None) -> None:
        self.struck: Counter[str] = Counter()
        """Faults by their names."""
        self.crashes: list[datetime] = []
        """When PostgreSQL may have forgotten what it had not been made to keep."""
        self._scene = scene
        self._dice = dice
        self._wanted = [fault for fault in FAULTS if only in (None, fault.target)]
        self._faults = [fault for fault in self._wanted if scene.shim is not None or not fault.needs_shim]
        self._lasting: list[tuple[float, int, object, Iterator[float]]] = []
        self._numbers = count()

    @property
    def left_out(self) -> list[str]:
        """Faults that this machine cannot make: it has no C compiler."""
        return [fault.name for fault in self._wanted if fault not in self._faults]

    def strike(self) -> None:
        """One more fault, of something that no other fault has in its hands."""
        busy = [target for _, _, target, _ in self._lasting]
        free = [slot for slot in self._scene.slots if slot not in busy and slot.worker is not None]
        open_faults = [
            fault for fault in self._faults if (free if fault.target == "worker" else fault.target not in busy)
        ]
        if not open_faults:
            return  # everything that may be struck lies down
        (fault,) = self._dice.choices(open_faults, [fault.weight for fault in open_faults])
        self._begin(fault, self._dice.choice(free) if fault.target == "worker" else None)

    def heal(self) -> None:
        """End the faults whose time is over."""
        while self._lasting and self._lasting[0][0] <= time.monotonic():
            _, _, _, strike = heapq.heappop(self._lasting)
            next(strike, None)

    def calm(self) -> None:
        """End all faults."""
        while self._lasting:
            _, _, _, strike = heapq.heappop(self._lasting)
            next(strike, None)

    def _begin(self, fault: Fault, slot: Slot | None) -> None:
        strike = fault.strike(self._scene, self._dice, slot)
        if fault.target == CRASHING:
            self.crashes.append(datetime.now(UTC))
        try:
            seconds = next(strike)
        except (psycopg.Error, redis.RedisError, AdjournError):
            return  # what it needs is away because of another fault
        self.struck[fault.name] += 1
        target: Any = slot or fault.target
        heapq.heappush(self._lasting, (time.monotonic() + seconds, next(self._numbers), target, strike))
