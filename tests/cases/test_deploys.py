"""Deploys across the wait: what was shown is what is executed, whoever executes it."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Agent, App, Context, Tool, WaitPoint, tool
from adjourn.schemas.records.messages import ModelRequest
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.crashes import Outage
from tests.cases.tools import WAYS, YES, Question, Verdict, asking, counting, number_asked
from tests.world import AGENT, Counters, World, scripted


def never_the_same(fx: Counters) -> Any:
    """A model that asks for something else each time that it is asked for its first turn."""

    def first(request: ModelRequest) -> Any:
        return call("ask", x=fx.bump("asked for the first turn"))

    return scripted(first, say("done"), counters=fx)


def redeploy(w: World, *tools: Tool[..., Any], model: Any) -> None:
    w.deploy(App(agents=[Agent(AGENT, model=model, tools=tools)]))


@pytest.mark.parametrize("way", WAYS)
def test_the_arguments_that_were_shown_are_those_that_are_executed(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=never_the_same(fx))
    run_id = w.start()
    shown = w.the_action(run_id)
    redeploy(w, asking(way, fx), model=never_the_same(fx))
    w.answer(shown, YES)
    assert (number_asked(shown), fx["fx:1"], fx["fx"]) == (1, 1, 1)
    assert (fx["asked for the first turn"], fx["model"]) == (1, 2)
    (output,) = w.outputs(run_id)
    assert output.content == {"x": 1, "note": None}


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_between_the_turn_and_its_gate_does_not_ask_the_model_again(
    build: Build, outage: Outage, way: str
) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=never_the_same(fx))
    for number, write in enumerate(("the turn", "the gate"), 1):
        run_id = w.enqueue(write).run_id
        outage.after_write(number)
        outage.survive(w, w.settle)
        outage.restart(w)
        assert (number_asked(w.the_action(run_id)), fx["asked for the first turn"]) == (number, number)
        w.answer(w.the_action(run_id), YES)
        assert (fx[f"fx:{number}"], fx["fx"], w.run(run_id).status) == (1, number, "completed")


def test_a_crash_behind_the_gate_does_not_ask_the_model_again(build: Build, outage: Outage) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=never_the_same(fx))
    run_id = w.start()
    outage.before_write(1)
    outage.survive(w, lambda: w.answer(w.the_action(run_id), YES))
    outage.restart(w)
    assert (w.run(run_id).status, fx["asked for the first turn"]) == ("completed", 1)
    assert fx["fx:1"] == fx["fx"]


def test_what_a_tool_does_to_its_input_does_not_change_what_was_approved(build: Build) -> None:
    seen: list[dict[str, Any]] = []
    point = WaitPoint("q", suspend=dict[str, Any], resume=Verdict)

    @tool(wait_points=[point])
    def transfer(ctx: Context, details: dict[str, Any]) -> str:
        """Transfer."""
        ctx.ask(point, dict(details))
        seen.append(dict(details))
        details["amount"] = 10**9
        return "sent"

    w = build(transfer, model=scripted(call("transfer", details={"amount": 1}), say("done")))
    run_id = w.start()
    shown = w.the_action(run_id)
    w.answer(shown, YES)
    assert seen == [shown.input] == [{"amount": 1}]


def test_another_question_at_the_place_of_the_one_that_was_answered_gets_no_answer(build: Build) -> None:
    """Inline, a tool that shows something else on re-entry asks anew, once, and then fails the run."""
    fx = Counters()

    @tool(wait_points=[q := WaitPoint("q", suspend=Question, resume=Verdict)])
    def drift(ctx: Context) -> str:
        """Ask for another amount each time."""
        ctx.ask(q, Question(prompt=f"Pay {fx.bump('passes')}?"))
        fx.bump("fx")
        return "paid"

    w = build(drift, model=scripted(call("drift"), say("done")))
    run_id = w.start()
    w.answer(w.the_action(run_id), YES)
    again = w.the_action(run_id)
    assert (again.prompt, fx["fx"]) == ("Pay 2?", 0)
    assert "/prompt differs" in (again.note or "")
    w.answer(again, YES)
    failed = w.run(run_id)
    assert failed.error is not None
    assert (failed.status, failed.error.type, fx["fx"]) == ("failed", "ReplayMismatchError", 0)


def test_a_build_whose_tool_shows_something_else_does_not_execute_under_the_old_approval(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), counting("plain", fx), model=never_the_same(fx))
    run_id = w.start()

    @tool(name="ask", description="Ask, then act.")
    def ask_without_gate(ctx: Context, x: int) -> str:
        fx.bump("fx")
        return "acted"

    redeploy(w, ask_without_gate, counting("plain", fx), model=never_the_same(fx))
    w.answer(w.the_action(run_id), YES)
    failed = w.run(run_id)
    assert failed.error is not None
    assert (failed.status, failed.error.type, fx["fx"]) == ("failed", "ToolChangedError", 0)
    assert failed.error.data["tool"] == "ask"
