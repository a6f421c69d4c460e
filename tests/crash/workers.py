"""The workers of one trial: one of them is stopped at one point, and a new one is started whenever one has died."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import psutil  # type: ignore[import-untyped]

from tests.crash.forkserver import ForkServer
from tests.crash.lanes import Lane
from tests.crash.points import Death, Plan
from tests.crash.programs import COUNT, QUIET, READY, SWEEP, SWEEP_BY_CLOCK, application_name
from tests.crash.worker_process import Worker
from tests.waiting import LIMIT_SECONDS

T = TypeVar("T")

PATIENCE_SECONDS: Final = LIMIT_SECONDS
"""What takes longer does not move any more. Everything takes well under a second on a quiet machine."""
POLL_SECONDS: Final = 0.01
STILL_LOOKS: Final = 5
"""So often in a row nothing is seen to run: a statement that has just arrived may not have begun."""


class StalledError(Exception):
    """What was waited for does not come."""


class Workers:
    """The worker processes of one trial, one after the other.

    The first is one that dies as `died_before` says, or by itself if
    `dies_before`; the one under `plan`; and then as many as it takes, which sweep by the clock. With another
    `victim` than `worker` the plan is that of a client, and the worker has none.
    """

    def __init__(
        self,
        server: ForkServer,
        lane: Lane,
        folder: Path,
        plan: Plan,
        *,
        died_before: Death | None = None,
        dies_before: bool = False,
        victim: str = "worker",
        mutation: str | None = None,
        tuning: Mapping[str, float] = MappingProxyType({}),
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.lane = lane
        self.faults: list[str] = []
        """What the driver itself saw go wrong."""
        self._server, self._plan, self._patience = server, plan, patience
        self._log = folder / "processes.log"
        settings = lane.settings.model_copy(update={"tuning": lane.settings.tuning.model_copy(update=dict(tuning))})
        self._settings = settings
        self._args = {"environment": settings.as_environment(), "log": str(self._log), "mutation": mutation}
        bystander = Plan(trace=folder / "bystanders.trace")
        self._coming: list[tuple[Plan, bool]] = []
        if died_before is not None or dies_before:
            self._coming.append((bystander.model_copy(update={"death": died_before}), False))
        if victim == "worker":
            self._coming.append((plan, False))
        self._healer = (bystander, True)
        self._workers: list[Worker] = []
        self._frozen: list[Worker] = []
        self._interruptions = 0

    def close(self) -> None:
        """End every process of this trial."""
        for worker in self._workers:
            worker.kill()
        for pid in self._log.with_suffix(".pids").read_text().split() if self._workers else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def begin(self) -> None:
        """Start the first worker, if there is none yet."""
        if not self._workers:
            self._next_worker()

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait for something true, with a new worker whenever one has died. Raises `StalledError`."""
        deadline = time.monotonic() + self._patience
        pause = threading.Event()
        self.begin()
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise StalledError(what)
            self._tend()
            pause.wait(POLL_SECONDS)
        return value

    def _tend(self) -> None:
        self.lane.publisher.collect()
        worker = self._workers[-1]
        if worker.dead:
            self._await_backends(worker)
            code = worker.process.returncode
            if code not in (0, -signal.SIGKILL):
                self.faults.append(f"a worker ended with {code}")
        elif self._is_frozen(worker):
            self._await_still(worker)
            self._frozen.append(worker)
        else:
            if self._frozen:
                self.lane.give_back()  # a frozen reader still takes one message from each of its queues
            elif self._struck_elsewhere() and not worker.said(SWEEP_BY_CLOCK):
                worker.say(SWEEP_BY_CLOCK)
            return
        self._interruptions += 1
        self.lane.pass_time()
        self._next_worker()

    def _is_frozen(self, worker: Worker) -> bool:
        """Whether this is the worker under trial, and it was frozen; only once."""
        death = self._plan.death
        if worker.plan is not self._plan or worker in self._frozen:
            return False
        return death is not None and death.freeze and not death.trigger.exists()

    def _next_worker(self) -> None:
        """Start the next one and wait until it is ready, or dead."""
        after_a_death = bool(self._workers)
        plan, sweeps = self._coming.pop(0) if self._coming else self._healer
        worker = Worker(self._server, self._args, plan, sweeps=sweeps)
        self._workers.append(worker)
        self._await_word(worker, READY, 1)
        if not (sweeps or plan.from_start):
            self._await_leftovers(worker)
        worker.say(COUNT)
        self._await_word(worker, COUNT, 1)
        if after_a_death:
            self._sweep_once(worker)

    def _await_backends(self, worker: Worker) -> None:
        """A claim that commits after the clock was moved would hold its run for a whole lease."""
        deadline = time.monotonic() + self._patience
        pause = threading.Event()
        while self.lane.is_connected(application_name(worker.process.pid)):
            if time.monotonic() > deadline:
                raise StalledError("Postgres to notice the death of a worker")
            pause.wait(POLL_SECONDS)

    def _await_still(self, worker: Worker) -> None:
        """As above: another thread of it may have sent a claim just before all of them were stopped."""
        deadline = time.monotonic() + self._patience
        pause = threading.Event()
        process, still = psutil.Process(worker.process.pid), 0
        while still < STILL_LOOKS:
            stopped = process.status() == psutil.STATUS_STOPPED
            still = still + 1 if stopped and not self.lane.is_busy(application_name(process.pid)) else 0
            if time.monotonic() > deadline:
                raise StalledError("Postgres to be done with a worker that was stopped")
            pause.wait(POLL_SECONDS)

    def _await_leftovers(self, worker: Worker) -> None:
        """What the worker before had taken comes back when it likes, and is no part of what is counted."""
        deadline = time.monotonic() + self._patience
        while self.lane.waiting() or self.lane.unsettled() or not self._hears(QUIET):
            if worker.dead:
                return
            if time.monotonic() > deadline:
                raise StalledError("what a dead worker had taken")

    def _sweep_once(self, worker: Worker) -> None:
        if not worker.sweeps:
            count = worker.said(SWEEP)
            worker.say(SWEEP)
            self._await_word(worker, SWEEP, count + 1)

    def _hears(self, word: str) -> bool:
        """Whether the worker comes to say that it is so; not if it dies first."""
        worker = self._workers[-1]
        count = worker.said(word)
        worker.say(word)
        return self._await_word(worker, word, count + 1)

    def _await_word(self, worker: Worker, word: str, count: int) -> bool:
        """Whether the worker says it; not if it dies or freezes first."""
        deadline = time.monotonic() + self._patience
        pause = threading.Event()
        while worker.said(word) < count:
            if worker.dead or self._is_frozen(worker):
                return False
            if time.monotonic() > deadline:
                raise StalledError(f"a worker to say {word!r}")
            pause.wait(POLL_SECONDS)
        return True

    def _struck_elsewhere(self) -> int:
        """Whether the process of a suspect run was killed, which the worker sees to by itself."""
        death = self._plan.death
        return int(death is not None and death.point.startswith("isolated") and not death.trigger.exists())
