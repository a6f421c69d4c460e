"""Waiting for a state, with a limit. Tests wait with this and never by the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_SECONDS = 150.0
"""Far more than anything takes: a limit is there to end a test that hangs, not to measure one."""
POLL_SECONDS = 0.02


class WaitedInVainError(AssertionError):
    """The state did not come."""


def wait_until(condition: Callable[[], T], timeout: float = LIMIT_SECONDS, what: str = "") -> T:
    """Ask `condition` again and again until it says something true, and return that.

    Raises `WaitedInVainError` after `timeout` seconds, with `what` (or the condition's name) and what it said last.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (said := condition()):
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", repr(condition))
            raise WaitedInVainError(f"waited {timeout:g} s for: {name}; the last look said {said!r}")
        pause.wait(POLL_SECONDS)
    return said
