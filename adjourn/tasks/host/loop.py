"""The one asyncio loop of a process, for model calls and async tools.

A loop per task costs several times the CPU and breaks clients that pool connections, because a
pooled connection belongs to the loop that opened it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Scope:
    """The tasks that a body has started, until it returns."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.open = True

    def close(self) -> None:
        """What is left lives on without us, and so does what it starts."""
        self.open = False
        self.tasks.clear()


_scope: ContextVar[_Scope | None] = ContextVar("adjourn_task_scope", default=None)


class ModelLoop:
    """An asyncio loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(_scoped_task)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="adjourn-loop", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Stop the loop; what still runs on it is dropped."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                # asyncio lets SystemExit and KeyboardInterrupt out of a task and through the loop, besides giving
                # them to the awaiting code. Whatever comes out, it may not end the loop of all other runs.
                log.warning("a task tried to leave the process")


async def awaited(work: Awaitable[T]) -> T:
    """`work` as a coroutine, which is what the loop takes."""
    return await work


async def joined(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`. If it does not return, the tasks that it left are cancelled and awaited before this raises.

    A tool that suspends inside a gather must not have siblings that go on working after its run
    has parked. What a tool leaves running when it returns is its own: a client that it shares
    with later calls may live by such a task.
    """
    scope = _Scope()
    reset = _scope.set(scope)
    try:
        return await work
    except BaseException:
        await _cancelled(scope.tasks)
        raise
    finally:
        scope.close()
        _scope.reset(reset)


async def _cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    while left := [task for task in tasks if not task.done()]:  # one that is cancelled may start another
        for task in left:
            task.cancel()
        await asyncio.wait(left)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # seen, so that asyncio does not log it as never retrieved


def _scoped_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    scope = _scope.get()
    if scope is not None and scope.open:
        scope.tasks.add(task)
    return task
