"""The traffic: starts runs, finds what they wait for and has it answered, whatever is down at the moment."""

from __future__ import annotations

import threading
from contextlib import suppress
from random import Random
from typing import Final

import sqlalchemy as sa

from adjourn import Client
from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.ids import new_run_id
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.worker.config.settings import Settings
from tests.chaos.app import app
from tests.chaos.publisher import Publisher

PAUSE_SECONDS: Final = 0.1
AGENTS: Final = ("gate", "gates", "chain", "mixed")
ENDED: Final = sa.text("select id from adjourn.runs where id = any(:ids) and status in ('completed', 'failed')")


class Traffic(threading.Thread):
    """Keeps so many runs in flight until told that it is enough; then only sees them to their end."""

    def __init__(self, settings: Settings, publisher: Publisher, dice: Random, in_flight: int) -> None:
        super().__init__(name="traffic", daemon=True)
        self.started: list[str] = []
        self.in_flight: set[str] = set()
        self.outages = 0
        """How often PostgreSQL could not be asked."""
        self._client = Client(settings, app=app)
        self._db = Database(settings.database, pool_size=2)
        self._publisher = publisher
        self._dice = dice
        self._wanted = in_flight
        self._seen: set[str] = set()
        self._stop_asked = threading.Event()

    def enough(self) -> None:
        """Start no more runs."""
        self._wanted = 0

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        self._client.close()
        self._db.dispose()

    def run(self) -> None:
        while not self._stop_asked.wait(PAUSE_SECONDS):
            try:
                self._round()
            except StoreUnavailableError:
                self.outages += 1

    def _round(self) -> None:
        while len(self.in_flight) < self._wanted:
            self._start(self._dice.choice(AGENTS))
        for action in actions.pending(self._db, limit=2000):
            if action.id not in self._seen:
                self._seen.add(action.id)
                self._publisher.answer(action)
        self.in_flight -= {row.id for row in self._db.execute(ENDED, {"ids": sorted(self.in_flight)})}

    def _start(self, agent: str) -> None:
        """Start a run under an id that is ours, and again until it is known that it is there."""
        run_id = new_run_id()
        while not self._stop_asked.is_set():
            with suppress(StoreUnavailableError):
                self._client.start(agent, run_id, run_id=run_id)
                self.started.append(run_id)
                self.in_flight.add(run_id)
                return
            self.outages += 1
            self._stop_asked.wait(PAUSE_SECONDS)
