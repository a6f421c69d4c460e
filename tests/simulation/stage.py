"""The stage: for as long as it is set, the deciding core works on the simulated world that is `here`.

Threads and locks, randomness and the clocks of processes are replaced where the core takes them from, and nowhere
else. The store in memory is handed to it, as any store is. Its code is unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from adjourn.schemas.records import ids
from adjourn.tasks.execution import drive, writer
from tests.simulation.scheduler import Lock, Pool

if TYPE_CHECKING:
    from tests.simulation.world import World

_worlds: list[World] = []


def here() -> World:
    """The world that is simulated now."""
    return _worlds[-1]


@contextmanager
def simulating(world: World) -> Iterator[None]:
    """Make a world the one that is `here`."""
    _worlds.append(world)
    try:
        yield
    finally:
        _worlds.pop()


@contextmanager
def stage() -> Iterator[None]:
    """Set the stage."""
    places: list[tuple[Any, dict[str, Any]]] = [
        (drive, {"ThreadPoolExecutor": _pool}),
        (writer, {"threading": SimpleNamespace(RLock=_lock)}),
        (ids, {"secrets": _Secrets, "time": SimpleNamespace(time=lambda: here().clock().timestamp())}),
    ]
    patches = [patch.multiple(module, **names) for module, names in places]
    quiet = logging.root.manager.disable
    for each in patches:
        each.start()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(quiet)
        for each in patches:
            each.stop()


def _lock() -> Lock:
    return Lock(here().scheduler)


def _pool(max_workers: int, *, thread_name_prefix: str) -> Pool:
    return Pool(here().scheduler, max_workers, thread_name_prefix)


class _Secrets:
    """`secrets`, as the seed has it."""

    @staticmethod
    def token_bytes(count: int) -> bytes:
        return here().dice.randbytes(count)

    @staticmethod
    def token_hex(count: int) -> str:
        return here().dice.randbytes(count).hex()
