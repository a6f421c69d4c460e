"""Things that happen at once: together from a barrier, or crowded in front of a locked row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from tests.waiting import LIMIT_SECONDS, wait_until
from tests.world import World

_WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do all of `works` at once, each in a thread, and return what they returned, in their order."""
    barrier = threading.Barrier(len(works))

    def work(one: Callable[[], Any]) -> Any:
        barrier.wait(LIMIT_SECONDS)
        return one()

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work, one) for one in works]
        return [future.result(LIMIT_SECONDS) for future in futures]


def collide(w: World, run_id: str, works: Sequence[Callable[[], Any]], waiting: int | None = None) -> list[Any]:
    """Let `works` reach the run's row while somebody else holds it, and only then let go of it.

    The order in which they go on is the database's; every one of them has its snapshot from before the first.
    `waiting` is how many of them have to wait for the row: all, unless some have no business with it.
    """
    expected = len(works) if waiting is None else waiting
    with psycopg.connect(w.database_url.replace("+psycopg", "")) as holder:
        holder.execute("select from adjourn.runs where id = %s for update", [run_id])
        with ThreadPoolExecutor(len(works)) as pool:
            futures = [pool.submit(one) for one in works]
            with psycopg.connect(w.database_url.replace("+psycopg", ""), autocommit=True) as watcher:
                wait_until(lambda: watcher.execute(_WAITING).fetchone() == (expected,), LIMIT_SECONDS, "all at the row")
            holder.commit()
            return [future.result(LIMIT_SECONDS) for future in futures]
