"""The app for plain Celery: `celery -A adjourn.worker worker`, or `celery -A worker worker` from a checkout.

The same process as `adjourn worker`, started by Celery's own command. Configured by the
environment, when Celery first asks.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from celery import signals

from adjourn.schemas.errors import ConfigurationError
from adjourn.worker.config.settings import Settings, load_settings
from adjourn.worker.process.assembly import load_app
from adjourn.worker.process.checks import EXIT_CONFIGURATION, check
from adjourn.worker.process.logs import configure
from adjourn.worker.process.worker_process import WorkerProcess


def _settings() -> Settings:
    try:
        return load_settings()
    except ConfigurationError as error:
        _leave(error)


def _leave(error: ConfigurationError) -> NoReturn:
    sys.stderr.write(f"adjourn: {error}\n")
    raise SystemExit(EXIT_CONFIGURATION)


@signals.celeryd_init.connect(weak=False)
def _before_start(**_: Any) -> None:
    """One line about what is missing, where Celery would retry for ever or print a traceback."""
    settings = _process.settings
    configure(settings.log_level)
    try:
        check(settings)
        if settings.app or "turns" in settings.roles:
            load_app(settings.app)
    except ConfigurationError as error:
        _leave(error)


_process = WorkerProcess(_settings)
_process.attach()
app = _process.celery
