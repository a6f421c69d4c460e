"""What a forked child is: a worker, the process of a suspect run, or a client. Real ones, with points in them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import adjourn.worker.process.sweep_loop as sweep_loop
from adjourn import Client
from adjourn.store.postgres.database import Database
from adjourn.tasks.host.services import Services
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.tasks.lifecycle.sweep import Round, SweepReport
from adjourn.worker.broker import brokers
from adjourn.worker.broker.resume_consumer import ResumeConsumer
from adjourn.worker.config.settings import load_settings
from adjourn.worker.process import assembly
from adjourn.worker.process import quarantine as quarantine
from adjourn.worker.process import quarantined_run as isolated
from adjourn.worker.process.worker_process import WorkerProcess
from tests.crash import ledger, taps
from tests.crash.forkserver import ForkedProcess, Program
from tests.crash.mutations import MUTATIONS
from tests.crash.points import Plan, Points
from tests.waiting import wait_until

# Untyped, for what is in them is replaced.
_assembly: Any = assembly
_brokers: Any = brokers
_quarantine: Any = quarantine
_sweep_loop: Any = sweep_loop
_Reader: Any = ResumeConsumer

RESTORE_SECONDS: Final = 0.2
"""How often a broker's abandoned messages are looked for; five seconds would make every trial as long."""

# What the driver says, and hears once it is so.
READY: Final = "ready"
COUNT: Final = "count"
SWEEP: Final = "sweep"
SWEEP_BY_CLOCK: Final = "sweep by the clock"
QUIET: Final = "quiet"
JUDGED: Final = "judged"


def worker(
    descriptors: list[int],
    *,
    environment: dict[str, str],
    log: str,
    plan: dict[str, Any],
    sweeps: bool,
    mutation: str | None,
    server: str,
) -> NoReturn:
    """A whole worker process, obeying the driver at the other end of the first descriptor.

    `sweeps` lets its sweep run by the clock; else it sweeps when it is told to, so that what a
    sweep does is the same in each trial.
    """
    points, deliveries = _become("worker", environment, log, plan, mutation)
    process = WorkerProcess(load_settings())
    gate = SweepGate(open=sweeps)

    def fork_suspect(command: list[str], pass_fds: tuple[int], stdin: int, env: dict[str, str]) -> ForkedProcess:
        run_id = command[-2]
        apart = {**plan, "from_start": True}
        args = {"run_id": run_id, "environment": _ours(env), "log": log, "plan": apart, "mutation": mutation}
        return ForkedProcess(Path(server), "isolated", args, pass_fds)

    # Everything that a suspect's process is, but for the second that an interpreter takes to start.
    _quarantine.subprocess = _Subprocess(fork_suspect)
    Control(descriptors[0], points, deliveries, process, gate).start()
    raise SystemExit(process.run())


def isolated_run(
    descriptors: list[int],
    *,
    run_id: str,
    environment: dict[str, str],
    log: str,
    plan: dict[str, Any],
    mutation: str | None,
) -> NoReturn:
    """The process of one suspect run."""
    _become("isolated", environment, log, plan, mutation)
    isolated.main(run_id, descriptors[0])


def client(
    descriptors: list[int],
    *,
    environment: dict[str, str],
    log: str,
    plan: dict[str, Any],
    mutation: str | None,
    method: str,
    args: dict[str, Any],
) -> None:
    """A program that calls one method of a client, and ends."""
    _become("client", environment, log, plan, mutation)
    with Client(load_settings()) as made:
        getattr(made, method)(**args)


PROGRAMS: Final[dict[Program, Callable[..., None]]] = {"worker": worker, "isolated": isolated_run, "client": client}


def _become(
    program: Program, environment: dict[str, str], log: str, plan: dict[str, Any], mutation: str | None
) -> tuple[Points, taps.Deliveries]:
    """Take on the settings, break what is to be broken, and then tap the points."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    # So that the driver can end what its workers have started.
    with Path(log).with_suffix(".pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    os.environ.update(environment)
    _brokers.RESTORE_SECONDS = RESTORE_SECONDS
    if mutation is not None:
        MUTATIONS[mutation].apply()
    # So that the driver can tell when Postgres has done with a process that was killed.
    _assembly.Database = partial(Database, application_name=application_name(os.getpid()))
    points = Points(program, Plan.model_validate(plan))
    ledger.around = points
    return points, taps.install(points)


def application_name(pid: int) -> str:
    """What a process under trial is called in Postgres."""
    return f"crash {pid}"


def _ours(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("ADJOURN_")}


class _Subprocess:
    """The module `subprocess` as the keeper of suspects uses it."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, fork: Callable[..., ForkedProcess]) -> None:
        self.Popen = fork


class SweepGate:
    """Stands before every sweep of this process."""

    def __init__(self, open: bool) -> None:
        self.open = open
        self._tickets = threading.Semaphore(0)
        self.wanted = 0
        """Sweeps that were asked for and are not done."""
        self._sweep: Callable[[Services, Round], SweepReport] = _sweep_loop.sweep
        _sweep_loop.sweep = self._pass

    def once(self) -> None:
        self.wanted += 1
        self._tickets.release()

    def _pass(self, services: Services, round: Round) -> SweepReport:
        if self.open:
            return self._sweep(services, round)
        if not self._tickets.acquire(blocking=False):
            return SweepReport()
        try:
            return self._sweep(services, round)
        finally:
            self.wanted -= 1


class Control:
    """Says when the worker is ready, and does what the driver says, in a thread that passes no point."""

    def __init__(
        self, descriptor: int, points: Points, deliveries: taps.Deliveries, process: WorkerProcess, gate: SweepGate
    ) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._points, self._deliveries, self._process, self._gate = points, deliveries, process, gate
        self._reading = threading.Event()
        self._tap_ready()

    def start(self) -> None:
        threading.Thread(target=self._obey, name="trial-control", daemon=True).start()

    def _obey(self) -> None:
        self._reading.wait()
        self._say(READY)
        for line in self._socket.makefile("r"):
            word = line.strip()
            if word == COUNT:
                self._points.count()
            elif word == SWEEP:
                self._gate.once()
            elif word == SWEEP_BY_CLOCK:
                self._gate.open = True
            elif word == QUIET:
                wait_until(self._quiet)
            elif word == JUDGED:
                wait_until(lambda: not self._deliveries.held(RESUME_QUEUE))
            self._say(word)

    def _say(self, word: str) -> None:
        self._socket.sendall(f"{word}\n".encode())

    def _quiet(self) -> bool:
        """Nothing is held, nothing is being done, nobody is in line."""
        suspects_in_line = self._process._quarantine._in_line
        return not (self._deliveries.held() or self._points.open or self._gate.wanted or suspects_in_line)

    def _tap_ready(self) -> None:
        """Ready is who reads answers: that comes last."""
        begin = _Reader.on_consume_ready

        def on_consume_ready(consumer: Any, *args: Any, **options: Any) -> None:
            begin(consumer, *args, **options)
            self._reading.set()

        _Reader.on_consume_ready = on_consume_ready
