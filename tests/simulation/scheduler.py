"""Processes and threads that are none: one at a time, in an order that a seed decides, killed at will.

A task is a greenlet. It runs until it comes to a point where it gives way; whoever drives the
scheduler says who goes on. Time is the database's and moves only when it is moved. Knows nothing
of runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from greenlet import getcurrent, greenlet

from adjourn.tasks.host.leases import Lease


class Killed(BaseException):
    """The process is gone. Raised at every point that a task of it still comes to."""


class Process:
    """What dies together."""

    def __init__(self, name: str, skew: timedelta = timedelta()) -> None:
        self.name = name
        self.skew = skew
        """How wrong its clock is."""
        self.alive = True
        self.stopping = False
        self.frozen_until: datetime | None = None
        self.leases: dict[str, Lease] = {}
        self.left: list[Lease] = []
        """Of runs that it could not go on with because PostgreSQL was not reached."""


class Task:
    """A thread of a process."""

    def __init__(self, process: Process, name: str, work: Callable[[], None]) -> None:
        self.process, self.name = process, name
        self.sleeps_until: datetime | None = None
        self.waits_for: Callable[[], bool] | None = None
        self.token: str | None = None
        """The claim that it works under."""
        self.errand: Errand | None = None
        """What it has given to the loop, and may see cancelled."""
        self._work = work
        self.greenlet: Any = None

    def run(self) -> None:
        self._work()

    @property
    def done(self) -> bool:
        return bool(self.greenlet.dead)

    def ready(self, now: datetime) -> bool:
        if not self.process.alive:
            return True
        frozen = self.process.frozen_until
        if (frozen is not None and frozen > now) or (self.sleeps_until is not None and self.sleeps_until > now):
            return False
        return self.waits_for is None or self.waits_for()


class Scheduler:
    """All tasks of all processes."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self._hub = getcurrent()
        self._deaths = False
        """Whether a process has died that is not buried yet."""

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        """A new task. It begins when it is first resumed. `work` lets out no error, not even `Killed`."""
        task = Task(process, name, work)
        task.greenlet = greenlet(task.run, parent=self._hub)
        if self.current is not None and self.current.process is process:
            task.token = self.current.token
        self.tasks.append(task)
        return task

    def ready(self, now: datetime) -> list[Task]:
        return [task for task in self.tasks if task.ready(now)]

    def resume(self, task: Task) -> None:
        """Let it go on until it gives way or ends."""
        self.current = task
        task.greenlet.switch()
        self.current = None
        if task.done:
            self.tasks.remove(task)

    def me(self) -> Task:
        assert self.current is not None, "only a task can do this"
        return self.current

    def give_way(self) -> None:
        """Let others go first. Raises `Killed` if the process died meanwhile."""
        task = self.me()
        if task.process.alive:
            self._hub.switch()
        task.sleeps_until = None
        self.check()

    def check(self) -> None:
        """Raises what the task at work has to be told: that it is dead, or that its errand is cancelled."""
        task = self.me()
        if not task.process.alive:
            raise Killed
        if task.errand is not None and task.errand.cancelled:
            task.errand = None
            raise asyncio.CancelledError

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Give way until `condition` holds."""
        task = self.me()
        while not condition():
            task.waits_for = condition
            try:
                self.give_way()
            finally:
                task.waits_for = None

    def kill(self, process: Process) -> None:
        """End a process. Its tasks find out at the next point that they come to, at the latest when they are buried."""
        process.alive = False
        process.leases.clear()
        self._deaths = True

    def bury(self) -> None:
        """Unwind the tasks of dead processes."""
        if not self._deaths:
            return
        self._deaths = False
        while dead := [task for task in self.tasks if not task.process.alive]:
            self.resume(dead[0])


class Lock:
    """`threading.RLock` between tasks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = self._scheduler.me()
        if self._owner is not me:
            self._scheduler.wait_for(lambda: self._owner is None)
            self._owner = me
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class Pool:
    """`ThreadPoolExecutor`: tasks of the process that makes it."""

    def __init__(self, scheduler: Scheduler, max_workers: int, name: str) -> None:
        self._scheduler, self._most, self._name = scheduler, max_workers, name
        self._submitted: list[Submitted] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.wait_for(lambda: all(each.done for each in self._submitted))

    def submit(self, work: Callable[[], None]) -> Submitted:
        before = self._submitted[: max(0, len(self._submitted) + 1 - self._most)]
        submitted = Submitted(work, before)
        submitted.task = self._scheduler.spawn(
            self._scheduler.me().process, self._name, lambda: submitted.run(self._scheduler)
        )
        self._submitted.append(submitted)
        return submitted


class Submitted:
    """A future of `Pool`. Runs when all but the newest of those before it have ended."""

    def __init__(self, work: Callable[[], None], before: Sequence[Submitted]) -> None:
        self._work, self._before = work, before
        self._error: BaseException | None = None
        self.task: Task | None = None

    @property
    def done(self) -> bool:
        return self.task is not None and self.task.done

    def run(self, scheduler: Scheduler) -> None:
        try:
            scheduler.wait_for(lambda: all(each.done for each in self._before))
            self._work()
        except BaseException as error:
            self._error = error

    def result(self) -> None:
        if self._error is not None:
            raise self._error


class Errand:
    """A future of `Loop`: run by whoever waits for it."""

    def __init__(self, scheduler: Scheduler, work: Coroutine[Any, Any, Any]) -> None:
        self._scheduler, self._work = scheduler, work
        self.cancelled = False
        self._ended = False

    def cancel(self) -> bool:
        self.cancelled = True
        return True

    def done(self) -> bool:
        """Whether the work has ended, in whatever way. It has not if its process died."""
        return self._ended

    def result(self, timeout: float | None = None) -> Any:
        task = self._scheduler.me()
        before, task.errand = task.errand, self
        try:
            self._work.send(None)
        except StopIteration as stop:
            self._ended = True
            return stop.value
        except asyncio.CancelledError:
            self._ended = True
            raise CancelledError from None
        except Killed:
            raise
        except BaseException:
            self._ended = True
            raise
        finally:
            task.errand = before
        raise AssertionError("nothing in a simulation waits for a real loop")


class Loop:
    """`ModelLoop` without a loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(self, work: Coroutine[Any, Any, Any]) -> Errand:
        return Errand(self._scheduler, work)
