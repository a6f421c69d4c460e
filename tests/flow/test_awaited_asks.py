"""`await ctx.ask(...)` is a mistake that is said in words: at the definition where it shows, else when it happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, DefinitionError, Question, WaitPoint, call, tool
from adjourn.tasks.lifecycle import retry
from tests.world import AGENT, scripted, world


class Verdict(BaseModel):
    approved: bool


ANSWERS: list[tuple[Any, Any]] = [
    (bool, True),
    (str, "x"),
    (int | None, None),
    (list[int], [1]),
    (Verdict, {"approved": True}),
]


async def asks(ctx: Context) -> None:
    await ctx.ask("a", {})


async def suspends(ctx: Context) -> None:
    await ctx.suspend("a", {})


@pytest.mark.parametrize("function", [asks, suspends])
def test_an_await_of_an_ask_is_refused_at_the_definition(function: Any) -> None:
    method = function.__name__.removesuffix("s")
    with pytest.raises(DefinitionError, match=rf"awaits ctx.{method}\(.*without await, in an async def too"):
        tool(function)


@pytest.mark.parametrize(("type_", "answer"), ANSWERS, ids=str)
def test_an_await_that_only_shows_in_the_run_fails_it_and_keeps_the_answer(
    database_url: str, redis_url: str, type_: Any, answer: Any
) -> None:
    point: WaitPoint[str, Any] = WaitPoint("gate", suspend=str, resume=type_)

    def build(is_wrong: bool) -> Any:
        @tool(name="act", wait_points=[point])
        async def act(ctx: Context) -> str:
            """Ask."""
            asked = ctx.ask(point, "?")
            if is_wrong:
                await asked
            return "done"

        return act

    model = scripted(call("act"), "ok")
    with world(database_url, redis_url, build(True), model=model) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), answer)
        error = w.run(run_id).error
        assert error is not None
        assert error.type == "AskAwaitedError"
        assert "without await, in an async def too" in error.message
        w.deploy(App(agents=[Agent(AGENT, model=model, tools=[build(False)])]))
        retry.retry(w.services, run_id)
        w.settle()
        assert [output.content for output in w.outputs(run_id)] == ["done"]


def test_another_await_of_what_cannot_be_awaited_is_an_error_of_the_tool(database_url: str, redis_url: str) -> None:
    point = WaitPoint("gate", suspend=str, resume=bool)

    @tool(wait_points=[point])
    async def act(ctx: Context) -> str:
        """Ask."""
        ctx.ask(point, "?")
        odd: Any = 7
        await odd
        return "done"

    with world(database_url, redis_url, act, model=scripted(call("act"), "ok")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), True)
        (output,) = w.outputs(run_id)
        assert (w.run(run_id).status, output.outcome) == ("completed", "error")


def test_a_task_group_and_the_first_of_several_answers_say_it_too(database_url: str, redis_url: str) -> None:
    point = WaitPoint("gate", suspend=str, resume=bool)

    @tool(wait_points=[point])
    async def act(ctx: Context) -> str:
        """Ask."""

        async def one() -> None:
            first: Any = ctx.ask_any(Question(point, "?"))
            await first

        async with asyncio.TaskGroup() as group:
            group.create_task(one())
        return "done"

    with world(database_url, redis_url, act, model=scripted(call("act"), "ok")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), True)
        error = w.run(run_id).error
        assert error is not None
        assert error.type == "AskAwaitedError"
