"""Which questions are the same, and what a pass does with one that is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, Context, Tool, WaitPoint, call, say, tool
from adjourn.schemas.contracts.differences import difference
from adjourn.schemas.errors import DefinitionError
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted


class Ask(BaseModel):
    prompt: str
    amount: int
    at: str = ""


class Verdict(BaseModel):
    approved: bool


YES = {"approved": True}
NO = {"approved": False}


def of(plant: Plant, made: Tool[..., Any]) -> World:
    return plant(Agent("agent", model=scripted(call(made.name), say("done")), tools=[made]))


def test_a_field_that_is_not_of_the_question_may_differ(plant: Plant, counters: Counters) -> None:
    gate = WaitPoint("gate", suspend=Ask, resume=Verdict, question=("amount",))

    @tool(wait_points=[gate])
    def pay(ctx: Context) -> str:
        """Pay."""
        number = counters.bump("pass")
        verdict = ctx.ask(gate, Ask(prompt=f"Pay? (pass {number})", amount=5, at=str(number)))
        return f"approved: {verdict.approved}"

    world = of(plant, pay)
    run_id = world.start()
    world.answer(world.the_action(run_id), YES)
    assert [each.content for each in world.outputs(run_id)] == ["approved: True"]


def test_a_question_that_differs_is_asked_anew_once_and_its_answer_counts(plant: Plant, counters: Counters) -> None:
    gate = WaitPoint("gate", suspend=Ask, resume=Verdict)

    @tool(wait_points=[gate])
    def pay(ctx: Context) -> str:
        """Pay."""
        amount = 5 if counters.bump("pass") == 1 else 6
        first = ctx.ask(gate, Ask(prompt="Pay?", amount=amount))
        second = ctx.ask(gate, Ask(prompt="Sure?", amount=1))
        history = [(record.input.amount, record.resume.approved) for record in ctx.history(gate) if record.resume]
        return f"{first.approved} {second.approved} {history}"

    world = of(plant, pay)
    run_id = world.start()
    world.answer(world.the_action(run_id), NO)
    anew = world.the_action(run_id)
    assert anew.input["amount"] == 6
    assert anew.note == (
        "Asked again because /amount differs from what was asked before; the earlier answer was not used."
    )
    world.deploy(world.app)
    world.answer(anew, YES)
    assert world.the_action(run_id).note is None
    world.answer(world.the_action(run_id), YES)
    assert world.outputs(run_id)[0].content == "True True [(5, False), (6, True), (1, True)]"


def test_a_question_that_differs_every_time_fails_and_names_the_field(plant: Plant, counters: Counters) -> None:
    gate = WaitPoint("gate", suspend=Ask, resume=Verdict)

    @tool(wait_points=[gate])
    def pay(ctx: Context) -> str:
        """Pay."""
        try:
            ctx.ask(gate, Ask(prompt="Pay?", amount=counters.bump("pass")))
        except Exception:
            return "swallowed"
        return "paid"

    world = of(plant, pay)
    run_id = world.start()
    for _ in range(2):
        world.answer(world.the_action(run_id), YES)
    error = world.run(run_id).error
    assert error is not None
    assert error.type == "ReplayMismatchError"
    assert "/amount" in error.message
    assert world.outputs(run_id) == []


def test_a_prompt_that_holds_a_time_asks_the_same_on_every_pass(plant: Plant) -> None:
    gate = WaitPoint("gate", suspend=Ask, resume=Verdict)
    seen: list[tuple[Any, ...]] = []

    @tool(wait_points=[gate])
    def pay(ctx: Context) -> str:
        """Pay."""
        now = ctx.now()
        seen.append((now, ctx.now(), ctx.uuid(), ctx.random()))
        ctx.ask(gate, Ask(prompt=f"It is {now.isoformat()}", amount=1))
        return "paid"

    world = of(plant, pay)
    before = world.db.clock()
    run_id = world.start()
    after = world.db.clock()
    world.advance(3600)
    world.deploy(world.app)
    world.answer(world.the_action(run_id), YES)
    assert world.outputs(run_id)[0].content == "paid"
    assert seen[0] == seen[1]
    assert before <= seen[0][0] <= seen[0][1] <= after
    assert seen[0][0].utcoffset() == timedelta(0)


@pytest.mark.parametrize("question", ["amount", (), ("ammount",), (1,)])
def test_a_question_of_fields_that_are_not_there_is_refused(question: Any) -> None:
    with pytest.raises(DefinitionError, match="question"):
        WaitPoint("gate", suspend=Ask, resume=Verdict, question=question)


@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": True}, "/a"),
        ({"a": 1}, {"a": 1, "b": None}, "/b"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "/a/1/b"),
        ({"a": [1]}, {"a": [1, 2]}, "/a/1"),
        (1, 2, ""),
    ],
)
def test_a_difference_is_named_by_its_pointer(before: Any, now: Any, field: str | None) -> None:
    assert difference(before, now) == field
