"""Errors of the user's own code, wherever that runs outside the body of a tool.

Such code may raise anything: a library in Rust raises what is not an `Exception`, a cancelled future does,
and so does `sys.exit`. Each place that calls it catches `BaseException` and says whose code it was.
"""

from __future__ import annotations

import inspect
import threading
from typing import Final

from adjourn.schemas.strict_json import clean_text

_PROBLEM_CHARACTERS: Final = 4_000
"""Of what the user's code raises that the run keeps."""


def describe_error(error: BaseException) -> str:
    """Return an error of the user's code as text that can be stored. Never raises, whatever the error does."""
    try:
        name = type(error).__name__
    except BaseException:  # of its metaclass
        name = "an error without a name"
    try:
        # Inside: what `__str__` returns may be a kind of text with methods of its own.
        return clean_text(f"{name}: {error!s}")
    except BaseException:
        return clean_text(f"{name}: (its message cannot be read)")


def describe_briefly(error: BaseException) -> str:
    """`told`, cut to what the error of a run holds."""
    return describe_error(error)[:_PROBLEM_CHARACTERS]


def is_interrupt(error: BaseException) -> bool:
    """True for Ctrl-C on a program that drives runs in its main thread: it stops the program, not the run.

    Worker processes catch their signals, so that none of them raises this.
    """
    return issubclass(type(error), KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def discard(value: object) -> None:
    """Close a coroutine that is not awaited, so that Python does not warn of it. Anything else is left alone."""
    if inspect.iscoroutine(value):
        value.close()
