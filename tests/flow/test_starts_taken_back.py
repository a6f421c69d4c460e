"""A tool that is not repeatable meets code that no longer fits: nobody is asked whether it ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from adjourn import App, Context, WaitPoint, tool
from adjourn.schemas.records.items import StartItem
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.host.builds import Build
from adjourn.tasks.lifecycle.retry import retry
from tests.flow.conftest import Plant
from tests.world import Counters, World


class Ask(BaseModel):
    prompt: str


point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=Ask, resume=bool)


def few(value: int) -> int:
    if value > 10:
        raise ValueError("at most 10")
    return value


Body = Callable[[Context, Counters], Any]


def steps(name: str) -> Body:
    def body(ctx: Context, _: Counters) -> Any:
        ctx.step(name, lambda: 1)
        return ctx.ask(point, Ask(prompt="?"))

    return body


def remembers(returns: Any) -> Body:
    def body(ctx: Context, _: Counters) -> Any:
        ctx.run_once("n", lambda: 20, returns=returns)
        return ctx.ask(point, Ask(prompt="?"))

    return body


def asks(resume: Any) -> Body:
    return lambda ctx, _: ctx.ask(reason="amount", message="?", resume=resume)


def asks_others(*prompts: str) -> Body:
    """Asks another question on every pass: once anew, and then it fails."""

    def body(ctx: Context, seen: Counters) -> Any:
        return ctx.ask(point, Ask(prompt=prompts[min(seen.bump("asked"), len(prompts)) - 1]))

    return body


def of(body: Body, seen: Counters, *, is_async: bool = False) -> Block:
    if is_async:

        async def pay(ctx: Context) -> str:
            """Pay."""
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(asyncio.to_thread(body, ctx, seen))
            return f"{asking.result()} {seen.bump('paid')}"

        return tool(name="pay", repeatable=False, wait_points=[point])(pay)

    def pay_at_once(ctx: Context) -> str:
        """Pay."""
        return f"{body(ctx, seen)} {seen.bump('paid')}"

    return tool(name="pay", repeatable=False, wait_points=[point])(pay_at_once)


MISMATCHES: dict[str, tuple[Body, Body, Any, str]] = {
    "another step": (steps("load"), steps("fetch"), True, "ReplayMismatchError"),
    "a memo of another type": (remembers(int), remembers(list[int]), True, "StoredValueError"),
    "a stricter validator": (asks(int), asks(Annotated[int, AfterValidator(few)]), 20, "StoredValueError"),
    "another type of answer": (asks(int), asks(list[int]), 20, "ToolChangedError"),
}
"""The body that waits, the one of the next build, the answer, and the error."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("before", "after", "answer", "error"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_body_that_stops_at_a_mismatch_begins_again_after_a_retry(
    plant: Plant, counters: Counters, before: Body, after: Body, answer: Any, error: str, is_async: bool
) -> None:
    w = plant(of(before, counters, is_async=is_async))
    run_id = started(w)
    w.answer(w.the_action(run_id), answer, settle=False)
    w.deploy(App(blocks=[of(after, counters, is_async=is_async)]))
    w.settle()
    failed = w.run(run_id).error
    assert failed is not None
    assert (failed.type, counters["paid"]) == (error, 0)
    w.deploy(App(blocks=[of(before, counters, is_async=is_async)]))
    retry(w.services, run_id)
    w.settle()
    assert w.pending() == [], "nobody is asked whether it ran"
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", f"{answer} 1")


@pytest.mark.parametrize(("before", "after", "answer", "error"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_body_that_an_outdated_build_cannot_run_begins_in_the_newer_one(
    plant: Plant, counters: Counters, before: Body, after: Body, answer: Any, error: str
) -> None:
    w = plant(of(before, counters))
    run_id = started(w)
    w.answer(w.the_action(run_id), answer, settle=False)
    old = Build(w.store, "old")
    new = Build(w.store, "new")
    w.deploy(App(blocks=[of(after, counters)]), old)
    w.settle_one()
    assert (w.run(run_id).status, counters["paid"]) == ("queued", 0), "left to the newer build"
    w.deploy(App(blocks=[of(before, counters)]), new)
    w.settle()
    assert (w.pending(), w.run(run_id).output) == ([], f"{answer} 1")


def test_a_question_that_an_outdated_build_would_ask_anew_leaves_no_start_behind(
    plant: Plant, counters: Counters
) -> None:
    w = plant(of(asks_others("old?"), counters))
    run_id = started(w)
    w.answer(w.the_action(run_id), True, settle=False)
    old, new = Build(w.store, "old"), Build(w.store, "new")
    w.deploy(App(blocks=[of(asks_others("another?"), counters)]), old)
    w.settle_one()
    w.deploy(App(blocks=[of(asks_others("old?"), counters)]), new)
    w.settle()
    assert (w.pending(), w.run(run_id).output) == ([], "True 1")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_that_goes_on_after_a_mismatch_is_asked_about(plant: Plant, counters: Counters, is_async: bool) -> None:
    def swallows(ctx: Context, seen: Counters) -> Any:
        try:
            ctx.step("fetch", lambda: 1)
        except Exception:
            seen.bump("went on")
        return True

    w = plant(of(steps("load"), counters, is_async=is_async))
    run_id = started(w)
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(App(blocks=[of(swallows, counters, is_async=is_async)]))
    w.settle()
    failed = w.run(run_id).error
    assert failed is not None
    assert (failed.type, counters["paid"]) == ("ReplayMismatchError", 1)
    w.deploy(App(blocks=[of(steps("load"), counters, is_async=is_async)]))
    retry(w.services, run_id)
    w.settle()
    assert w.the_action(run_id).name == "pay.outcome"
    assert counters["paid"] == 1


def test_a_task_that_did_something_else_beside_a_mismatch_is_asked_about(plant: Plant, counters: Counters) -> None:
    def made(step: str) -> Block:
        @tool(name="pay", repeatable=False, wait_points=[point])
        async def pay(ctx: Context) -> str:
            """Pay."""

            async def effect() -> None:
                counters.bump("paid")
                raise ConnectionError("the bank has hung up")

            if ctx.suspend_history:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.to_thread(ctx.step, step, lambda: 1))
                    group.create_task(effect())
            ctx.step("load", lambda: 1)
            return str(ctx.ask(point, Ask(prompt="?")))

        return pay

    w = plant(made("load"))
    run_id = started(w)
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(App(blocks=[made("fetch")]))
    w.settle()
    failed = w.run(run_id).error
    if failed is not None and failed.type == "ReplayMismatchError":
        retry(w.services, run_id)
        w.settle()
        assert w.the_action(run_id).name == "pay.outcome"
    assert counters["paid"] == 1


def test_the_log_says_that_a_start_was_taken_back(plant: Plant, counters: Counters) -> None:
    w = plant(of(steps("load"), counters))
    run_id = started(w)
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(App(blocks=[of(steps("fetch"), counters)]))
    w.settle()
    starts = [item.body for item in w.items(run_id) if isinstance(item.body, StartItem)]
    assert [start.taken_back for start in starts] == [False, False, True]


def started(w: World) -> str:
    run_id = w.enqueue(agent="pay", data={}).run_id
    w.settle()
    return run_id
