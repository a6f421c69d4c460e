"""Commands for upkeep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.results import ArchivedThread
from adjourn.tasks.lifecycle import retention
from adjourn.worker.cli.output import say
from adjourn.worker.config.deployment import find_deployment


def prune(
    days: Annotated[float, typer.Option(min=0, help="Threads of which nothing has moved for so long.")],
    archive: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Add each thread to this file first, one JSON object per line.")
    ] = None,
) -> None:
    """Delete threads that ended long ago. Threads with a run that has not ended always stay.

    Example: adjourn prune --days 90 --archive threads.jsonl
    """
    store = PostgresStore(Database(find_deployment().database, pool_size=1))
    try:
        if archive is None:
            count = retention.prune(store, days)
        else:
            with archive.open("a", encoding="utf-8") as file:

                def keep(thread: ArchivedThread) -> None:
                    file.write(thread.model_dump_json() + "\n")
                    file.flush()

                count = retention.prune(store, days, keep)
    finally:
        store.close()
    say(f"{count} {'thread' if count == 1 else 'threads'} deleted")
