"""Memoized steps: known by position and name, done once, and a pass that takes others is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, WaitPoint, call, tool
from adjourn.schemas.records.items import MemoItem
from tests.world import AGENT, Counters, scripted, world


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Verdict)
YES = {"approved": True}


def test_steps_are_done_once_across_waits_and_a_name_may_come_again(database_url: str, redis_url: str) -> None:
    fx = Counters()

    @tool(wait_points=[approval])
    def walk(ctx: Context) -> list[Any]:
        """Take steps."""
        taken: list[Any] = [ctx.step("when", lambda: date(2026, 1, 1 + fx.bump("when")), returns=date).isoformat()]
        for number in range(3):
            taken.append(ctx.step("room", lambda: fx.bump("room")))
            ctx.ask(approval, Ask(prompt=f"after room {number}?"))
        return taken

    with world(database_url, redis_url, walk, model=scripted(call("walk"), "done")) as w:
        run_id = w.start()
        for _ in range(3):
            w.deploy(w.app)
            w.answer(w.the_action(run_id), YES)
        (output,) = w.outputs(run_id)
        assert output.content == ["2026-01-02", 1, 2, 3]
        assert fx.seen == {"when": 1, "room": 3}
        assert len([item for item in w.items(run_id) if isinstance(item.body, MemoItem)]) == 4


def test_async_steps(database_url: str, redis_url: str) -> None:
    fx = Counters()

    @tool(wait_points=[approval])
    async def walk(ctx: Context) -> int:
        """Take steps."""

        async def one() -> int:
            await asyncio.sleep(0)
            return fx.bump("one")

        first = await ctx.step("one", one)
        ctx.ask(approval, Ask(prompt="?"))
        return first * 10 + await ctx.step("one", one)

    with world(database_url, redis_url, walk, model=scripted(call("walk"), "done")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == [12]
        assert fx["one"] == 2


def test_an_async_function_behind_a_lambda_is_awaited_on_every_pass(database_url: str, redis_url: str) -> None:
    fx = Counters()

    async def one(name: str) -> int:
        await asyncio.sleep(0)
        return fx.bump(name)

    @tool(wait_points=[approval])
    async def walk(ctx: Context) -> list[int]:
        """Take steps."""
        taken = [await ctx.run_once("a", lambda: one("a")), await ctx.step("b", lambda: one("b"))]
        ctx.ask(approval, Ask(prompt="?"))
        return taken

    with world(database_url, redis_url, walk, model=scripted(call("walk"), "done")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == [[1, 1]]
        assert fx.seen == {"a": 1, "b": 1}


def test_a_record_of_a_sync_function_serves_the_async_one_of_the_next_build(database_url: str, redis_url: str) -> None:
    def build(is_async: bool) -> Any:
        @tool(name="walk", wait_points=[approval])
        async def walk(ctx: Context) -> str:
            """Take a step."""

            async def other() -> str:
                raise AssertionError("it is recorded")

            kept = await ctx.run_once("a", other) if is_async else ctx.run_once("a", lambda: "kept")
            ctx.ask(approval, Ask(prompt="?"))
            return kept

        return walk

    model = scripted(call("walk"), "done")
    with world(database_url, redis_url, build(False), model=model) as w:
        run_id = w.start()
        w.deploy(App(agents=[Agent(AGENT, model=model, tools=[build(True)])]))
        w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == ["kept"]


def renamed(ctx: Context, first: bool) -> None:
    ctx.step("load" if first else "fetch", lambda: 1)


def left_out(ctx: Context, first: bool) -> None:
    if first:
        ctx.step("load", lambda: 1)
    ctx.step("fetch", lambda: 2)


def swallowed(ctx: Context, first: bool) -> None:
    try:
        ctx.step("load" if first else "fetch", lambda: 1)
    except Exception:
        return


@pytest.mark.parametrize("steps", [renamed, left_out, swallowed])
def test_a_pass_that_takes_another_step_fails_the_run_and_names_both(
    database_url: str, redis_url: str, steps: Callable[[Context, bool], None]
) -> None:
    fx = Counters()

    @tool(wait_points=[approval])
    def walk(ctx: Context) -> str:
        """Take steps."""
        steps(ctx, fx.bump("pass") == 1)
        ctx.ask(approval, Ask(prompt="?"))
        return "walked"

    with world(database_url, redis_url, walk, model=scripted(call("walk"), "done")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), YES)
        run = w.run(run_id)
        assert run.error is not None
        assert run.error.type == "ReplayMismatchError"
        assert "step number 1 was 'load' and is 'fetch' now" in run.error.message
        assert w.outputs(run_id) == []


def test_a_step_that_raises_is_taken_again_and_its_place_stays_its_own(database_url: str, redis_url: str) -> None:
    fx = Counters()

    @tool(retries=1)
    def walk(ctx: Context) -> int:
        """Take steps."""
        first = ctx.step("first", lambda: fx.bump("first"))
        return first + ctx.step("second", _flaky)

    def _flaky() -> int:
        if fx.bump("second") == 1:
            raise OSError("not now")
        return 10

    with world(database_url, redis_url, walk, model=scripted(call("walk"), "done")) as w:
        run_id = w.start()
        assert [output.content for output in w.outputs(run_id)] == [11]
        assert fx.seen == {"first": 1, "second": 2}
