"""What a lane is: one peer, in its worker processes, with the driver's side of it in this one.

All lanes are up during the whole run and are driven one after the other, slice by slice, so that
whatever else the machine does meets them all. Owns processes and the closed loop; knows no peer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Servers

ROOT = Path(__file__).parent.parent
PROCESSES = 2
"""Worker processes of every peer."""
THREADS = 16
"""Threads of each, where a peer runs in threads: 32 in flight over two processes."""
STOP_SECONDS = 30
EVENT_SECONDS = 30
"""Without news for this long, a lane has stalled."""


class StalledError(Exception):
    """A lane gave no sign of life in time, or one of its workers died; the message holds the end of its log."""


@dataclass(frozen=True)
class Event:
    """What a driver learns: a run has parked (`id` is what an answer has to name), or has ended well."""

    parked: bool
    id: str


@dataclass(frozen=True)
class Command:
    """How to start one worker process."""

    arguments: Sequence[str]
    environment: dict[str, str]


class Lane(ABC):
    """One peer in one way of hosting it."""

    peer: str
    hosting: str
    database: str

    def __init__(self, servers: Servers, logs: Path) -> None:
        self.servers = servers
        self._logs = logs
        self._workers: list[subprocess.Popen[bytes]] = []
        self._files: list[Path] = []
        self.timing = False
        """Whether the time from answer to re-entry is wanted. Where reporting it takes a round trip of its
        own it is left out otherwise."""

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.hosting}"

    # --- what a peer has to say ------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> Sequence[Command]:
        """Make fresh databases, open what the driver needs, and say which workers to start."""

    @abstractmethod
    def begin(self) -> None:
        """Start one run."""

    @abstractmethod
    def answer(self, parked: str) -> None:
        """Answer a run that has parked; the answer carries the monotonic time, in nanoseconds."""

    @abstractmethod
    def hear(self, seconds: float) -> Sequence[Event]:
        """What happened since; waits up to `seconds` for a first event."""

    @abstractmethod
    def latencies(self) -> list[float]:
        """Seconds from answers to re-entries, of all since last asked."""

    @abstractmethod
    def close(self) -> None:
        """Close what the driver holds."""

    # --- processes -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; `until_ready` waits for them."""
        for number, command in enumerate(self.prepare()):
            file = self._logs / f"{self.peer}-{self.hosting.replace(' ', '-')}-{number}.log"
            self._files.append(file)
            with file.open("wb") as log:
                self._workers.append(
                    subprocess.Popen(
                        list(command.arguments),
                        env={**os.environ, "PYTHONPATH": str(ROOT), **command.environment},
                        cwd=ROOT,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )

    def stop(self) -> None:
        """End the workers and close the driver's connections. Harmless when already stopped."""
        if not self._workers:
            return
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._workers.clear()
        self.close()

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    # --- driving ---------------------------------------------------------------------------

    def drive(self, in_flight: int, go_on: Callable[[int], bool]) -> float:
        """Whole cycles with `in_flight` runs at once, in a closed loop; returns cycles per second.

        A run that ends is replaced by another while `go_on(cycles done)`; the loop ends when none is left.
        """
        began = time.monotonic()
        done, live = 0, 0
        for _ in range(in_flight):
            self.begin()
            live += 1
        while live:
            for event in self._news():
                if event.parked:
                    self.answer(event.id)
                    continue
                done, live = done + 1, live - 1
                if go_on(done):
                    self.begin()
                    live += 1
        return done / (time.monotonic() - began)

    def drive_for(self, seconds: float, in_flight: int) -> float:
        until = time.monotonic() + seconds
        return self.drive(in_flight, lambda _: time.monotonic() < until)

    def drive_cycles(self, cycles: int, in_flight: int = 1) -> float:
        return self.drive(in_flight, lambda done: done + in_flight <= cycles)

    def reentries(self, runs: int, in_flight: int, pause_seconds: float) -> list[float]:
        """Seconds from answer to re-entry when nothing else is going on: one after the other, with pauses."""
        parked: list[str] = []
        while len(parked) < runs:
            batch = min(in_flight, runs - len(parked))
            for _ in range(batch):
                self.begin()
            wanted = len(parked) + batch
            while len(parked) < wanted:
                parked += [event.id for event in self._news() if event.parked]
        self.timing = True
        self.latencies()
        for one in parked:
            time.sleep(pause_seconds)
            self.answer(one)
            while not any(not event.parked for event in self._news()):
                pass
        self.timing = False
        return self.latencies()

    def _news(self) -> Sequence[Event]:
        news = self.hear(EVENT_SECONDS)
        if news or all(worker.poll() is None for worker in self._workers):
            if not news:
                raise StalledError(self._complaint("nothing happened"))
            return news
        raise StalledError(self._complaint("a worker ended"))

    def _complaint(self, what: str) -> str:
        ends = [file.read_text(errors="replace")[-2000:] for file in self._files]
        return "\n".join([f"{self.name}: {what} in {EVENT_SECONDS} s; the end of its logs:", *ends])
