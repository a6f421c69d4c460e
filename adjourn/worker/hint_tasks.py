"""The three tasks. Each takes one hint and hands it on; none of them ever fails.

What goes wrong inside a run is recorded in the run. Celery is only told that the message is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.runs import Hint
from adjourn.tasks.drive import drive
from adjourn.tasks.hints import TASKS
from adjourn.tasks.services import Services

log = structlog.get_logger(__name__)


def register(celery: Celery, services: Callable[[], Services], isolate: Callable[[Hint], None]) -> None:
    """Give the app its tasks: turns and re-entries are driven here, suspects handed to `isolate`."""

    def on_hint(payload: dict[str, Any]) -> None:
        hint = Hint.model_validate(payload)
        if hint.due == "suspect":
            isolate(hint)
        else:
            drive(services(), hint)

    def task(payload: dict[str, Any]) -> None:
        try:
            on_hint(payload)
        except StoreUnavailableError as error:
            # The row still says that the run is due, or whose lease has run out: the sweep finds it.
            log.warning("run left to the sweep", run_id=payload.get("run_id"), error=str(error))
        except (Exception, SystemExit):
            # SystemExit too: Celery would leave the message unacknowledged, and its slot taken, for ever.
            log.exception("a hint could not be followed", run_id=payload.get("run_id"))

    for name in TASKS.values():
        celery.task(name=name, shared=False)(task)
