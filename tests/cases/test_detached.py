"""A suspend that leaves the body's own line: from threads and tasks, waited for or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Context, WaitPoint, call, say, tool
from adjourn.schemas.errors import DetachedSuspendError
from tests.cases.conftest import Build
from tests.world import scripted


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Verdict)
YES = {"approved": True}
SECONDS = 30


def ask(ctx: Context, key: str | None = None) -> bool:
    return ctx.ask(approval, Ask(prompt=f"{key}?"), key=key).approved


def in_a_thread_that_is_joined(ctx: Context) -> str:
    thread = threading.Thread(target=lambda: _quietly(ask, ctx))
    thread.start()
    thread.join()
    return "went on"


def in_a_pool_whose_result_is_dropped(ctx: Context) -> str:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, ctx)
    return "went on"


async def in_a_task_that_is_only_slept_beside(ctx: Context) -> str:
    async def later() -> bool:
        return ask(ctx)

    done, _ = await asyncio.wait([asyncio.create_task(later())])
    assert done.pop().exception() is not None
    return "went on"


@pytest.mark.parametrize(
    "body",
    [in_a_thread_that_is_joined, in_a_pool_whose_result_is_dropped, in_a_task_that_is_only_slept_beside],
)
def test_a_suspend_whose_end_nobody_waits_for_closes_the_call_with_an_error(
    build: Build, body: Callable[[Context], Any]
) -> None:
    w = build(tool(name="ask", wait_points=[approval], retries=3)(body), model=scripted(call("ask"), say("done")))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert output.content.startswith("suspend swallowed: tool 'ask' suspended and its body went on")
    assert "wait for the result of a thread or task that asks" in output.content
    assert (w.pending(), w.run(run_id).status) == ([], "completed")


def test_a_thread_that_asks_when_the_body_has_ended_is_told_so_and_opens_nothing(build: Build) -> None:
    ended, told, threads = threading.Event(), [], []

    @tool(name="ask", wait_points=[approval])
    def leaves(ctx: Context) -> str:
        """Leave a thread behind."""

        def late() -> None:
            assert ended.wait(SECONDS)
            try:
                ask(ctx)
            except DetachedSuspendError as error:
                told.append(str(error))

        threads.append(threading.Thread(target=late))
        threads[0].start()
        return "left"

    w = build(leaves, model=scripted(call("ask"), say("done")))
    run_id = w.start()
    ended.set()
    threads[0].join(SECONDS)
    assert told == [
        "tool 'ask' asked 'approval' after its body had ended, and nothing was opened; "
        "wait for the result of a thread or task that asks"
    ]
    assert ([output.content for output in w.outputs(run_id)], w.pending()) == (["left"], [])


def test_a_task_that_asks_when_the_body_has_ended_is_told_so_and_opens_nothing(build: Build) -> None:
    told: list[BaseException | None] = []
    over = threading.Event()

    @tool(name="ask", wait_points=[approval])
    async def leaves(ctx: Context) -> str:
        """Leave a task behind."""
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            ask(ctx)

        def look(task: asyncio.Task[None]) -> None:
            told.append(task.exception())
            over.set()

        task = asyncio.create_task(late())
        task.add_done_callback(look)
        loop = asyncio.get_running_loop()
        wake.append(lambda: loop.call_soon_threadsafe(ended.set))
        return "left"

    wake: list[Callable[[], Any]] = []
    w = build(leaves, model=scripted(call("ask"), say("done")))
    run_id = w.start()
    wake[0]()
    assert over.wait(SECONDS)
    assert isinstance(told[0], DetachedSuspendError)
    assert (w.pending(), w.run(run_id).status) == ([], "completed")


def test_asks_in_threads_whose_results_are_waited_for_are_waits_like_any_other(build: Build) -> None:
    @tool(name="ask", wait_points=[approval])
    def both(ctx: Context) -> list[bool]:
        """Ask two at once."""
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(ask, ctx, key) for key in ("left", "right")]
        return [each.result() for each in asked]

    w = build(both, model=scripted(call("ask"), say("done")))
    run_id = w.start()
    for action in w.pending(run_id)[::-1]:
        w.answer(action, YES)
    assert [output.content for output in w.outputs(run_id)] == [[True, True]]


def _quietly(work: Callable[..., Any], *args: Any) -> None:
    """Do it, whatever it raises: a thread's own hook would print it."""
    try:
        work(*args)
    except BaseException:
        return
