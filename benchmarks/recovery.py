"""`python -m benchmarks.recovery [--quick] [--json FILE]`: how long things take to go on after a part has failed.

Real servers and real workers. Each failure is made with the settings that Adjourn comes with, and with short
leases; `--quick` leaves out the first, which take several minutes. All times are in seconds, from the failure to
what the line says. The exit code is 0 if everything went on, and what has a limit within it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adjourn import Answer, Client, RunHandle
from adjourn.schemas.errors import StoreUnavailableError, WaitTimeoutError
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.store.migrations import upgrade
from adjourn.worker.config.settings import Settings
from adjourn.worker.dev.processes import WorkerChild
from benchmarks.breakable import Breakable, breakable_servers
from benchmarks.figures import short, table
from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude

WORKERS: Final = 2
IN_FLIGHT: Final = 10
UNDER_LOAD: Final = 600
LIMIT_SECONDS: Final = 300.0
FREEZES: Final = (10.0, 60.0)
AWAY_SECONDS: Final = 5.0
DROPS: Final = 3
POLL_SECONDS: Final = 0.05
SHORT: Final[dict[str, float]] = {"lease_seconds": 5, "sweep_seconds": 1, "wakeup_retry_seconds": 5}
ACCEPTABLE_SECONDS: Final = 30.0
"""What may pass after a Redis that hangs, or connections that drop, before work goes on."""


@dataclass(frozen=True)
class Took:
    """One failure, and how long it took until `until`. `limit` is what it may take at most, where that is promised."""

    failure: str
    until: str
    seconds: float
    limit: float | None = None

    @property
    def met(self) -> bool:
        return self.limit is None or self.seconds <= self.limit

    @property
    def line(self) -> str:
        return f"{self.failure}: {self.until}"

    @property
    def shown(self) -> str:
        return short(self.seconds) + (f" (more than {self.limit:g})" if not self.met else "")


class Site:
    """Servers, two workers, and a client."""

    def __init__(self, servers: Breakable, settings: Settings, logs: Path) -> None:
        self.servers = servers
        self.client = Client(settings)
        self._settings = settings
        self._logs = logs
        self._numbers = iter(range(1000))
        self.workers = [self._worker() for _ in range(WORKERS)]
        for _ in self.workers:
            self.client.wait(self.parked().id, timeout=LIMIT_SECONDS)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.client.close()

    def parked(self) -> Run:
        """A run that waits for an answer."""
        run = self.client.start("asker", "go")
        return self.client.wait(run.id, until=["parked"], timeout=LIMIT_SECONDS)

    def answered(self, run: Run) -> None:
        """Answer a parked run over the resume queue, again until the receipt comes, and see it to its end."""
        (action,) = self.client.pending(run_id=run.id)
        answer = Answer(action_id=action.id, answer_id="one", data={"approved": True})
        _again(lambda: self.client.publish(answer, timeout=2))
        self.ended(run)

    def ended(self, *runs: Run | RunHandle) -> None:
        for run in runs:
            self._until(run, "completed")

    def turn(self) -> None:
        """Start a run, and see its first turn recorded."""
        self._until(_again(lambda: self.client.start("asker", "go")), "parked")

    def _until(self, run: RunHandle, status: RunStatus) -> None:
        _again(lambda: self.client.wait(run.id, until=[status], timeout=LIMIT_SECONDS))

    def working(self, count: int) -> list[RunHandle]:
        """So many runs whose tools are at work."""
        runs = [self.client.start("worker", "go") for _ in range(count)]
        _until(lambda: all(any(i.body.kind == "response" for i in self.client.items(run.id)) for run in runs))
        return runs

    def signal_workers(self, sign: signal.Signals) -> None:
        for worker in self.workers:
            os.kill(worker.pid, sign)

    def replace(self, worker: WorkerChild) -> None:
        worker.kill()
        self.workers[self.workers.index(worker)] = self._worker()

    def _worker(self) -> WorkerChild:
        return WorkerChild(self._settings, self._logs / f"worker-{next(self._numbers)}.log")


@contextmanager
def site(folder: Path, tuning: dict[str, float]) -> Iterator[Site]:
    with breakable_servers(folder / "servers") as servers:
        upgrade(servers.database_url)
        named = {"database_url": servers.database_url, "redis_url": servers.redis_url}
        settings = Settings.model_validate({**named, "app": "benchmarks.recovery_app:app", "tuning": tuning})
        made = Site(servers, settings, folder)
        try:
            yield made
        finally:
            made.close()


# --- failures ----------------------------------------------------------------------------------


def worker_killed(at: Site) -> Iterator[Took]:
    """One of two, with turns in flight."""
    runs = at.working(IN_FLIGHT)
    began = time.monotonic()
    at.replace(at.workers[0])
    at.ended(*runs)
    yield Took(f"one of two workers killed, {IN_FLIGHT} tools at work", "their runs ended", _since(began))


def broker_lost(at: Site) -> Iterator[Took]:
    waiting = at.parked()
    began = time.monotonic()
    at.servers.valkey.kill()
    at.servers.forget()
    at.servers.valkey.start()
    at.servers.valkey.wait_until_ready()
    at.answered(waiting)
    yield Took("Valkey killed and restarted empty", "the next answer took effect", _since(began))


def database_restarted(at: Site) -> Iterator[Took]:
    runs = at.working(IN_FLIGHT)
    began = time.monotonic()
    at.servers.postgres.kill(signal.SIGQUIT)
    at.servers.postgres.start()
    at.servers.postgres.wait_until_ready()
    yield Took("PostgreSQL restarted in immediate mode", "it answers again", _since(began))
    at.turn()
    yield Took("PostgreSQL restarted in immediate mode", "the next turn was recorded", _since(began))
    at.ended(*runs)
    yield Took(f"the same, {IN_FLIGHT} tools at work", "their runs ended", _since(began))


def database_away(at: Site) -> Iterator[Took]:
    """For longer than what is in flight: it cannot be recorded, and is taken up again."""
    runs = at.working(IN_FLIGHT)
    at.servers.postgres.kill(signal.SIGQUIT)
    threading.Event().wait(AWAY_SECONDS)
    began = time.monotonic()
    at.servers.postgres.start()
    at.servers.postgres.wait_until_ready()
    at.ended(*runs)
    yield Took(f"PostgreSQL away for {AWAY_SECONDS:g} s, {IN_FLIGHT} tools at work", "their runs ended", _since(began))


def redis_frozen(at: Site) -> Iterator[Took]:
    for seconds in FREEZES:
        waiting = at.parked()
        at.servers.valkey.freeze()
        threading.Event().wait(seconds)
        at.servers.valkey.thaw()
        began = time.monotonic()
        at.answered(waiting)
        yield Took(
            f"Valkey frozen for {seconds:g} s",
            "the next answer took effect (from the thaw)",
            _since(began),
            ACCEPTABLE_SECONDS,
        )


def connections_dropped(at: Site) -> Iterator[Took]:
    waiting = at.parked()
    with at.servers.redis() as client:
        for _ in range(DROPS):
            client.client_kill_filter(_type="normal", skipme=True)
            threading.Event().wait(1)
    began = time.monotonic()
    at.answered(waiting)
    yield Took(
        f"{DROPS} times all Redis connections dropped", "the next answer took effect", _since(began), ACCEPTABLE_SECONDS
    )


def flushed_under_load(at: Site) -> Iterator[Took]:
    """With runs in flight, and with more on the queue than the workers could have taken by then."""
    runs = at.working(IN_FLIGHT)
    at.signal_workers(signal.SIGSTOP)
    runs += [at.client.start("worker", "go") for _ in range(UNDER_LOAD - IN_FLIGHT)]
    began = time.monotonic()
    with at.servers.redis() as client:
        client.flushall()
    at.signal_workers(signal.SIGCONT)
    at.ended(*runs)
    yield Took(f"FLUSHALL with {UNDER_LOAD} runs queued or in flight", "all of them ended", _since(began))


FAILURES: Final = (
    worker_killed,
    broker_lost,
    database_restarted,
    database_away,
    redis_frozen,
    connections_dropped,
    flushed_under_load,
)


# --- waiting -----------------------------------------------------------------------------------


def _since(began: float) -> float:
    return time.monotonic() - began


def _again(attempt: Callable[[], Any]) -> Any:
    """Try until it comes off: what is being measured is when it does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return attempt()
        except (OSError, StoreUnavailableError, WaitTimeoutError):
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(POLL_SECONDS)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the runs did not come to where they were wanted")
        threading.Event().wait(POLL_SECONDS)


