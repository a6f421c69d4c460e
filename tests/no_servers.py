"""Refuses the start of servers while a test runs that is not marked `servers`: `make test-fast` has to stay fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SERVERS: Final = ("supervisor.py", "postgres", "initdb", "valkey-server", "redis-server", "rabbitmq-server", "epmd")
STARTS_NOTHING: Final = frozenset({"--version", "-kill"})
"""Options with which a server's program only answers, or stops one: the servers of all tests end with the last one."""

_running: list[str] = []
"""The test that may start no server; none where it is empty. An audit hook cannot be removed, so it looks here."""


class ServerStartedError(AssertionError):
    """A test that is not marked `servers` has started one."""


@contextmanager
def no_servers(test: str) -> Iterator[None]:
    """Inside, every start of a server from this process raises `ServerStartedError`."""
    if not _running:
        sys.addaudithook(_refuse)
    _running[:] = [test]
    try:
        yield
    finally:
        _running[:] = [""]


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or not any(_running):
        return
    command = args[1] if isinstance(args[1], list | tuple) else [args[1]]
    words = [os.path.basename(os.fsdecode(word)) for word in command]
    if STARTS_NOTHING.isdisjoint(words) and any(word in SERVERS for word in words):
        raise ServerStartedError(
            f"{_running[0]} starts {' '.join(words)!r}, but uses no fixture that would mark it `servers`"
        )
