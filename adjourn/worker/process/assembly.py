"""Puts `Services` together from settings, once per process and only after any fork."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from typing import Final

import structlog

from adjourn.schemas.errors import ConfigurationError
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.blocks.app import App
from adjourn.tasks.blocks.user_code import describe_error, is_interrupt
from adjourn.tasks.host.builds import Build
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.host.loop import ModelLoop
from adjourn.tasks.host.services import Door, Services, WakeUps
from adjourn.worker.config.settings import PREFIX, Settings
from adjourn.worker.process.builds import NOT_THEIRS, derived_build
from adjourn.worker.process.tool_processes import Launcher

log = structlog.get_logger(__name__)

APP_VARIABLE = PREFIX + "APP"
_REMEDY = "name your App as module:attribute"
_YOUNG: Final = 10_000
"""Objects that are made before Python looks for garbage among them."""


def build_door(settings: Settings, wakeups: WakeUps) -> Door:
    """What judging answers and sweeping take. The user's code is loaded if it is named.

    Raises `ConfigurationError` if a setting is missing or wrong.
    """
    app = load_app(settings.app) if settings.app else None
    store = PostgresStore(Database(settings.database, settings.tuning, pool_size=settings.database_pool_size))
    redis = connect(settings.redis, max_connections=settings.redis_pool_size)
    return Door(
        store=store,
        parking=Parking(redis, store.signing_key),
        events=Events(redis, store.signing_key),
        wakeups=wakeups,
        tuning=settings.tuning,
        app=app,
    )


def build_services(settings: Settings, wakeups: WakeUps) -> Services:
    """What driving runs takes: the user's code, and the threads for it. Raises `ConfigurationError`."""
    app = load_app(settings.app)
    door = build_door(settings, wakeups)
    name = settings.build or app.build or derived_build(settings.app or "")
    build = Build(door.store, name)
    return Services(
        store=door.store,
        parking=door.parking,
        events=door.events,
        wakeups=wakeups,
        tuning=door.tuning,
        app=app,
        loop=ModelLoop(),
        leases=LeaseKeeper(door.store, door.tuning, build),
        tool_processes=Launcher(settings),
        build=build,
    )


def tune_gc() -> None:
    """Have Python look for garbage less often, in a process of ours that has just loaded its code.

    What was imported stays until the end, and need not be walked through again and again. A history of a
    thousand items is thousands of new objects and no garbage: by Python's own rule, after every 700, it would
    be searched several times before it is loaded, which is half of the time of a turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


def close_services(door: Door) -> None:
    """Stop the threads and close the connections that were built."""
    if isinstance(door, Services):
        door.leases.stop()
        door.loop.stop()
    door.events.close()
    door.store.close()


def load_app(name: str | None) -> App:
    """Import the registry that `name` (`module:attribute`) means, from the working directory first.

    Raises `ConfigurationError` if there is none, naming what was looked for, and if the user's own
    module cannot be imported, naming the line of it; the traceback is logged, for debugging.
    """
    module_name, _, attribute = (name or "").partition(":")
    if not module_name or not attribute:
        raise ConfigurationError(APP_VARIABLE, f"is {name!r}" if name else "is not set", _REMEDY)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if is_interrupt(error):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(APP_VARIABLE, f"there is no module {module_name!r}", _REMEDY) from None
        log.debug("the app cannot be imported", exc_info=error)
        said = " ".join(describe_error(error).split())
        problem = f"{module_name!r} cannot be imported: {said} ({_place(error)})"
        raise ConfigurationError(APP_VARIABLE, problem, "correct it; log level DEBUG has more") from error
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else f"a {type(app).__name__}"
        raise ConfigurationError(APP_VARIABLE, f"{module_name} has {found} named {attribute!r}", _REMEDY)
    return app


def _place(error: BaseException) -> str:
    """The file and line of the user's own that an import failed at: not where a library of theirs, or we, raised."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    last = (theirs or frames)[-1]
    return f"{last.filename}:{last.lineno}"
