"""The three tasks. Each takes one wake-up and hands it on; none of them ever fails.

What goes wrong inside a run is recorded in the run. Celery is only told that the message is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.blocks.user_code import is_interrupt
from adjourn.tasks.host.wakeups import TASKS

log = structlog.get_logger(__name__)


def register(celery: Celery, follow: Callable[[WakeUp], None]) -> None:
    """Give the app its tasks, each of which has `follow` do what its wake-up says."""

    def task(payload: WakeUp | dict[str, Any]) -> None:
        try:
            follow(WakeUp.model_validate(payload))
        except StoreUnavailableError as error:
            # The row still says that the run is due, or whose lease has run out: the sweep finds it.
            log.warning("run left to the sweep", wakeup=payload, error=str(error))
        except BaseException as error:
            if is_interrupt(error):
                raise
            # Not only an `Exception`: Celery would leave the message unacknowledged, and its slot taken, for ever.
            log.exception("a wake-up could not be followed", wakeup=payload)

    for name in TASKS.values():
        celery.task(name=name, shared=False, Strategy="adjourn.worker.broker.wakeup_consumer:take_wakeups")(task)
