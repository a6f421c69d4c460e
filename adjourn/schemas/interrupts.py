"""Ctrl-C among the errors of the user's code."""

from __future__ import annotations

import threading


def ensure_not_interrupted(error: BaseException) -> None:
    """Raise `error` again if it is a user's Ctrl-C: Python raises that one in the main thread, and only there."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
