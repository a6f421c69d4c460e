"""Drives runs in a test, pass by pass, on one scratch database and one Redis.

Owns which build drives which run, when a pass is made, and what the time is. A pass is made of each run that
is due, until none is: after a start, an answer, and a move of the clock. Nothing happens in between, so a
test needs no waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from pydantic import SecretStr

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Answer, Receipt
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp, WhenBusy
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.store.scratch import DueRun, due, move_clock
from adjourn.tasks.blocks.app import App
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.sweep import sweep
from adjourn.tasks.models.protocol import Model
from adjourn.testing.builds import Build
from adjourn.testing.passes import Crash, NoWakeUps, drive_here, drive_in_a_process
from adjourn.testing.run import DrivenRun
from adjourn.worker.client.client import Client
from adjourn.worker.config.settings import Settings

_AFTER_THE_LEASE: Final = 1.0
"""Seconds by which a dead process's lease is over when it is looked for."""


class Runner:
    """Drives runs of apps on the scratch database at `database_url`, with `tuning` for its numbers.

    Each pass is made as a process makes it that has just started: with new services, in a new thread, and, of
    an app that is given as its import path (`"reports:app"`), in a new process, so that code that keeps
    something between passes is found out. Close it, or use it in `with`. Raises `StoreUnavailableError`.
    """

    def __init__(self, database_url: str, redis_url: str, *, tuning: Tuning = Tuning()) -> None:
        self.settings = Settings(
            database_url=SecretStr(database_url), redis_url=SecretStr(redis_url), broker_url=None, tuning=tuning
        )
        """The deployment, for a `Client` of the test's own."""
        self.runs: list[DrivenRun] = []
        """All runs of this runner, in the order of their starts."""
        self._redis = connect(redis_url)
        self._db = Database(database_url, tuning, application_name="adjourn-test")
        self._door = Door(
            store=PostgresStore(self._db),
            parking=Parking(self._redis, self._db.signing_key),
            events=Events(self._redis, self._db.signing_key),
            wakeups=NoWakeUps(),
            tuning=tuning,
            app=None,
        )
        self._builds: dict[str, Build] = {}
        self._crash: Crash | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._door.events.close()
        self._db.dispose()
        self._redis.close()

    # --- runs ------------------------------------------------------------------------------

    def start(
        self,
        app: App | str,
        block: str,
        message: Any,
        *,
        models: Mapping[str, Model | str] | None = None,
        thread_id: str | None = None,
        limits: Limits | None = None,
        when_busy: WhenBusy = "refuse",
    ) -> DrivenRun:
        """Start a run of an agent, or another block, and drive it until it waits or has ended.

        `models` takes the place of the models of agents, by the agents' names; the app is left as it is. An
        agent whose model is a provider's name, and is not among them, fails its run: no provider is asked. The
        rest is as `Client.start` takes it, and raises.
        """
        build = Build(app, models or {})
        started = self._client(build).start(block, message, thread_id=thread_id, limits=limits, when_busy=when_busy)
        return self._driven(started.id, build)

    def adopt(self, app: App | str, run_id: str, *, models: Mapping[str, Model | str] | None = None) -> DrivenRun:
        """Drive a run that code under test has started, with a `Client(runner.settings)`. Raises `NotFoundError`."""
        return self._driven(run_id, Build(app, models or {}))

    def settle(self) -> None:
        """Make passes until no run of this runner is due. Needed only after what was done past the runner."""
        before: list[DueRun] = []
        while found := [each for each in due(self._db) if self._has_build(each)]:
            if found == before:
                raise AssertionError(f"passes over {', '.join(each.wakeup.run_id for each in found)} change nothing")
            for each in found:
                self._make_pass(each.wakeup)
            before = found

    def _has_build(self, due_run: DueRun) -> bool:
        """Whether it is a run of this runner; one that such a run has started is, and has the same build."""
        run_id, parent = due_run.wakeup.run_id, due_run.parent_run_id
        if run_id not in self._builds and parent in self._builds:
            self._builds[run_id] = self._builds[parent]
        return run_id in self._builds

    def _make_pass(self, wakeup: WakeUp) -> None:
        build = self._builds[wakeup.run_id]
        drive = drive_in_a_process if build.has_processes else drive_here
        ending = drive(self.settings, build, wakeup, self._crash)
        if ending == "at the crash":
            self._crash = None
        if ending != "in order":
            # Let the lease of the dead process run out, and have its run found.
            move_clock(self._db, self._door.tuning.lease_seconds + _AFTER_THE_LEASE)
            sweep(self._door)

    # --- time and death ----------------------------------------------------------------------

    def pass_time(self, time: timedelta) -> None:
        """Let time pass, at once: the clock of the database is moved on, and what is due by then is done.

        It is one step: deadlines within it pass together, and a wait that they lead to opens at its end.
        """
        if time < timedelta(0):
            raise ValueError(f"time does not go back: {time}")
        move_clock(self._db, time.total_seconds())
        sweep(self._door)
        self.settle()

    @contextmanager
    def crash_before(
        self, *, output: str | None = None, memo: str | None = None, wait: str | None = None
    ) -> Iterator[None]:
        """Within this, let one process die just before it records one thing, and another take over.

        `output` is a tool whose body has come to its end; `memo` is the key of a `run_once` whose function has;
        `wait` is the name of a wait. Name one. The body has done what it does, and nobody knows: it is what a
        worker that is killed there leaves behind, so the body may run again. The lease of the dead process has
        to run out, which moves the clock on by about a minute.

        What is named has to come: `AssertionError` if it did not. Where a pass is a process of its own, it is
        killed; else it only loses its claim: calls beside it go on to their own ends, unrecorded too.
        """
        __tracebackhide__ = True
        named = {"output": output, "memo": memo, "wait": wait}
        chosen = [Crash(kind, of) for kind, of in named.items() if of is not None]  # type: ignore[arg-type]
        if len(chosen) != 1:
            raise ValueError("name one of output=, memo= and wait=")
        (self._crash,) = chosen
        try:
            yield
            if self._crash is not None:
                timelines = "\n\n".join(run.timeline for run in self.runs)
                raise AssertionError(f"{self._crash} never came\n\n{timelines}")
        finally:
            self._crash = None

    # --- for the runs ------------------------------------------------------------------------

    def build_of(self, run_id: str) -> Build:
        """What drives a run."""
        return self._builds[run_id]

    def client_of(self, run_id: str) -> RunnerClient:
        """A client that has the code of a run at hand."""
        return self._client(self._builds[run_id])

    def use(self, run_id: str, app: App | str, models: Mapping[str, Model | str] | None) -> None:
        """Drive a run with another build from now on."""
        self._builds[run_id] = Build(app, models or {})

    def _client(self, build: Build) -> RunnerClient:
        return RunnerClient(self, replace(self._door, app=build.load()))

    def _driven(self, run_id: str, build: Build) -> DrivenRun:
        self._builds[run_id] = build
        run = DrivenRun(self, self.client_of(run_id).get_run(run_id))
        self.runs.append(run)
        self.settle()
        return run


class RunnerClient(Client):
    """The client that programs use, on the connections of a runner. Whatever it answers, the runner goes on."""

    def __init__(self, runner: Runner, door: Door) -> None:
        super().__init__(runner.settings, app=door.app)
        self._door = door
        self._runner = runner

    def send_answer(self, answer: Answer) -> Receipt:
        """Give an answer that is made already. Raises `AnswerRefusedError`."""
        return self._send(True, **{name: getattr(answer, name) for name in answer.model_fields_set})

    def _send(self, raise_on_refusal: bool, *, identity: str | None = None, **fields: Any) -> Receipt:
        try:
            return super()._send(raise_on_refusal, identity=identity, **fields)
        finally:
            self._runner.settle()  # even an answer that comes too late may have woken its run
