"""Options that several commands share, and how a command comes by its client and by JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from adjourn.schemas.strict_json import JsonValue, parse
from adjourn.worker.client.client import Client
from adjourn.worker.config.deployment import find_deployment
from adjourn.worker.process.assembly import load_app

MOST_ROWS: Final = 100_000
"""That a command lists. They are held in memory until they are printed."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTR", help="Your App, instead of ADJOURN_APP. Looked for here first."),
]
LimitOption = Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="How many, at most.")]
TimeoutOption = Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Give up waiting after this long.")]


def refuse_without(option: str, given: object, needed: str, has: bool) -> None:
    """Raise a usage error for an option that does nothing without another one."""
    if given is not None and not has:
        raise typer.BadParameter(f"it has no effect without {needed}: give both, or neither", param_hint=option)


@contextmanager
def client(app: str | None = None) -> Iterator[Client]:
    """A client of the deployment of the environment, or of the embedded servers that run.

    It knows the agents if an app is named by `app` or by ADJOURN_APP.
    """
    settings = find_deployment(app=app)
    with Client(settings, app=load_app(settings.app) if settings.app else None) as made:
        yield made


def parsed(data: str, max_bytes: int, max_depth: int) -> JsonValue:
    """A value given as JSON; `-` reads it from standard input. Raises `MalformedJsonError`, `TooLargeError`."""
    # One byte over the limit is enough to know that it is too large.
    raw = sys.stdin.buffer.read(max_bytes + 1) if data == "-" else data
    return parse(raw, max_bytes=max_bytes, max_depth=max_depth)
