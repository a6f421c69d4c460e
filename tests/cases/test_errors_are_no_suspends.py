"""Input that does not fit is an error, and pauses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjourn import Context, ToolError, tool
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.tools import Question, Reader, Verdict, q
from tests.world import Counters, scripted


def ask(ctx: Context, key: str | None = None) -> Verdict:
    return ctx.ask(q, Question(prompt=f"May {key or 'it'} be?"), key=key)


async def ask_later(ctx: Context, key: str | None = None) -> Verdict:
    await asyncio.sleep(0)
    return ask(ctx, key)


def returns_it(ctx: Context, amount: int) -> Any:
    if amount < 0:
        return {"error": "amount is negative"}
    return ask(ctx).note


def raises_a_tool_error(ctx: Context, amount: int) -> Any:
    if amount < 0:
        raise ToolError("amount is negative")
    return ask(ctx).note


def raises_anything(ctx: Context, amount: int) -> Any:
    if amount < 0:
        raise ValueError("amount is negative")
    return ask(ctx).note


async def raises_later(ctx: Context, amount: int) -> Any:
    await asyncio.sleep(0)
    return raises_anything(ctx, amount)


def suspends_with_bad_data(ctx: Context, amount: int) -> Any:
    if amount < 0:
        ctx.suspend("q", {"prompt": amount})
    return ask(ctx).note


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (returns_it, {"error": "amount is negative"}),
        (raises_a_tool_error, "amount is negative"),
        (raises_anything, "ValueError: amount is negative"),
        (raises_later, "ValueError: amount is negative"),
    ],
)
def test_a_tool_that_refuses_its_input_does_not_pause(build: Build, body: Callable[..., Any], read: Any) -> None:
    reader = Reader()
    w = build(
        tool(name="pay", description="Pay.", wait_points=[q])(body),
        model=scripted(call("pay", amount=-1), reader.step, say("unused")),
    )
    run_id = w.start()
    assert reader.results == [[read]]
    assert (w.pending(), w.run(run_id).status) == ([], "completed")
    assert "suspension" not in [item.body.kind for item in w.items(run_id)]


def test_arguments_that_do_not_fit_do_not_pause(build: Build) -> None:
    fx, reader = Counters(), Reader()
    unfit: list[dict[str, Any]] = [{"amount": "much"}, {}, {"amount": 1, "extra": 2}, {"amount": None}]
    w = build(
        tool(name="pay", description="Pay.", wait_points=[q], retries=2)(counted_pay(fx)),
        model=scripted([call("pay", **args) for args in unfit], reader.step),
    )
    run_id = w.start()
    (problems,) = reader.results
    assert len(problems) == len(unfit)
    assert all("input of tool 'pay' is not valid" in problem for problem in problems)
    assert (fx["pay"], w.pending(), w.run(run_id).status) == (0, [], "completed")


def counted_pay(fx: Counters) -> Callable[..., Any]:
    def pay(ctx: Context, amount: int) -> Any:
        fx.bump("pay")
        return ask(ctx).note

    return pay


def test_a_bad_suspend_payload_does_not_pause_and_a_sibling_that_does_is_not_touched(build: Build) -> None:
    reader = Reader()
    w = build(
        tool(name="pay", description="Pay.", wait_points=[q])(suspends_with_bad_data),
        model=scripted([call("pay", amount=-1), call("pay", amount=1)], reader.step),
    )
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert (output.outcome, "/prompt" in output.content) == ("error", True)
    w.answer(w.the_action(run_id), {"approved": True, "note": "yes"})
    assert reader.results == [[output.content, "yes"]]
