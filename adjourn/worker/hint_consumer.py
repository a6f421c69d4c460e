"""Celery's consumer, made strict: what is no hint of ours is refused before Celery looks at it.

Celery 5.7 stops its worker on an unhashable task name, keeps a slot taken for ever by a body that
its pool threads cannot decode, and would run callbacks that a message carries. None of that gets
past this door. What is refused becomes a dead letter and is never delivered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import structlog
from celery.worker.consumer import Consumer
from pydantic import ValidationError

from adjourn.schemas.errors import MalformedJsonError, TooLargeError
from adjourn.schemas.runs import Hint
from adjourn.schemas.strict_json import parse
from adjourn.tasks.hints import TASKS

_Consumer: Any = Consumer  # its published types leave out what a subclass needs

log = structlog.get_logger(__name__)

MAX_HINT_BYTES: Final = 10_000
"""Celery's own fields included, a hint is under a thousand."""
MAX_HINT_DEPTH: Final = 16

_TASK_NAMES: Final = frozenset(TASKS.values())
_FORBIDDEN_HEADERS: Final = ("eta", "expires", "group", "stamps", "timelimit")
"""Of Celery's features those that would hold a message back, drop it, or interrupt a turn."""


def hint_fault(message: Any) -> str | None:
    """What is wrong with a message as a hint, or None. Never raises, and decodes nothing but strict JSON."""
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
            return f"header {header!r} is not for hints"
    return _body_fault(_body(message))


def _body_fault(body: bytes) -> str | None:
    try:
        document: Any = parse(body, max_bytes=MAX_HINT_BYTES, max_depth=MAX_HINT_DEPTH)
    except (MalformedJsonError, TooLargeError) as error:
        return str(error)
    try:
        (hint,), kwargs, embed = document
        Hint.model_validate(hint, strict=True)
    except (TypeError, ValueError, ValidationError):
        return "the arguments are not one hint"
    if kwargs or not isinstance(embed, dict) or any(embed.values()):
        return "more than a hint"
    return None


def _body(message: Any) -> bytes:
    body = message.body
    if isinstance(body, str):
        return body.encode(errors="replace")
    return bytes(body or b"")


class HintConsumer(_Consumer):  # type: ignore[misc]
    """Consumes hints, and hints only."""

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
            fault = hint_fault(message)
            if fault is None:
                try:
                    handle(message)
                except self.connection_errors:
                    raise
                except Exception as error:
                    # Whatever Celery makes of it, the next message has to be served.
                    log.exception("hint not taken")
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
