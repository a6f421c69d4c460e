"""One process that plays worker, consumer and client against real Postgres and Valkey, step by step.

Wake-ups are kept in a list instead of a broker, so that a test decides when, how often and in which
order they are delivered. What needs a broker or a kill uses real processes instead.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from adjourn import Agent, App, Tool
from adjourn.schemas.internal.state import Started
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import Item, OutputItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ModelRequest
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.store.faulty import FaultyStore
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.postgres.threads import conversations as threads
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.store.scratch import move_clock
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.builds import Build
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.host.loop import ModelLoop
from adjourn.tasks.host.services import Services
from adjourn.tasks.lifecycle.sweep import SweepReport, sweep
from adjourn.tasks.models.scripted import ScriptedModel

AGENT = "agent"


class Counters:
    """Side effects and model calls, counted by name."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def bump(self, name: str) -> int:
        with self._lock:
            self.seen[name] = self.seen.get(name, 0) + 1
            return self.seen[name]

    def __getitem__(self, name: str) -> int:
        return self.seen.get(name, 0)


class WakeUpList:
    """Wake-ups in the order of their publishing."""

    def __init__(self) -> None:
        self.waiting: deque[WakeUp] = deque()
        self.published: list[WakeUp] = []
        self.noticed: list[str] = []

    def publish(self, wakeup: WakeUp) -> None:
        self.waiting.append(wakeup)
        self.published.append(wakeup)

    def notify_readers(self, action_id: str) -> None:
        self.noticed.append(action_id)


def scripted(*steps: Any, counters: Counters | None = None) -> ScriptedModel:
    """A strict provider that says `steps` one after the other, and counts as `model`."""

    def count(_: ModelRequest) -> None:
        if counters is not None:
            counters.bump("model")

    return ScriptedModel(list(steps), on_request=count)


class World:
    """A deployment in one process."""

    def __init__(self, app: App, database_url: str, redis_url: str, tuning: Tuning = Tuning()) -> None:
        self.database_url, self.redis_url, self.tuning = database_url, redis_url, tuning
        self.wakeups = WakeUpList()
        self.db = Database(database_url, tuning)
        self.store = FaultyStore(PostgresStore(self.db))
        """Its `before` and `after` are called with every act, for tests in which something happens there."""
        self.redis = connect(redis_url)
        self.app = app
        self._open()

    def _open(self, build: Build | None = None) -> None:
        self.services = Services(
            store=self.store,
            parking=Parking(self.redis, self.db.signing_key),
            events=Events(self.redis, self.db.signing_key),
            wakeups=self.wakeups,
            tuning=self.tuning,
            app=self.app,
            loop=ModelLoop(),
            leases=LeaseKeeper(self.store, self.tuning),
            build=build,
        )

    def close(self) -> None:
        self.services.leases.stop()
        self.services.loop.stop()
        self.services.events.close()
        self.db.dispose()
        self.redis.close()

    def deploy(self, app: App, build: Build | None = None) -> None:
        """Another build takes over: what the old process held in memory is gone."""
        self.services.leases.stop()
        self.services.loop.stop()
        self.app = app
        self._open(build)

    # --- clients ---------------------------------------------------------------------------

    def start(
        self,
        message: str = "go",
        *,
        agent: str = AGENT,
        thread_id: str | None = None,
        enqueue: bool = False,
        run_id: str | None = None,
        limits: Limits | None = None,
    ) -> str:
        """Start a run and settle; returns its id."""
        started = self.enqueue(message, agent=agent, thread_id=thread_id, enqueue=enqueue, run_id=run_id, limits=limits)
        self.settle()
        return started.run_id

    def enqueue(
        self,
        message: str = "go",
        *,
        agent: str = AGENT,
        thread_id: str | None = None,
        enqueue: bool = False,
        run_id: str | None = None,
        limits: Limits | None = None,
        data: Any = None,
    ) -> Started:
        """Start a run and leave its wake-up undelivered."""
        started = runs.start(
            self.db,
            run_id=run_id or new_run_id(),
            thread_id=thread_id or new_thread_id(),
            agent=agent,
            text=message if data is None else json.dumps(data),
            data=data,
            limits=limits,
            enqueue=enqueue,
        )
        if started.due:
            self.wakeups.publish(WakeUp(run_id=started.run_id, due="turn"))
        return started

    def answer(self, action: PendingAction | str, data: Any = None, *, settle: bool = True, **fields: Any) -> Receipt:
        """Send an answer as the resume queue would, and settle."""
        action_id = action if isinstance(action, str) else action.id
        body: dict[str, Any] = {"v": 1, "action_id": action_id, "kind": "submit", **fields}
        if body["kind"] == "submit":
            body["data"] = data
        return self.send(json.dumps(body), settle=settle)

    def answer_as(self, who: str, action: PendingAction, data: Any) -> Receipt:
        """Send an answer over a channel that knows who its sender is, and settle."""
        body = json.dumps({"v": 1, "action_id": action.id, "kind": "submit", "data": data})
        return self.send(body, answered_by=who)

    def send(self, raw: str | bytes, *, settle: bool = True, answered_by: str | None = None) -> Receipt:
        receipt = receive(self.services, raw, channel="test", answered_by=answered_by)
        if settle:
            self.settle()
        return receipt

    # --- workers ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Deliver wake-ups until none is left."""
        while self.wakeups.waiting:
            drive(self.services, self.wakeups.waiting.popleft())

    def settle_one(self) -> None:
        """Deliver the wake-up that was published first."""
        drive(self.services, self.wakeups.waiting.popleft())

    def sweep(self) -> SweepReport:
        report = sweep(self.services)
        self.settle()
        return report

    def advance(self, seconds: float) -> None:
        """Move the database's clock on, for every statement of every connection."""
        move_clock(self.db, seconds)

    # --- looking ---------------------------------------------------------------------------

    def run(self, run_id: str) -> Run:
        run = runs.get(self.db, run_id)
        assert run is not None
        return run

    def items(self, run_id: str) -> tuple[Item, ...]:
        return runs.items(self.db, run_id)

    def outputs(self, run_id: str) -> list[OutputItem]:
        return [item.body for item in self.items(run_id) if isinstance(item.body, OutputItem)]

    def pending(self, run_id: str | None = None) -> list[PendingAction]:
        return actions.pending(self.db, run_id=run_id)

    def the_action(self, run_id: str) -> PendingAction:
        """The one pending action of a run."""
        (action,) = self.pending(run_id)
        return action

    def status_of(self, action_id: str) -> str:
        state = actions.get(self.db, action_id)
        assert state is not None
        return state.action.status

    def snapshot(self, thread_id: str) -> Any:
        return threads.snapshot(self.db, thread_id)


@contextmanager
def world(
    database_url: str, redis_url: str, *tools: Tool[..., Any], model: Any, tuning: Tuning = Tuning(), **agent: Any
) -> Iterator[World]:
    """A world with one agent."""
    app = App(agents=[Agent(AGENT, model=model, tools=tools, **agent)])
    made = World(app, database_url, redis_url, tuning)
    try:
        yield made
    finally:
        made.close()


Make = Callable[..., World]