# --- the command -------------------------------------------------------------------------------


def measure(tuning: dict[str, float], say: Callable[[str], None]) -> tuple[list[Took], list[str]]:
    """All failures, one after the other, on one site. Also says after which of them something did not go on."""
    folder = Path(tempfile.mkdtemp(prefix="adjourn-recovery-"))
    # Run by root, PostgreSQL is somebody else, who has to pass through.
    folder.chmod(0o711)
    took: list[Took] = []
    stuck: list[str] = []
    with site(folder, tuning) as at:
        for failure in FAILURES:
            say(f"{failure.__name__.replace('_', ' ')} ...")
            try:
                for one in failure(at):
                    took.append(one)
                    say(f"  {one.failure}: {one.until} after {short(one.seconds)} s")
            except (WaitTimeoutError, TimeoutError) as error:
                stuck.append(f"{failure.__name__.replace('_', ' ')}: {error}")
                say(f"  {error}")
    if not stuck:
        shutil.rmtree(folder)
    return took, stuck


def rows_of(results: dict[str, list[Took]]) -> list[tuple[str, ...]]:
    """One line per failure, one column per choice of settings; a dash where it did not come to it."""
    seconds = {(name, one.line): one.shown for name, took in results.items() for one in took}
    lines = dict.fromkeys(line for _, line in seconds)
    return [(line, *(seconds.get((name, line), "-") for name in results)) for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short leases only")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    watch = Stopwatch()
    choices = {"short leases": SHORT} if options.quick else {"as it comes": {}, "short leases": SHORT}
    measured = {name: measure(tuning, _say) for name, tuning in choices.items()}
    results = {name: took for name, (took, _) in measured.items()}
    head = ("seconds until work goes on", *results)
    rows = rows_of(results)
    print(table(head, rows))
    slow = [f"{one.line}: {one.shown} s" for took in results.values() for one in took if not one.met]
    summary = watch.summary(
        command_line("benchmarks.recovery", arguments),
        "Recovery times",
        {"failures": len(FAILURES) * len(choices), "times measured": sum(map(len, results.values()))},
        findings=[*slow, *(f"{name}: {one}" for name, (_, stuck) in measured.items() for one in stuck)],
        tables=[Table(name="Seconds until work goes on", head=head, rows=tuple(rows))],
    )
    return conclude(summary, options.json)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
