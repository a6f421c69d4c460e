"""One worker process: what it is made of, how it starts, and how it stops without losing a turn.

Starts the parts that its roles name, and owns the shutdown: Celery's pool of threads would wait
for its turns for ever, so the deadline is kept here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

import structlog
from celery import signals
from celery.platforms import EX_OK
from celery.worker import state as celery_state
from kombu.asynchronous import get_event_loop

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.services import Door, Services
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.worker.broker.celery_app import WakeUpCelery, make_celery
from adjourn.worker.broker.resume_consumer import ResumeConsumer
from adjourn.worker.config.settings import Settings, unknown_variables
from adjourn.worker.process.assembly import build_door, build_services, close_services, tune_gc
from adjourn.worker.process.checks import check
from adjourn.worker.process.logs import configure
from adjourn.worker.process.quarantine import Quarantine
from adjourn.worker.process.sweep_loop import SweepLoop
from adjourn.worker.process.wakeup_tasks import register

log = structlog.get_logger(__name__)

WAKEUP_CHANNEL: Final = "wakeups"
STORE_RETRY_SECONDS: Final = 1.0
"""Between two looks of one slot at a store that is away."""
_HURRIED_SECONDS: Final = 2.0
"""What a second signal leaves for giving the turns back; the sweep finds what that does not."""


class Part(Protocol):
    """Something that runs in threads of its own beside the turns."""

    def start(self) -> None: ...

    def request_stop(self) -> None:
        """Begin nothing new. Returns at once."""

    def stop(self) -> None:
        """Request it, and wait a moment for the end."""


class WorkerProcess:
    """The parts of one worker process.

    `settings` may be a function, which is asked when something is first needed of them.
    """

    def __init__(self, settings: Settings | Callable[[], Settings]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._built: tuple[int, Door] | None = None
        self._parts: list[Part] = []
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._turns_done = threading.Event()
        self._quarantine = Quarantine(lambda: self.settings, self.services)
        self.celery: WakeUpCelery = make_celery(lambda: self.settings)
        self.celery.refuse = self._refuse
        register(self.celery, self._follow)

    @property
    def settings(self) -> Settings:
        if callable(self._settings):
            self._settings = self._settings()
        return self._settings

    def door(self) -> Door:
        """What the parts work with, built on first use in each process: connections do not survive a fork.

        Of a process that drives turns these are `Services`. Raises `ConfigurationError`.
        """
        with self._lock:
            if self._built is None or self._built[0] != os.getpid():
                build = build_services if "turns" in self.settings.roles else build_door
                self._built = (os.getpid(), build(self.settings, CeleryWakeUps(self.celery)))
            return self._built[1]

    def services(self) -> Services:
        """What turns work with. Raises `ConfigurationError`."""
        door = self.door()
        assert isinstance(door, Services), "only a process with the role `turns` takes wake-ups"
        return door

    # --- running -----------------------------------------------------------------------------

    def run(self) -> int:
        """Do what the roles say until a signal comes. Returns the exit code.

        Raises `ConfigurationError`, before anything has started, if something cannot be reached.
        """
        configure(self.settings.log_level)
        for name in unknown_variables(os.environ):
            log.warning("no such setting", name=name)
        check(self.settings)
        self.door()
        if "turns" not in self.settings.roles:
            # Before anything is taken: a signal that comes while the parts start must find them stopped in order.
            self._catch_signals()
            self.start_parts()
            self._stopping.wait()
            self.close()
            return 0
        self.attach()
        worker = self.celery.Worker(loglevel=self.settings.log_level, quiet=True)
        worker.start()
        self.close()
        return int(worker.exitcode or 0)

    def attach(self) -> None:
        """Start and stop the parts along with the Celery worker of this process, whoever starts that."""
        signals.worker_ready.connect(self._on_ready, weak=False)
        signals.worker_shutdown.connect(self._on_shutdown, weak=False)

    def start_parts(self) -> None:
        """Start the readers of the resume queue and the sweep, as the roles say."""
        roles = self.settings.roles
        if "resume" in roles:
            readers = range(self.settings.resume_threads)
            self._parts += [ResumeConsumer(self.settings, self.door) for _ in readers]
        if "sweep" in roles:
            self._parts.append(SweepLoop(self.door))
        for part in self._parts:
            part.start()
        tune_gc()
        log.info("worker ready", roles=",".join(roles), concurrency=self.settings.concurrency)

    def close(self) -> None:
        """Stop the parts and let go of everything. Once the turns are done; a second time does nothing."""
        self._turns_done.set()
        for part in self._parts:
            part.request_stop()
        while self._parts:
            self._parts.pop().stop()
        self._quarantine.stop()
        with self._lock:
            built, self._built = self._built, None
        if built is not None and built[0] == os.getpid():
            close_services(built[1])

    def _on_ready(self, **_: Any) -> None:
        # Only now: Celery has installed handlers of its own, which wait for threads without end.
        self._catch_signals()
        self.start_parts()

    def _on_shutdown(self, **_: Any) -> None:
        self.close()

    # --- shutdown ----------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal ends the taking of work and starts the clock, the second ends that."""
        if self._stopping.is_set():
            self._hurry.set()
            return
        self._stopping.set()
        celery_state.should_stop = EX_OK  # type: ignore[assignment]
        threading.Thread(target=self._exit_by_deadline, name="adjourn-shutdown", daemon=True).start()

    def _exit_by_deadline(self) -> None:
        """Turns that still run at the deadline are given back, so that others go on with them at once."""
        log.info("stopping", allowed_seconds=self.settings.tuning.shutdown_seconds)
        if hub := get_event_loop():
            # Celery looks for the signal once per round of its loop, and sleeps a second in one.
            hub.call_soon(_nothing)
        for part in list(self._parts):
            part.request_stop()
        self._hurry.wait(self.settings.tuning.shutdown_seconds)
        if self._turns_done.is_set() and not self._hurry.is_set():
            return
        giving_back = threading.Thread(target=self._give_back, name="adjourn-give-back", daemon=True)
        giving_back.start()
        giving_back.join(_HURRIED_SECONDS if self._hurry.is_set() else None)
        # Threads cannot be killed. Whatever they still do can write nothing: their claims are gone.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _give_back(self) -> None:
        self._quarantine.stop()
        door = self._built[1] if self._built else None
        if not isinstance(door, Services):
            return
        try:
            wakeups = door.leases.put_back_all()
        except StoreUnavailableError as error:
            log.warning("turns left to the sweep", error=str(error))
            return
        for wakeup in wakeups:
            door.wakeups.publish(wakeup)
        log.info("turns given back", count=len(wakeups))

    # --- what the wake-up queues bring ------------------------------------------------------------

    def _follow(self, wakeup: WakeUp) -> None:
        """Do what a wake-up says, or pass it on if this process is stopping."""
        if self._stopping.is_set():
            self.services().wakeups.publish(wakeup)
        elif wakeup.due == "suspect":
            self._quarantine.submit(wakeup.run_id)
        else:
            self._drive(wakeup)

    def _drive(self, wakeup: WakeUp) -> None:
        """Drive a run, and once more if the store was away. Raises `StoreUnavailableError` if it is again."""
        try:
            drive(self.services(), wakeup)
            return
        except StoreUnavailableError as error:
            log.warning("turns wait for the store", run_id=wakeup.run_id, error=str(error))
        # Meanwhile this slot takes no other wake-up: a worker that went on would empty its queue for nothing, and
        # every run on it would wait for the sweep to give its wake-up again.
        if self._store_is_back():
            drive(self.services(), wakeup)
        else:
            self.services().wakeups.publish(wakeup)

    def _store_is_back(self) -> bool:
        """Wait until the store answers; False if this process is stopping first."""
        while not self._stopping.wait(STORE_RETRY_SECONDS):
            with suppress(StoreUnavailableError):
                self.services().store.ping()
                return True
        return False

    def _refuse(self, body: bytes, detail: str) -> None:
        door = self.door()
        log.warning("junk on a wake-up queue", detail=detail, size=len(body))
        door.store.dead_letters.add(
            channel=WAKEUP_CHANNEL,
            status="malformed",
            detail=detail,
            body=body,
        )


def _nothing() -> None:
    """Wakes whoever has to call it."""


def run(settings: Settings) -> int:
    """Be a worker process until a signal comes. Returns the exit code; raises `ConfigurationError`."""
    return WorkerProcess(settings).run()
