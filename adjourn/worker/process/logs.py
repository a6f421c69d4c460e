"""Logging of a worker process: one line per event on standard error, never a body, never a password."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any, Final

import structlog
from celery import signals

_CHATTY: Final = ("celery", "kombu", "amqp")
"""They write two lines per wake-up, which costs more than some wake-ups do."""

_SHARED: Final = (structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True))
_RENDERED: Final = (
    structlog.processors.format_exc_info,
    structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
)


def configure(level: str) -> None:
    """Set up logging for this process, and keep Celery from setting up its own."""
    number = logging.getLevelNamesMapping()[level]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *_SHARED],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_RENDERED],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    if number > logging.DEBUG:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
    # Root in a container is usual; the danger that Celery means is pickle, which is never accepted here.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")
    structlog.configure(
        processors=[*_SHARED, *_RENDERED],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    signals.setup_logging.connect(_leave_alone, weak=False)


def _leave_alone(**_: Any) -> None:
    """Celery configures logging only if nobody listens to this signal."""
