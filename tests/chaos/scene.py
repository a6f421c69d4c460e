"""The scene of the chaos: servers that can be broken, and a fleet of real worker processes that can be killed.

Owns what is up and how it comes up again. Strikes nobody by itself: the faults do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import psutil  # type: ignore[import-untyped]
import psycopg

from adjourn.schemas.records.runs import Due, WakeUp
from adjourn.store.migrations import upgrade
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.config.settings import Settings
from benchmarks.breakable import Breakable, breakable_servers
from tests.chaos import ledger
from tests.chaos.journal import JOURNAL
from tests.processes import ChildProcess

ROOT: Final = Path(__file__).parents[2]
SHIM: Final = Path(__file__).with_name("shim.c")
LEASE_SECONDS: Final = 3.0
SETTINGS: Final = {
    "app": "tests.chaos.app:app",
    "concurrency": 8,
    "resume_visibility_seconds": 3,
    "resume_threads": 2,
    "tuning": {
        "lease_seconds": LEASE_SECONDS,
        "sweep_seconds": 0.5,
        "wakeup_retry_seconds": 1.5,
        "shutdown_seconds": 2,
        # Not even the unluckiest run is taken for poison.
        "suspect_deaths": 1000,
    },
}
"""So that a death is noticed in seconds: what is short here is longer in earnest, and nothing else changes."""
ROLES: Final = ("turns,resume,sweep", "turns", "resume", "sweep")
"""One worker that does everything, and the parts apart."""
AN_HOUR: Final = 3600
POOLS: Final = (1, 2, 20)
"""Eight turns at once have to share as many connections to PostgreSQL."""


@dataclass(eq=False)
class Slot:
    """The place of one worker, whichever process fills it."""

    roles: str
    worker: ChildProcess | None = None
    gone: list[ChildProcess] = field(default_factory=list)
    """Killed, or told to stop; what they had started may go on for a while."""


class Scene:
    """Everything that can be struck."""

    def __init__(self, servers: Breakable, folder: Path, dice: Random, without: str | None = None) -> None:
        self.servers = servers
        self.settings = Settings.model_validate(
            {"database_url": servers.database_url, "redis_url": servers.redis_url, **SETTINGS}
        )
        self.shim = compiled_shim(folder)
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.slots = [Slot(roles) for roles in ROLES]
        self.flavours: Counter[str] = Counter()
        """Of the workers that were started."""
        self._wakeups = CeleryWakeUps(make_celery(self.settings))
        self._variables = {ledger.FILE: str(self.ledger)} | ({ledger.WITHOUT: without} if without else {})
        self._folder = folder
        self._dice = dice
        self._started = 0

    def start_worker(self, slot: Slot) -> None:
        """Fill a place with a new process, most often one that has something odd about it. Returns at once."""
        pool = self._dice.choice(POOLS)
        variables = {"ADJOURN_ROLES": slot.roles, "ADJOURN_DATABASE_POOL_SIZE": str(pool)}
        self.flavours[f"pool of {pool}"] += 1
        if self.shim is not None and self._dice.random() < 1 / len(ROLES):
            shift = self._dice.choice((-AN_HOUR, AN_HOUR))
            variables |= {"LD_PRELOAD": str(self.shim), "CHAOS_CLOCK_SECONDS": str(shift)}
            self.flavours[f"clock {shift:+} s"] += 1
        self._started += 1
        slot.worker = ChildProcess(
            [sys.executable, "-m", "adjourn", "worker"],
            {**self.settings.as_environment(), **self._variables, **variables},
            self._folder / f"worker-{self._started}-{slot.roles.replace(',', '-')}.log",
            ROOT,
        )

    def end_worker(self, slot: Slot, sign: signal.Signals, *, with_children: bool = False) -> None:
        """Send a worker the signal that ends it; its place is empty then."""
        worker, slot.worker = slot.worker, None
        if worker is None:
            return
        slot.gone.append(worker)
        if with_children:
            worker.kill()
        elif worker.exit_code is None:
            worker.send(sign)

    def publish_wakeups(self, wakeups: Iterable[tuple[str, Due]]) -> None:
        for run_id, due in wakeups:
            self._wakeups.publish(WakeUp(run_id=run_id, due=due))

    def tend(self) -> None:
        """Fill places whose workers ended by themselves: a server was away when they came up."""
        for slot in self.slots:
            if slot.worker is not None and slot.worker.exit_code is not None:
                self.flavours["ended by itself"] += 1
                slot.gone.append(slot.worker)
                self.start_worker(slot)

    def dump_stacks(self) -> None:
        """Have all workers and their children write down where they are, each into the log of its worker."""
        for worker in (slot.worker for slot in self.slots if slot.worker is not None):
            for process in (worker.pid, *(child.pid for child in psutil.Process(worker.pid).children(recursive=True))):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGUSR1)

    def close(self) -> None:
        for slot in self.slots:
            for worker in (*slot.gone, *([slot.worker] if slot.worker else [])):
                worker.kill()


@contextmanager
def scene(folder: Path, dice: Random, without: str | None = None) -> Iterator[Scene]:
    """A scene with its servers up, its database migrated and no worker yet; these are `without` a safeguard."""
    with breakable_servers(folder / "servers") as servers:
        upgrade(servers.database_url)
        with psycopg.connect(servers.psycopg_url, autocommit=True) as connection:
            connection.execute(JOURNAL)
            # Else a recovery syncs each file of the cluster by itself, which a slow fsync makes half a minute of.
            connection.execute("alter system set recovery_init_sync_method = 'syncfs'")
        made = Scene(servers, folder, dice, without)
        try:
            yield made
        finally:
            made.close()


def compiled_shim(folder: Path) -> Path | None:
    """The library of `shim.c`; None where there is no C compiler, or nothing can be preloaded."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], check=True)
    with suppress(PermissionError):
        os.chmod(library, 0o755)
    return library
