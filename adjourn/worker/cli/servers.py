"""Commands that run things: the worker, the migrations, everything for development, the demo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from adjourn.store.migrations import upgrade
from adjourn.worker.cli.options import AppOption, refuse_without
from adjourn.worker.cli.output import say
from adjourn.worker.config.deployment import find_deployment
from adjourn.worker.config.settings import ROLES, redacted
from adjourn.worker.dev import demo as the_demo
from adjourn.worker.dev import development
from adjourn.worker.dev.processes import LIFELINE, stop_when_stdin_closes
from adjourn.worker.process.logs import configure
from adjourn.worker.process.worker_process import WorkerProcess

DataDirOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="Where the embedded servers keep their data.")
]


def worker(
    app: AppOption = None,
    roles: Annotated[
        str | None, typer.Option(help=f"Comma-separated parts to run apart from the rest: {', '.join(ROLES)}.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Turns in flight at once.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    until_stdin_closes: Annotated[bool, typer.Option(LIFELINE, hidden=True)] = False,
) -> None:
    """Run a worker until it is told to stop: turns, answers and the sweep.

    Example: adjourn worker --app reports:app --concurrency 200
    """
    settings = find_deployment(app=app, roles=roles, concurrency=concurrency, log_level=log_level)
    refuse_without("--concurrency", concurrency, "the role `turns`", "turns" in settings.roles)
    # Suspect runs get processes of their own, which know the deployment by their environment alone.
    os.environ.update(settings.as_environment())
    configure(settings.log_level)
    if until_stdin_closes:
        stop_when_stdin_closes()
    raise typer.Exit(WorkerProcess(settings).run())


def migrate() -> None:
    """Bring the database to the newest schema. Safe to run twice, and at once.

    Example: ADJOURN_DATABASE_URL=postgresql://… adjourn migrate
    """
    url = find_deployment().database
    upgrade(url)
    say(f"the database at {redacted(url)} is up to date")


def dev(
    app: AppOption = None,
    data_dir: DataDirOption = None,
    watch: Annotated[
        list[Path] | None, typer.Option(exists=True, help="Restart the worker when files here change; by default here.")
    ] = None,
) -> None:
    """Run everything on this machine, PostgreSQL and Valkey included, and restart the worker when your code changes.

    Example: adjourn dev --app reports:app
    """
    development.run(app, data_dir, watch or [Path.cwd()], say)


def demo(data_dir: DataDirOption = None) -> None:
    """Run an agent until it parks, kill its worker, answer through the queue, watch another worker finish it.

    Example: adjourn demo
    """
    the_demo.run(data_dir, say)
