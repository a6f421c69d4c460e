"""A process that dies at an exact write. What needs a whole worker, or a real signal, is in `tests.deployment`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adjourn.schemas.internal.state import Write
from adjourn.schemas.records.items import OutputItem
from adjourn.store.faulty import Act
from tests.world import World

WRITE = "claims.write"


class Killed(BaseException):
    """The process is gone: nothing that it still does may be seen by anybody."""


class Outage:
    """Kills a world's process at one of its driver's writes, just before the commit or just after it.

    From then on, and until `restart`, that process writes nothing, in whichever thread.
    """

    def __init__(self) -> None:
        self.writes = 0
        self._dead = False
        self._before: Callable[[Write], bool] = lambda write: False
        self._after: Callable[[Write], bool] = lambda write: False

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

    def watch(self, w: World) -> None:
        """Count the writes of a world."""
        w.store.before, w.store.after = self._meet, self._leave

    def survive(self, w: World, work: Callable[[], Any]) -> None:
        """Do `work`, in which the process has to die."""
        self.watch(w)
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

    def _meet(self, act: Act) -> None:
        if act.name != WRITE:
            return
        self.writes += 1
        self._dead = self._dead or self._before(act.args[-1])
        if self._dead:
            raise Killed

    def _leave(self, act: Act, _: Any) -> None:
        if act.name == WRITE and self._after(act.args[-1]):
            self._dead = True
            raise Killed
