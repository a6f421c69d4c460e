"""Retention: lets go of threads that ended long ago, after whoever keeps an archive has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adjourn.store.protocol import Store
from adjourn.store.results import ArchivedThread

BATCH: Final = 100


def prune(store: Store, days: float, keep: Callable[[ArchivedThread], None] | None = None) -> int:
    """Take away every thread of which nothing has moved for so many days. Returns how many went.

    `keep` is given each thread before it goes. A crash in between gives it to `keep` again the next
    time. Threads with a run that has not ended stay, however old. Any number of processes may prune.
    """
    count, after = 0, None
    while batch := store.archive.old(days, BATCH, after):
        for thread_id in batch:
            count += _let_go(store, thread_id, keep)
        after = batch[-1]
    return count


def _let_go(store: Store, thread_id: str, keep: Callable[[ArchivedThread], None] | None) -> bool:
    thread = store.archive.read(thread_id)
    if thread is None:
        return False
    if keep is not None:
        keep(thread)
    return store.archive.delete(thread)
