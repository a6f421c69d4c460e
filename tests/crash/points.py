"""The places in a process where it can be killed, each with a stable name.

A point is one SQL statement, Redis command, publish, delivery, acknowledgement, model request or
effect of a tool. Its name says which program and which of its threads came by, what it was, and
for which time: `worker.turn/sql:writes.PARK#1`. Runs in the processes under trial, before and
beside the code of Adjourn, and never inside it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from adjourn.schemas.records.record import Record

Side = Literal["before", "after"]
SIDES: Final[tuple[Side, ...]] = ("before", "after")

CONTINUED: Final = "(continued)"
"""Stands in the trace where a process that was stopped went on."""

_ROLES: Final = {
    "MainThread": "main",
    "adjourn-resume": "resume",
    "adjourn-sweep": "sweep",
    "adjourn-leases": "leases",
    "adjourn-suspect": "quarantine",
}
"""Threads by the start of their names. All others drive turns."""


class Death(Record):
    """Where a process of a trial is stopped, once: the first that comes by takes the trigger file away."""

    side: Side
    point: str
    trigger: Path
    freeze: bool = False
    """Stopped past its lease and continued later (SIGSTOP), where it would be killed (SIGKILL)."""

    def __str__(self) -> str:
        return f"{'frozen' if self.freeze else 'killed'} {self.side} {self.point}"


class Plan(Record):
    """What a process under trial is told about its points."""

    trace: Path
    """Every point is written there, in the order of the passing."""
    death: Death | None = None
    from_start: bool = False
    """Count from the start of the process, and not only once it is told to."""
    leases: int = 0
    """How many renewals are points. More of them come and go with the clock."""
    restores: int = 0
    """How many looks for what dead readers had taken are points, likewise."""


class Points:
    """Counts the points of one process, writes them down, and dies at the planned one."""

    def __init__(self, program: str, plan: Plan) -> None:
        self.plan = plan
        self.open = 0
        """Points that are being passed now."""
        self.starting = program == "worker" and plan.from_start
        """Whether it is a worker's start that is under trial."""
        self._program = program
        self._counting = plan.from_start
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._trace = os.open(plan.trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._muted = threading.local()

    def count(self) -> None:
        """From now on."""
        self._counting = True

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Something that `what` names is done inside."""
        if not self._counting or getattr(self._muted, "muted", False):
            with self._passing():
                yield
            return
        place = f"{self._program}.{_role()}/{what}" if self._program == "worker" else f"{self._program}/{what}"
        with self._lock:
            self._seen[place] += 1
            name = f"{place}#{self._seen[place]}"
        os.write(self._trace, f"{name}\n".encode())
        self._perhaps_die("before", name)
        try:
            with self._passing():
                yield
        finally:  # after a statement that PostgreSQL refuses, too
            self._perhaps_die("after", name)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """What this thread does inside comes and goes with the clock, and is no part of a cycle."""
        before = getattr(self._muted, "muted", False)
        self._muted.muted = True
        try:
            yield
        finally:
            self._muted.muted = before

    @contextmanager
    def _passing(self) -> Iterator[None]:
        with self._lock:
            self.open += 1
        try:
            yield
        finally:
            with self._lock:
                self.open -= 1

    def _perhaps_die(self, side: Side, name: str) -> None:
        death = self.plan.death
        if death is None or (death.side, death.point) != (side, name):
            return
        with suppress(FileNotFoundError):
            death.trigger.unlink()
            os.kill(os.getpid(), signal.SIGSTOP if death.freeze else signal.SIGKILL)
            os.write(self._trace, f"{CONTINUED}\n".encode())


def _role() -> str:
    """What the calling thread is for."""
    name = threading.current_thread().name
    return next((role for start, role in _ROLES.items() if name.startswith(start)), "turn")


def read_trace(path: Path) -> list[str]:
    """The points of a trial, in the order of the passing; none if there were none."""
    return path.read_text().splitlines() if path.exists() else []
