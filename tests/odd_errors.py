"""Exceptions that have broken a worker somewhere: what they do when they are made, shown, copied or raised."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import Callable


class TwoArguments(Exception):
    """Cannot be made again from its `args`, which is what pickle does."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(code)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class TextIsNoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class NotToBePickled(Exception):
    def __reduce__(self) -> str:
        raise TypeError("not to be pickled")


class NeverEqual(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


class OfABaseOnly(BaseException):
    """Not an `Exception` at all."""


def holding_a_lambda() -> Exception:
    error = ValueError("holds what cannot be pickled")
    error.held = lambda: None  # type: ignore[attr-defined]
    return error


def caused_by_itself() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def very_long() -> Exception:
    return ValueError("x" * 3_000_000)


def of_text_that_cannot_be_stored() -> Exception:
    return ValueError("a\x00b\ud800c")


def deep_group() -> BaseException:
    inner: BaseException = TwoArguments(1, "deep")
    for _ in range(50):
        inner = BaseExceptionGroup("group", [inner])
    return inner


ODD_ERRORS: dict[str, Callable[[], BaseException]] = {
    "two_arguments": lambda: TwoArguments(1, "two"),
    "keyword_only": lambda: KeywordOnly(code=1),
    "no_text": NoText,
    "no_repr": NoRepr,
    "text_is_no_text": TextIsNoText,
    "not_to_be_pickled": NotToBePickled,
    "never_equal": NeverEqual,
    "of_a_base_only": OfABaseOnly,
    "holding_a_lambda": holding_a_lambda,
    "caused_by_itself": caused_by_itself,
    "very_long": very_long,
    "of_text_that_cannot_be_stored": of_text_that_cannot_be_stored,
    "deep_group": deep_group,
    "group_of_cancelled": lambda: BaseExceptionGroup("group", [asyncio.CancelledError()]),
    "system_exit": lambda: SystemExit(3),
    "system_exit_with_text": lambda: SystemExit("bye"),
    "keyboard_interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "stop_iteration": StopIteration,
    "stop_async_iteration": StopAsyncIteration,
    "cancelled": asyncio.CancelledError,
    "future_cancelled": concurrent.futures.CancelledError,
    "timeout": TimeoutError,
    "broken_pipe": BrokenPipeError,
    "recursion": RecursionError,
    "memory": MemoryError,
    "recursion_for_real": lambda: _recurse(sys.getrecursionlimit()),
}


def _recurse(levels: int) -> BaseException:
    return _recurse(levels + 1)
