"""How commands speak: one line of error, tables for people, tab-separated lines or JSON for programs.

Owns everything that is written to a terminal. Text of models, users and tools is never trusted
with it: control characters, which could move the cursor or set the title, are shown, not sent.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import structlog
import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adjourn.worker.text.lines import one_line

LAST_COLUMN: Final = 20
"""Characters that the last column of a table has at least; the others are as wide as what they hold."""


def log_only_trouble() -> None:
    """Warnings go to standard error, and less than a warning nowhere: standard output is the command's alone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def say(line: str) -> None:
    """A line of result, on standard output."""
    typer.echo(line)


def note(line: str) -> None:
    """A line about what goes on, on standard error."""
    typer.echo(line, err=True)


def emit_json(value: Any) -> None:
    """Records as indented JSON on standard output."""
    typer.echo(json.dumps(to_jsonable_python(value), indent=2))


def emit_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """A table on a terminal, else one tab-separated line per row without a heading."""
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(map(one_line, row)))
        return
    if not rows:
        note(nothing)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    *fixed, last = columns
    for number, column in enumerate(fixed):
        # Ids are there to be copied: they are neither cut nor folded, however narrow the terminal.
        table.add_column(column, no_wrap=True, min_width=max(len(row[number]) for row in rows))
    table.add_column(last, overflow="fold", min_width=LAST_COLUMN)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console = Console()
    unbounded = console.options.update(max_width=sys.maxsize)
    console.width = max(console.width, console.measure(table, options=unbounded).minimum)
    console.print(table)


class Progress(Protocol):
    """Where a long wait says what it waits for."""

    def __call__(self, line: str) -> None: ...


@contextmanager
def progress() -> Iterator[Progress]:
    """A spinner on a terminal, a plain line per change without one; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield note
        return
    with console.status("") as status:
        yield lambda line: status.update(Text(line))
