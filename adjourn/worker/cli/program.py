"""The `adjourn` program: its commands put together, and what becomes of an error.

Every error that Adjourn raises on purpose is one line on standard error and exit code 1; a wrong
use of a command is exit code 2.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adjourn import __version__
from adjourn.schemas.errors import AdjournError
from adjourn.worker.cli import answers, checks, runs, schemas, servers, upkeep
from adjourn.worker.cli.output import log_only_trouble, note, say
from adjourn.worker.text.lines import one_line


class _Commands(TyperGroup):
    """Commands in the order in which a newcomer needs them, with errors told in one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AdjournError as error:
            note(one_line(f"Error: {error}"))
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="AI agents that stop at a typed wait point and go on when the answer comes.",
)
for command in (
    servers.demo,
    servers.dev,
    servers.worker,
    servers.migrate,
    runs.run,
    runs.retry,
    runs.threads,
    runs.fork,
    runs.show,
    answers.pending,
    answers.action,
    answers.answer,
    answers.cancel,
    answers.fail,
    answers.credential,
    schemas.schema,
    checks.doctor,
    checks.check,
    upkeep.prune,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    log_only_trouble()


def main() -> None:
    """Run the program on the command line of this process."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    app(prog_name="adjourn")
