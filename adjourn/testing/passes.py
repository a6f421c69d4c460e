"""Makes one pass over a run that is due, as a worker that has just started would, and dies in it if told to.

Owns the two ways: services of its own in this process, for an app that is an object; a new process
(`adjourn.testing.one_pass`) for an app that has an import path. Between passes nothing is kept.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from adjourn.schemas.errors import ConfigurationError, DefinitionError, StaleClaimError
from adjourn.schemas.internal.state import Write
from adjourn.schemas.records.items import ItemBody
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.faulty import Act, FaultyStore
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.context.remembered import AWAITED
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.host.loop import ModelLoop
from adjourn.tasks.host.services import Services
from adjourn.testing.builds import Build
from adjourn.worker.config.settings import Settings

NEVER_STARTED: Final = 113
"""How the process of a pass says that it has not touched the run. No signal, and no code that programs use."""
Ending = Literal["in order", "at the crash", "by itself"]
"""How the process of a pass ended; the latter two are deaths."""
_KINDS: Final = {"output": "output", "memo": "memo", "wait": "suspension"}
_NAMED_BY: Final = {"output": "tool", "memo": "key", "wait": "name"}


@dataclass(frozen=True)
class Crash:
    """Where a process dies: just before it records this. What the body had done by then, it has done."""

    kind: Literal["output", "memo", "wait"]
    of: str
    """The tool of an output, the key of a `run_once`, the name of a wait."""

    def __str__(self) -> str:
        return f"a crash before the {self.kind} of {self.of!r}"

    def is_before(self, act: Act) -> bool:
        """Whether the act would record it."""
        written = [value for value in (*act.args, *act.kwargs.values()) if isinstance(value, Write)]
        return any(self._is_of(item) for write in written for item in write.items)

    def _is_of(self, item: ItemBody) -> bool:
        if item.kind != _KINDS[self.kind]:
            return False
        return str(getattr(item, _NAMED_BY[self.kind])).removeprefix(AWAITED) == self.of


class _Mortal(FaultyStore):
    """The store of a process that dies at the crash: it calls `die`, which may not return. No act follows."""

    def __init__(self, db: Database, crash: Crash | None, die: Callable[[], NoReturn]) -> None:
        super().__init__(PostgresStore(db), before=self._meet)
        self.died = False
        self._crash = crash
        self._die = die

    def _meet(self, act: Act) -> None:
        if self.died or (self._crash is not None and self._crash.is_before(act)):
            self.died = True
            self._die()


class NoWakeUps:
    """Wake-ups that go nowhere. A test asks Postgres what is due, as the sweep does."""

    def publish(self, wakeup: WakeUp) -> None:
        """Nobody listens."""

    def notify_readers(self, action_id: str) -> None:
        """Nobody listens."""


def drive_here(
    settings: Settings, build: Build, wakeup: WakeUp, crash: Crash | None, die: Callable[[], NoReturn] | None = None
) -> Ending:
    """Make the pass with services and a thread that nothing was done in before.

    At the crash `die` is called; without it the pass loses its claim, as a process that is taken for dead does.
    """

    def lose_claim() -> NoReturn:
        raise StaleClaimError(wakeup.run_id)

    store = _Mortal(
        Database(settings.database, settings.tuning, application_name="adjourn-test"), crash, die or lose_claim
    )
    redis = connect(settings.redis)
    services = Services(
        store=store,
        parking=Parking(redis, store.signing_key),
        events=Events(redis, store.signing_key),
        wakeups=NoWakeUps(),
        tuning=settings.tuning,
        app=build.load(),
        loop=ModelLoop(),
        leases=LeaseKeeper(store, settings.tuning),
    )
    try:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="adjourn-pass") as fresh:
            fresh.submit(drive, services, wakeup).result()
    finally:
        services.leases.stop()
        services.loop.stop()
        store.close()
        services.events.close()
        redis.close()
    return "at the crash" if store.died else "in order"


def drive_in_a_process(settings: Settings, build: Build, wakeup: WakeUp, crash: Crash | None) -> Ending:
    """Make the pass in a process of its own.

    Raises `DefinitionError` for models that cannot be sent there, and `ConfigurationError` if it never got
    as far as the run; what it said is on standard error then.
    """
    try:
        orders = pickle.dumps(sys.path) + pickle.dumps((build, wakeup, crash))
    except Exception as error:
        raise DefinitionError("models", f"cannot be sent to a process ({error})", "use functions of a module") from None
    done = subprocess.run(
        [sys.executable, "-m", "adjourn.testing.one_pass"],
        input=orders,
        env=os.environ | settings.as_environment(),
        check=False,
    )
    if done.returncode == NEVER_STARTED:
        raise ConfigurationError(f"app {build.app}", "a new process cannot load it", "its error is above")
    if done.returncode == 0:
        return "in order"
    return "at the crash" if crash is not None and done.returncode == -signal.SIGKILL else "by itself"
