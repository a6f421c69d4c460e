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
from adjourn.tasks.hints import TASKS
from adjourn.tasks.user_code import is_interrupt

log = structlog.get_logger(__name__)


def register(celery: Celery, follow: Callable[[Hint], None]) -> None:
    """Give the app its tasks, each of which has `follow` do what its hint says."""

    def task(payload: Hint | dict[str, Any]) -> None:
        try:
            follow(Hint.model_validate(payload))
        except StoreUnavailableError as error:
            # The row still says that the run is due, or whose lease has run out: the sweep finds it.
            log.warning("run left to the sweep", hint=payload, error=str(error))
        except BaseException as error:
            if is_interrupt(error):
                raise
            # Not only an `Exception`: Celery would leave the message unacknowledged, and its slot taken, for ever.
            log.exception("a hint could not be followed", hint=payload)

    for name in TASKS.values():
        celery.task(name=name, shared=False, Strategy="adjourn.worker.hint_consumer:take_hints")(task)
