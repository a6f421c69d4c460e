"""Wake-ups: the messages that say that a run is due. They carry no state, and every one of them may be lost.

Owns the names of the queues and tasks. Publishes through Celery; decides nothing.
"""

from __future__ import annotations

import json
import logging
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from adjourn.schemas.records.runs import Due, WakeUp

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

QUEUES: Final = MappingProxyType[Due, str](
    {"turn": "adjourn.turns", "reentry": "adjourn.reentry", "suspect": "adjourn.suspect"}
)
TASKS: Final = MappingProxyType[Due, str](
    {"turn": "adjourn.turn", "reentry": "adjourn.reentry", "suspect": "adjourn.suspect"}
)
RESUME_QUEUE: Final = "adjourn.resume"

PUBLISH_RETRY: Final = MappingProxyType({"max_retries": 2, "interval_start": 0, "interval_step": 0.2})
"""A pooled connection may have died while idle: once more on a fresh one, and then leave it to the sweep."""

ACQUIRE_SECONDS: Final = 5
"""Behind a broker that hangs, turns would queue up for a connection without end; the sweep publishes later."""


_NOTICE: Final = b'{"v":1,"kept":'
_MAX_NOTICE_BYTES: Final = 1_000


def notice(action_id: str) -> bytes:
    """The message on the resume queue that says that an answer is kept for an action. It carries no answer."""
    return _NOTICE + json.dumps(action_id).encode() + b"}"


def read_notice(body: bytes) -> str | None:
    """The action of a notice; `None` for any other message. Whoever sent it: it only says where to look."""
    if not body.startswith(_NOTICE) or len(body) > _MAX_NOTICE_BYTES:
        return None
    try:
        action_id = json.loads(body[len(_NOTICE) : -1])
    except (ValueError, RecursionError):
        return None
    return action_id if isinstance(action_id, str) and action_id.isprintable() else None


class CeleryWakeUps:
    """Publishes wake-ups through a Celery app. Best effort: a failure is logged, the sweep repeats the wake-up."""

    def __init__(self, celery_app: Celery) -> None:
        self._celery = celery_app

    def publish(self, wakeup: WakeUp) -> None:
        """Never raises: the run's row already says that it is due, and must not be undone by a broker."""
        try:
            queue = self._celery.amqp.queues[QUEUES[wakeup.due]]
            # The message that `send_task` would make, without its routing, tracing and signals: all
            # there is to say is which run is due, and this is on the way of every turn.
            with self._celery.producer_pool.acquire(block=True, timeout=ACQUIRE_SECONDS) as producer:
                producer.publish(
                    ([wakeup.model_dump()], {}, {}),
                    serializer="json",
                    headers={"lang": "py", "task": TASKS[wakeup.due], "id": str(uuid.uuid4())},
                    exchange="",
                    routing_key=queue.name,
                    declare=[queue],
                    retry=True,
                    retry_policy=dict(PUBLISH_RETRY),
                )
        except Exception as error:
            logger.warning("wake-up for run %s was not published (the sweep repeats it): %s", wakeup.run_id, error)

    def notify_readers(self, action_id: str) -> None:
        """Never raises: the answer is kept already, and the sweep finds it."""
        try:
            with self._celery.producer_pool.acquire(block=True, timeout=ACQUIRE_SECONDS) as producer:
                producer.publish(
                    notice(action_id),
                    content_type="application/json",
                    content_encoding="utf-8",
                    exchange="",
                    routing_key=RESUME_QUEUE,
                    retry=True,
                    retry_policy=dict(PUBLISH_RETRY),
                )
        except Exception as error:
            logger.warning("no reader was told of an answer to %s (the sweep finds it): %s", action_id, error)
