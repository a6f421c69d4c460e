"""Finds `await ctx.ask(...)` in the source of an async tool: a mistake that would else show after a person answered."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Final

_NOT_AWAITED: Final = frozenset({"ask", "ask_any", "suspend", "request"})


def awaited_ask(function: Callable[..., Any], context: str) -> str | None:
    """Return the method of the context that the function awaits by mistake; None if there is none to be seen."""
    if not inspect.iscoroutinefunction(function):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # made at run time, or a part of a longer line
        return None
    for node in ast.walk(tree):
        match node:
            case ast.Await(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
                if name == context and method in _NOT_AWAITED:
                    return method
    return None
