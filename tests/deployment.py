"""A deployment of real `adjourn worker` processes, and a client of it.

When the test is over, what holds for every case is checked of it as well (`tests.cases.checks`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import sqlalchemy as sa
from kombu import Connection

from adjourn import Client, RunHandle
from adjourn.schemas.records.runs import ENDED, Due, Run, WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.host.services import Door
from adjourn.tasks.host.wakeups import QUEUES, RESUME_QUEUE, CeleryWakeUps
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.config.settings import Settings
from tests.cases.checks import answer_again, check_never_refused, check_nothing_open, facts
from tests.effects import Effects
from tests.processes import ChildProcess
from tests.waiting import LIMIT_SECONDS, wait_until

ROOT = Path(__file__).parents[1]
APP = "tests.workers_app:app"
QUICK: dict[str, Any] = {
    "tuning": {"lease_seconds": 1.5, "sweep_seconds": 0.3, "wakeup_retry_seconds": 1.0},
    "resume_visibility_seconds": 1,
}
"""So that a death is noticed in seconds, and what the dead had taken comes back."""
AGAIN: tuple[Due, ...] = ("turn", "reentry")
TAKEN_KEY = "adjourn.resume.taken"


class Deployment:
    """Workers, a client, and what the tools did."""

    def __init__(self, settings: Settings, process: Callable[..., ChildProcess], effects: Effects) -> None:
        self.settings = settings
        self.effects = effects
        self.client = Client(settings)
        self.db = Database(settings.database)
        self.redis = redis.Redis.from_url(settings.redis)
        self._process = process
        self.workers: list[ChildProcess] = []

    def close(self) -> None:
        self.client.close()
        self.db.dispose()
        self.redis.close()

    def worker(self, **variables: str) -> ChildProcess:
        """Start a worker; `variables` come on top of the settings."""
        env = {**self.settings.as_environment(), **self.effects.environment, **variables}
        self.workers.append(self._process([sys.executable, "-m", "adjourn", "worker"], env=env, cwd=ROOT))
        return self.workers[-1]

    def ready_worker(self, **variables: str) -> ChildProcess:
        """Start a worker and wait until it takes wake-ups."""
        worker = self.worker(**variables)
        worker.wait_for_log("worker ready")
        return worker

    @property
    def database_name(self) -> str:
        return str(self.db.one(sa.text("select current_database() as name"), {}).name)

    # --- runs ------------------------------------------------------------------------------

    def parked(self, agent: str, text: str = "go") -> Run:
        """Start a run and wait until it waits."""
        run = self.client.start(agent, text)
        return self.client.wait(run.id, until=("parked",), timeout=LIMIT_SECONDS)

    def ended(self, run: Run | RunHandle | str) -> Run:
        """Wait for the end of a run, whatever it is."""
        run_id = run if isinstance(run, str) else run.id
        return self.client.wait(run_id, until=tuple(ENDED), timeout=LIMIT_SECONDS)

    def noted(self, name: str, times: int = 1) -> int:
        """Wait until `name` was noted so often, and say by which process the last time."""
        wait_until(lambda: self.effects.count(name) >= times, what=f"note {times} of {name!r}")
        return self.effects.pids(name)[times - 1]

    # --- the broker --------------------------------------------------------------------------

    def messages(self) -> int:
        """Messages in the queues, and, where the broker is Redis, those that somebody has taken."""
        if self.settings.broker_is_redis:
            return sum(self.redis.llen(name) for name in (*QUEUES.values(), RESUME_QUEUE, TAKEN_KEY))
        return sum(queue.message_count for queue in self._rabbitmq_queues())

    def _rabbitmq_queues(self) -> list[Any]:
        with Connection(self.settings.broker) as connection:
            channel = connection.default_channel
            return [channel.queue_declare(name, passive=True) for name in (*QUEUES.values(), RESUME_QUEUE)]

    def _check_nothing_unacknowledged(self) -> None:
        wait_until(lambda: self.messages() == 0, what="an empty broker, with nothing unacknowledged")
        if self.settings.broker_is_redis:
            return
        # RabbitMQ does not say here what is unacknowledged. When its takers have finished what they were at,
        # and are gone, it is in the queues again.
        for worker in self.workers:
            if worker.exit_code is None:
                worker.send(signal.SIGTERM)
                worker.wait()
        wait_until(lambda: not any(queue.consumer_count for queue in self._rabbitmq_queues()), what="no consumer")
        assert self.messages() == 0

    def check(self) -> None:
        """What every case asserts besides its own point, once the workers have come to rest."""
        ended = [run for run in runs.list(self.db, limit=10_000) if run.ended]
        for run in ended:
            check_never_refused(self.db, run)
            check_nothing_open(self.db, run)
        before = {run.id: facts(self.db, run.id) for run in ended}
        door = Door(
            store=PostgresStore(self.db),
            parking=Parking(connect(self.settings.redis), self.db.signing_key),
            events=Events(connect(self.settings.redis), self.db.signing_key),
            wakeups=CeleryWakeUps(make_celery(self.settings)),
            tuning=self.settings.tuning,
            app=None,
        )
        for run in ended:
            answer_again(door, self.db, run.id)
            if any(worker.exit_code is None for worker in self.workers):
                for due in AGAIN:
                    door.wakeups.publish(WakeUp(run_id=run.id, due=due))
        self._check_nothing_unacknowledged()
        assert {run.id: facts(self.db, run.id) for run in ended} == before


@contextmanager
def deployment(process: Callable[..., ChildProcess], folder: Path, **settings: object) -> Iterator[Deployment]:
    """A deployment without any worker yet. `settings` are fields of `Settings`; `folder` is for effects."""
    made = Deployment(Settings.model_validate({"app": APP, **settings}), process, Effects(folder))
    try:
        yield made
        made.check()
    finally:
        made.close()
