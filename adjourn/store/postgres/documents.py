"""JSON texts of rows, and what is wrong with those that cannot be read."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json


def document(text: str) -> Any:
    """A JSON text. Raises `ValueError`, for one that is nested too deeply as well.

    Python's own reader would take what its recursion limit allows, which user code can raise at any time.
    """
    return from_json(text)


def line(error: ValueError) -> str:
    """What is wrong with a stored text, in one line and without the text."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
    return str(error).splitlines()[0]
