"""Celery's consumer, made strict: what is no wake-up of ours is refused before Celery looks at it.

Celery 5.7 stops its worker on an unhashable task name, keeps a slot taken for ever by a body that
its pool threads cannot decode, and would run callbacks that a message carries. None of that gets
past this door. What is refused becomes a dead letter and is never delivered again. What is a wake-up is
parsed once, here, and handed to Celery as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import structlog
from celery import signals
from celery.worker import request as celery_request
from celery.worker.consumer import Consumer
from celery.worker.state import task_reserved
from pydantic import TypeAdapter, ValidationError

from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.host.wakeups import TASKS

# Their published types leave out what a subclass needs.
_Consumer: Any = Consumer
_requests: Any = celery_request

log = structlog.get_logger(__name__)

MAX_WAKEUP_BYTES: Final = 10_000
"""Celery's own fields included, a wake-up is under a thousand."""

_BODY: Final = TypeAdapter(tuple[tuple[WakeUp], dict[str, Any], dict[str, Any]])
_TASK_NAMES: Final = frozenset(TASKS.values())
_FORBIDDEN_HEADERS: Final = ("eta", "expires", "group", "stamps", "timelimit")
"""Of Celery's features those that would hold a message back, drop it, or interrupt a turn."""


def read_wakeup(message: Any) -> WakeUp | str:
    """The wake-up that a message is, or what is wrong with it. Never raises, and decodes nothing but JSON."""
    headers = message.headers
    name = headers.get("task") if isinstance(headers, dict) else None
    if not isinstance(name, str) or name not in _TASK_NAMES:
        return "not a task of this worker"
    if not isinstance(headers.get("id"), str):
        return "no task id"
    if message.content_type != "application/json":
        return "content type is not application/json"
    for header in _FORBIDDEN_HEADERS:
        value = headers.get(header)
        if value not in (None, {}) and value != [None, None]:
            return f"header {header!r} is not for wake-ups"
    return _read_body(_body(message))


def _read_body(body: bytes) -> WakeUp | str:
    if len(body) > MAX_WAKEUP_BYTES:
        return f"larger than {MAX_WAKEUP_BYTES} bytes"
    try:
        (wakeup,), kwargs, embed = _BODY.validate_json(body, strict=True)
    except ValidationError:
        return "the arguments are not one wake-up"
    if kwargs or any(embed.values()):
        return "more than a wake-up"
    if "\0" in wakeup.run_id:
        return "NUL in a run id"
    return wakeup


def _body(message: Any) -> bytes:
    body = message.body
    if isinstance(body, str):
        return body.encode(errors="replace")
    return bytes(body or b"")


class WakeUpConsumer(_Consumer):  # type: ignore[misc]
    """Consumes wake-ups, and wake-ups only."""

    class Blueprint(_Consumer.Blueprint):  # type: ignore[misc]
        # With quorum queues Celery would declare some thirty exchanges and queues for delayed
        # delivery; nothing here is ever delayed by the broker.
        default_steps: ClassVar = [step for step in _Consumer.Blueprint.default_steps if "delayed_delivery" not in step]

    def __init__(self, *args: Any, **options: Any) -> None:
        # Workers have nothing to say to each other; asking around costs each start a second.
        options |= {"without_mingle": True, "without_gossip": True, "without_heartbeat": True}
        super().__init__(*args, **options)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args, **options)

        def on_message(message: Any) -> None:
            wakeup = read_wakeup(message)
            fault = wakeup if isinstance(wakeup, str) else None
            if fault is None:
                # Celery would decode it once here and once more in the thread that runs the task.
                message._decoded_cache = ((wakeup,), {}, {})
                try:
                    handle(message)
                except self.connection_errors:
                    raise
                except Exception as error:
                    # Whatever Celery makes of it, the next message has to be served.
                    log.exception("wake-up not taken")
                    fault = f"{type(error).__name__} on receipt"
            if fault is not None:
                self._refuse(message, fault)

        return on_message

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self._refuse(message, f"cannot be decoded ({type(exc).__name__})")

    def _refuse(self, message: Any, fault: str) -> None:
        try:
            self.app.refuse(_body(message), fault)
        except Exception:
            log.exception("junk was not recorded", fault=fault)
        if not message.acknowledged:
            message.reject_log_error(log, self.connection_errors)


def take_wakeups(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """How a worker takes a message for a task: Celery's `Strategy`, without what wake-ups may not ask for.

    No time to wait until, none to expire at, no rate, no revoking: `read_wakeup` has refused what asks.
    """
    request_class = _requests.create_request_cls(
        _requests.Request, task, consumer.pool, consumer.hostname, None, app=app
    )

    def take(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        request = request_class(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=consumer.hostname,
            task=task,
            connection_errors=consumer.connection_errors,
            body=message.payload,
            headers=message.headers,
            decoded=True,
        )
        signals.task_received.send(sender=consumer, request=request)
        task_reserved(request)
        consumer.on_task_request(request)

    return take
