"""Puts `Services` together from settings, once per process and only after any fork."""

from __future__ import annotations

import importlib
import os
import sys

from adjourn.schemas.errors import ConfigurationError
from adjourn.store.database import Database
from adjourn.store.events import Events
from adjourn.store.parking import Parking
from adjourn.store.redis import connect
from adjourn.tasks.app import App
from adjourn.tasks.leases import LeaseKeeper
from adjourn.tasks.loop import ModelLoop
from adjourn.tasks.services import Door, Hints, Services
from adjourn.worker.settings import PREFIX, Settings

APP_VARIABLE = PREFIX + "APP"
_REMEDY = "name your App as module:attribute"


def build_door(settings: Settings, hints: Hints) -> Door:
    """What judging answers and sweeping take. The user's code is loaded if it is named.

    Raises `ConfigurationError` if a setting is missing or wrong.
    """
    app = load_app(settings.app) if settings.app else None
    db = Database(settings.database, pool_size=settings.database_pool_size)
    redis = connect(settings.redis, max_connections=settings.redis_pool_size)
    return Door(db=db, parking=Parking(redis), events=Events(redis), hints=hints, policy=settings.policy, app=app)


def build_services(settings: Settings, hints: Hints) -> Services:
    """What driving runs takes: the user's code, and the threads for it. Raises `ConfigurationError`."""
    app = load_app(settings.app)
    door = build_door(settings, hints)
    return Services(
        db=door.db,
        parking=door.parking,
        events=door.events,
        hints=hints,
        policy=door.policy,
        app=app,
        loop=ModelLoop(),
        leases=LeaseKeeper(door.db, door.policy),
    )


def let_go(door: Door) -> None:
    """Stop the threads and close the connections that were built."""
    if isinstance(door, Services):
        door.leases.stop()
        door.loop.stop()
    door.db.dispose()


def load_app(name: str | None) -> App:
    """Import the registry that `name` (`module:attribute`) means, from the working directory first.

    Raises `ConfigurationError` if there is none, naming what was looked for. What the user's own
    module raises on import goes through as it is.
    """
    module_name, _, attribute = (name or "").partition(":")
    if not module_name or not attribute:
        raise ConfigurationError(APP_VARIABLE, f"is {name!r}" if name else "is not set", _REMEDY)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise ConfigurationError(APP_VARIABLE, f"there is no module {module_name!r}", _REMEDY) from None
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else f"a {type(app).__name__}"
        raise ConfigurationError(APP_VARIABLE, f"{module_name} has {found} named {attribute!r}", _REMEDY)
    return app
