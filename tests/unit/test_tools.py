"""What cannot be a tool is refused where it is defined, by an error that says why."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from adjourn import Context, tool
from adjourn.schemas.errors import DefinitionError
from adjourn.tasks.blocks.tool_options import OPTION_NAMES

DOCUMENT = Path(__file__).parents[2] / "docs" / "tools.md"


def plain(ctx: Context, x: int, y: int = 3) -> str:
    return f"{x}{y}"


def generator(ctx: Context, x: int) -> Any:
    yield x


async def async_generator(ctx: Context, x: int) -> Any:
    yield x


def positional_context(ctx: Context, /, x: int) -> str:
    return "never called"


def positional(x: int, /) -> str:
    return "never called"


def several(ctx: Context, *x: int) -> str:
    return "never called"


def underscored(ctx: Context, _x: int) -> str:
    return "never called"


def configuring(ctx: Context, model_config: int) -> str:
    return "never called"


def locking(ctx: Context, lock: threading.Lock) -> str:
    return "never called"


def lazy(ctx: Context) -> Iterator[int]:
    return iter(())


def lazy_async(ctx: Context) -> AsyncIterator[int]:
    raise NotImplementedError


class Callable_:
    def __call__(self, ctx: Context, x: int) -> str:
        return "never called"

    def method(self, ctx: Context, x: int) -> str:
        return f"method {x}"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (generator, "generator"),
        (async_generator, "generator"),
        (partial(plain, y=4), "no function"),
        (Callable_(), "no function"),
        (Callable_, "no function"),
        (print, "no function"),
        (positional_context, "'ctx' has no name"),
        (positional, "'x' has no name"),
        (several, "'x' has no name"),
        (underscored, "'_x' cannot be a field"),
        (configuring, "'model_config' cannot be a field"),
        (locking, "parameters make no model"),
        (lazy, "no type that has a JSON form"),
        (lazy_async, "no type that has a JSON form"),
    ],
)
@pytest.mark.parametrize("name", ["named", None])
def test_what_cannot_be_a_tool_is_refused(function: Callable[..., Any], reason: str, name: str | None) -> None:
    with pytest.raises(DefinitionError, match=reason):
        tool(name=name, description="Refused.")(function)


def test_a_method_is_a_function() -> None:
    made: Any = tool(Callable_().method)
    assert made.name == "method"
    assert made(None, x=1) == "method 1"


def test_the_options_of_a_tool_are_those_that_its_page_lists() -> None:
    table = DOCUMENT.read_text().partition("## Options of `@tool`")[2].partition("\n## ")[0]
    names = [name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(OPTION_NAMES)
    assert list(signature(tool).parameters) == ["function", *OPTION_NAMES]
