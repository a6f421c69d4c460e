"""What catches exceptions does not catch a suspend, in whatever way the tool is written."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from adjourn import Context, Resume, Tool, ToolError, tool
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, YES, Done, Question, Verdict, asking, q
from tests.world import Counters, scripted


def ask(ctx: Context, key: str | None = None) -> Verdict:
    return ctx.ask(q, Question(prompt=f"May {key or 'it'} be?"), key=key)


async def ask_later(ctx: Context, key: str | None = None) -> Verdict:
    await asyncio.sleep(0)
    return ask(ctx, key)


def caught_and_returned(ctx: Context) -> Any:
    try:
        return ask(ctx).note
    except Exception as error:
        return f"error: {error}"


def suppressed(ctx: Context) -> Any:
    with contextlib.suppress(Exception):
        return ask(ctx).note
    return "error: suppressed"


def retried_by_hand(ctx: Context) -> Any:
    for _ in range(3):
        try:
            return ask(ctx).note
        except Exception:
            continue
    return "error: out of retries"


def wrapped_in_another_error(ctx: Context) -> Any:
    try:
        return ask(ctx).note
    except Exception as error:
        raise RuntimeError("tool failed") from error


@contextmanager
def turning_errors_into_tool_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ToolError(str(error)) from error


def in_a_context_manager(ctx: Context) -> Any:
    with turning_errors_into_tool_errors():
        return ask(ctx).note


def cleaned_up_and_raised_again(ctx: Context) -> Any:
    try:
        return ask(ctx).note
    except BaseException:
        raise
    finally:
        ctx.entry  # noqa: B018 (a finally that does something)


def in_a_thread_of_a_pool(ctx: Context) -> Any:
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(ask, ctx).result().note
        except Exception as error:
            return f"error: {error}"


async def awaited_and_caught(ctx: Context) -> Any:
    try:
        return (await ask_later(ctx)).note
    except Exception as error:
        return f"error: {error}"


async def in_a_task(ctx: Context) -> Any:
    try:
        return (await asyncio.create_task(ask_later(ctx))).note
    except Exception as error:
        return f"error: {error}"


async def under_a_timeout(ctx: Context) -> Any:
    try:
        async with asyncio.timeout(30):
            return (await asyncio.wait_for(ask_later(ctx), 30)).note
    except Exception as error:
        return f"error: {error}"


async def shielded(ctx: Context) -> Any:
    try:
        return (await asyncio.shield(ask_later(ctx))).note
    except Exception as error:
        return f"error: {error}"


async def in_a_thread(ctx: Context) -> Any:
    try:
        return (await asyncio.to_thread(ask, ctx)).note
    except Exception as error:
        return f"error: {error}"


async def in_a_task_group(ctx: Context) -> Any:
    try:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ask_later(ctx))
        return asked.result().note
    except Exception as error:
        return f"error: {error}"


async def in_nested_task_groups(ctx: Context) -> Any:
    try:
        async with asyncio.TaskGroup() as outer:
            asked = outer.create_task(_in_a_group_of_its_own(ctx))
        return asked.result().note
    except* Exception as errors:
        raise RuntimeError("tool failed") from errors


async def _in_a_group_of_its_own(ctx: Context) -> Verdict:
    async with asyncio.TaskGroup() as inner:
        asked = inner.create_task(ask_later(ctx))
    return asked.result()


WRAPPERS = (
    caught_and_returned,
    suppressed,
    retried_by_hand,
    wrapped_in_another_error,
    in_a_context_manager,
    cleaned_up_and_raised_again,
    in_a_thread_of_a_pool,
    awaited_and_caught,
    in_a_task,
    under_a_timeout,
    shielded,
    in_a_thread,
    in_a_task_group,
    in_nested_task_groups,
)
NAMES = [body.__name__ for body in WRAPPERS]


def test_a_suspend_passes_through_whatever_catches_exceptions(build: Build) -> None:
    """All of them in one turn, each in a tool with retries: every one parks, and no retry is used."""
    fx = Counters()
    tools = [tool(name=body.__name__, wait_points=[q], retries=3)(counted(body, fx)) for body in WRAPPERS]
    w = build(*tools, model=scripted([call(each.name) for each in tools], say("done"), counters=fx))
    run_id = w.start()
    assert [output.content for output in w.outputs(run_id)] == []
    assert {action.name for action in w.pending(run_id)} == {f"{name}.q" for name in NAMES}
    assert {name: fx[name] for name in NAMES} == dict.fromkeys(NAMES, 1)
    assert w.run(run_id).status == "parked"

    for action in w.pending(run_id):
        w.answer(action, {"approved": True, "note": action.origin.tool})
    assert {output.tool: output.content for output in w.outputs(run_id)} == {name: name for name in NAMES}
    assert {name: fx[name] for name in NAMES} == dict.fromkeys(NAMES, 2)
    assert (w.run(run_id).status, fx["model"]) == ("completed", 2)


def counted(body: Callable[..., Any], fx: Counters) -> Callable[..., Any]:
    """`body`, bumping its own name at every pass."""
    if asyncio.iscoroutinefunction(body):

        async def async_pass(ctx: Context) -> Any:
            fx.bump(body.__name__)
            return await body(ctx)

        return async_pass

    def one_pass(ctx: Context) -> Any:
        fx.bump(body.__name__)
        return body(ctx)

    return one_pass


@pytest.mark.parametrize("way", WAYS)
def test_retries_before_and_after_the_wait_count_exceptions_only(build: Build, way: str) -> None:
    """A tool that fails twice before it asks and twice before it is done needs two retries of each pass."""
    fx, tries = Counters(), Counters()
    inner = asking(way, fx, name="ask")

    def flaky(ctx: Context, x: int) -> Done:
        if tries.bump(f"pass {len(ctx.suspend_history)}") <= 2:
            raise ConnectionError("not now")
        done: Done = inner.function(ctx, x)
        return done

    async def async_flaky(ctx: Context, x: int) -> Done:
        done: Done = await flaky(ctx, x)  # type: ignore[misc]
        return done

    body = async_flaky if way.startswith("async") else flaky
    w = build(
        tool(name="ask", wait_points=[q], retries=2, description="Ask, flakily.")(body),
        model=scripted(call("ask", x=1), say("done")),
    )
    run_id = w.start()
    assert (w.run(run_id).status, w.outputs(run_id)) == ("parked", [])
    w.answer(w.the_action(run_id), YES)
    assert [output.outcome for output in w.outputs(run_id)] == ["success"]
    assert (tries.seen, fx["fx"]) == ({"pass 0": 3, "pass 1": 3}, 1)


def test_a_tool_that_swallows_its_suspend_is_told_so_and_opens_nothing(build: Build) -> None:
    fx = Counters()

    def bare(ctx: Context) -> str:
        try:
            return str(ask(ctx))
        except:  # noqa: E722
            return "went on"

    def raising_another(ctx: Context) -> str:
        try:
            return str(ask(ctx))
        except BaseException:
            raise ValueError("went wrong") from None

    async def gathered(ctx: Context) -> str:
        return str(await asyncio.gather(ask_later(ctx), return_exceptions=True))

    bodies = (bare, raising_another, gathered)
    tools = [tool(name=each.__name__, wait_points=[q], retries=3)(counted(each, fx)) for each in bodies]
    w = build(*tools, model=scripted([call(each.name) for each in tools], say("done")))
    run_id = w.start()
    for output in w.outputs(run_id):
        assert output.outcome == "error"
        assert output.content == (
            f"suspend swallowed: tool {output.tool!r} suspended and its body went on; let BaseException pass, "
            "and wait for the result of a thread or task that asks"
        )
        assert fx[output.tool] == 1, "a swallowed suspend is not tried again"
    assert (len(w.outputs(run_id)), w.pending(), w.run(run_id).status) == (3, [], "completed")


def gather(fx: Counters) -> Tool[..., Any]:
    async def one(ctx: Context, key: str) -> str | None:
        return (await ask_later(ctx, key)).note

    @tool(name="both", wait_points=[q])
    async def both(ctx: Context) -> list[str | None]:
        """Ask side by side with gather."""
        fx.bump("passes")
        return list(await asyncio.gather(one(ctx, "left"), one(ctx, "right")))

    return both


def group(fx: Counters) -> Tool[..., Any]:
    @tool(name="both", wait_points=[q])
    async def both(ctx: Context) -> list[str | None]:
        """Ask side by side with a task group."""
        fx.bump("passes")
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask_later(ctx, key)) for key in ("left", "right")]
        return [each.result().note for each in asked]

    return both


@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("both", [gather, group])
def test_waits_side_by_side_in_one_tool_are_answered_in_any_order(
    build: Build, both: Callable[[Counters], Tool[..., Any]], first: str
) -> None:
    fx = Counters()
    w = build(both(fx), model=scripted(call("both"), say("done"), counters=fx))
    run_id = w.start()
    asked = {action.input["prompt"].split()[1]: action for action in w.pending(run_id)}
    assert sorted(asked) == ["left", "right"]
    for key in [first, *(asked.keys() - {first})]:
        assert w.outputs(run_id) == []
        w.answer(asked[key], {"approved": True, "note": key})
    assert [output.content for output in w.outputs(run_id)] == [["left", "right"]]
    assert (fx["passes"], fx["model"], w.run(run_id).status) == (2, 2, "completed")


@pytest.mark.parametrize("first", ["left", "right"])
def test_the_entry_after_waits_side_by_side_is_the_one_asked_last_whichever_ended_last(
    build: Build, first: str
) -> None:
    @tool(wait_points=[q])
    async def both(ctx: Context) -> str:
        """Ask side by side, and say which of them the entry is."""
        await asyncio.gather(ask_later(ctx, "left"), ask_later(ctx, "right"))
        assert isinstance(ctx.entry, Resume)
        return str(ctx.entry.resume.note)

    w = build(both, model=scripted(call("both"), say("done")))
    run_id = w.start()
    asked = {action.input["prompt"].split()[1]: action for action in w.pending(run_id)}
    for key in [first, *(asked.keys() - {first})]:
        w.answer(asked[key], {"approved": True, "note": key})
    assert [output.content for output in w.outputs(run_id)] == ["right"]


def test_siblings_of_a_suspended_task_are_stopped_before_the_run_parks(build: Build) -> None:
    fx = Counters()
    ended = threading.Event()

    async def works_on() -> None:
        try:
            await asyncio.sleep(60)
            fx.bump("worked on")
        finally:
            ended.set()

    @tool(wait_points=[q])
    async def both(ctx: Context) -> str | None:
        """Ask while something else runs, and leave that behind."""
        left_behind = asyncio.create_task(works_on())
        await asyncio.sleep(0)
        verdict = await ask_later(ctx)
        left_behind.cancel()
        return verdict.note

    w = build(both, model=scripted(call("both"), say("done")))
    run_id = w.start()
    assert ended.is_set()
    assert w.run(run_id).status == "parked"
    w.answer(w.the_action(run_id), YES)
    assert (w.run(run_id).status, fx["worked on"]) == ("completed", 0)


def test_what_a_tool_leaves_running_when_it_returns_serves_its_next_call(build: Build) -> None:
    """As a client does that reads its connection in a task of its own, made by whoever uses it first."""
    requests: list[asyncio.Queue[asyncio.Future[str]]] = []
    readers: list[asyncio.Task[None]] = []

    async def serve(queue: asyncio.Queue[asyncio.Future[str]]) -> None:
        while True:
            (await queue.get()).set_result("served")

    @tool(timeout=timedelta(seconds=20))
    async def use(ctx: Context) -> str:
        """Use a shared client."""
        if not requests:
            requests.append(asyncio.Queue())
            readers.append(asyncio.create_task(serve(requests[0])))
        request: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        requests[0].put_nowait(request)
        return await request

    w = build(use, model=scripted(call("use"), call("use"), say("done")))
    run_id = w.start()
    assert [output.content for output in w.outputs(run_id)] == ["served", "served"]
    w.services.loop.submit(stop(readers)).result(20)


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def group_of_both(ctx: Context) -> str:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask_later(ctx))
        tasks.create_task(_fail())
    return "never"


async def gather_the_error_first(ctx: Context) -> str:
    return str(await asyncio.gather(_fail(), ask_later(ctx)))


async def error_after_a_forgotten_ask(ctx: Context) -> str:
    asked = asyncio.create_task(ask_later(ctx))
    await asyncio.wait([asked])
    raise ValueError("wrong")


@pytest.mark.parametrize("body", [group_of_both, gather_the_error_first, error_after_a_forgotten_ask])
def test_an_error_beside_a_suspend_is_the_tools_error_and_is_tried_again(
    build: Build, body: Callable[..., Any]
) -> None:
    fx = Counters()
    both = tool(name="both", description="Ask and fail at once.", wait_points=[q], retries=1)(counted(body, fx))
    w = build(both, model=scripted(call("both"), say("done")))
    run_id = w.start()
    assert [(o.outcome, o.content) for o in w.outputs(run_id)] == [("error", "ValueError: wrong")]
    assert (fx[body.__name__], w.pending(), w.run(run_id).status) == (2, [], "completed")


async def _fail() -> None:
    await asyncio.sleep(0)
    raise ValueError("wrong")
