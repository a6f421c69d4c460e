"""The connections of a client, and what it was made with."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.blocks.app import App
from adjourn.tasks.host.services import Door
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.client import arguments
from adjourn.worker.config.deployment import find_deployment
from adjourn.worker.config.settings import Settings

POOL_SIZE: Final = 4
"""Connections of one client to Postgres and to Redis each, at most."""


class Connected:
    """Connected to one deployment when first used. Usable from any thread."""

    def __init__(
        self, settings: Settings | None = None, *, app: App | None = None, identity: str | None = None
    ) -> None:
        arguments.check_client(settings, app)
        self._settings = settings = settings or find_deployment()
        self._app = app
        if identity is not None:
            arguments.check_identity(identity)
        self._identity = identity
        self._redis = connect(settings.redis, max_connections=POOL_SIZE)
        self._celery = make_celery(settings)
        store = PostgresStore(
            Database(settings.database, settings.tuning, pool_size=POOL_SIZE, application_name="adjourn-client")
        )
        self._door = Door(
            store=store,
            parking=Parking(self._redis, store.signing_key),
            events=Events(self._redis, store.signing_key),
            wakeups=CeleryWakeUps(self._celery),
            tuning=settings.tuning,
            app=app,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, if there are any. The client may be used again."""
        self._door.events.close()
        self._redis.close()
        self._celery.close()
        self._door.store.close()

    @property
    def settings(self) -> Settings:
        """The deployment that this is a client of."""
        return self._settings

    @property
    def app(self) -> App | None:
        """The app whose agents this client knows; `None` if it was given none."""
        return self._app
