"""A process that dies at an exact write. What needs a whole worker, or a real signal, is in `tests.deployment`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adjourn.schemas.internal.state import Write, Written
from adjourn.schemas.records.items import OutputItem
from adjourn.store.postgres.runs import starts as runs
from tests.world import World


class Killed(BaseException):
    """The process is gone: nothing that it still does may be seen by anybody."""


class Outage:
    """Kills a world's process at one of its driver's writes, just before the commit or just after it.

    From then on, and until `restart`, that process writes nothing, in whichever thread.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self._write = runs.write
        self._dead = False
        self._before: Callable[[Write], bool] = lambda write: False
        self._after: Callable[[Write], bool] = lambda write: False
        monkeypatch.setattr(runs, "write", self._write_if_alive)

    def before_write(self, number: int) -> None:
        """Die instead of the `number`-th write from now, counted from 1."""
        self.writes = 0
        self._before = lambda write: self.writes == number

    def after_write(self, number: int) -> None:
        """Die when the `number`-th write from now is committed, and before anything is made of it."""
        self.writes = 0
        self._after = lambda write: self.writes == number

    def after_output_of(self, tool: str) -> None:
        """Die when the first output of `tool` is committed."""
        self._after = lambda write: any(isinstance(i, OutputItem) and i.tool == tool for i in write.items)

    def survive(self, w: World, work: Callable[[], Any]) -> None:
        """Do `work`, in which the process has to die."""
        with pytest.raises(Killed):
            work()
        w.wakeups.waiting.clear()

    def restart(self, w: World) -> None:
        """A new process takes over, once the lease of the dead one has run out."""
        self._dead = False
        self._before = self._after = lambda write: False
        w.deploy(w.app)
        w.advance(w.tuning.lease_seconds + 1)
        w.sweep()

    def _write_if_alive(self, db: Any, run_id: str, token: str, revision: int, write: Write, *rest: Any) -> Written:
        self.writes += 1
        self._dead = self._dead or self._before(write)
        if self._dead:
            raise Killed
        written = self._write(db, run_id, token, revision, write, *rest)
        if self._after(write):
            self._dead = True
            raise Killed
        return written
