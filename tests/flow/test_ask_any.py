"""The first of several waits: one answer counts, and the step that accepts it closes the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Declined, Expired, Question, Resume, Tool, WaitPoint, call, say, tool
from adjourn.schemas.records.items import ResolutionItem
from adjourn.store.postgres.answers import actions
from adjourn.tasks.lifecycle.retry import retry
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


class Note(BaseModel):
    text: str


YES = {"approved": True}
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

manager = WaitPoint("manager", suspend=Ask, resume=Verdict)
deputy = WaitPoint("deputy", suspend=Ask, resume=Note)


def asking(counters: Counters, **terms: Any) -> Tool[..., Any]:
    @tool(wait_points=[manager, deputy])
    def pay(ctx: Context, to: str) -> str:
        """Pay."""
        counters.bump("pass")
        try:
            first = ctx.ask_any(
                Question(manager, Ask(prompt=f"Pay {to}?"), **terms.get("manager", {})),
                Question(deputy, Ask(prompt=f"Pay {to}?"), **terms.get("deputy", {})),
            )
        except (Declined, Expired) as refused:
            return type(refused).__name__
        counters.bump("effect")
        return f"{first.question.point.name}: {first.answer!r}"

    return pay


def of(plant: Plant, made: Tool[..., Any], **args: Any) -> World:
    return plant(Agent("agent", model=scripted(call(made.name, **args), say("done")), tools=[made]))


def open_actions(world: World, run_id: str) -> dict[str, Any]:
    return {action.origin.wait_point: action for action in world.pending(run_id)}


@pytest.mark.parametrize(
    ("name", "answer", "output"),
    [
        ("manager", {"data": YES}, "manager: Verdict(approved=True)"),
        ("deputy", {"data": {"text": "ok"}}, "deputy: Note(text='ok')"),
        ("deputy", {"kind": "cancel", "reason": "no"}, "Declined"),
    ],
)
def test_the_first_answer_counts_and_the_others_are_closed(
    plant: Plant, counters: Counters, name: str, answer: dict[str, Any], output: str
) -> None:
    world = of(plant, asking(counters), to="Ann")
    run_id = world.start()
    waits = open_actions(world, run_id)
    assert set(waits) == {"manager", "deputy"}
    assert world.answer(waits[name], settle=False, **answer).status == "accepted"
    # Closed in the same step: before any worker has looked at the run.
    (other,) = [action for key, action in waits.items() if key != name]
    state = actions.get(world.db, other.id)
    assert state is not None
    assert state.resolution is not None
    assert (state.action.status, state.resolution.reason) == (
        "cancelled",
        "another wait of the same question was answered first",
    )
    late = world.answer(other, YES if name == "deputy" else {"text": "late"})
    assert late.status == "late"
    world.settle()
    assert [each.content for each in world.outputs(run_id)] == [output]
    resolved = [item.body for item in world.items(run_id) if isinstance(item.body, ResolutionItem)]
    assert [body.action_id for body in resolved] == [waits[name].id, other.id]
    assert world.pending() == []


def test_of_two_answers_at_once_one_wins_and_the_other_is_late(plant: Plant, counters: Counters) -> None:
    for _ in range(10):
        world = of(plant, asking(counters), to="Ann")
        run_id = world.start()
        waits = open_actions(world, run_id)
        with ThreadPoolExecutor(2) as pool:
            said = [
                pool.submit(world.answer, waits["manager"], YES, settle=False),
                pool.submit(world.answer, waits["deputy"], {"text": "ok"}, settle=False),
            ]
        assert sorted(each.result().status for each in said) == ["accepted", "late"]
        world.settle()
        assert world.run(run_id).status == "completed"
    assert counters["effect"] == 10


def test_a_deadline_with_error_ends_its_own_wait_alone(plant: Plant, counters: Counters) -> None:
    terms = {"manager": {"timeout": MINUTE, "on_timeout": "error"}, "deputy": {"timeout": HOUR, "on_timeout": "error"}}
    world = of(plant, asking(counters, **terms), to="Ann")
    run_id = world.start()
    world.advance(61)
    world.sweep()
    assert set(open_actions(world, run_id)) == {"deputy"}
    world.answer(world.the_action(run_id), {"text": "ok"})
    assert world.outputs(run_id)[0].content == "deputy: Note(text='ok')"


def test_when_all_have_expired_the_question_has(plant: Plant, counters: Counters) -> None:
    terms = {"manager": {"timeout": MINUTE, "on_timeout": "error"}, "deputy": {"timeout": HOUR, "on_timeout": "error"}}
    world = of(plant, asking(counters, **terms), to="Ann")
    run_id = world.start()
    for seconds in (61, 3600):
        world.advance(seconds)
        world.sweep()
    assert world.outputs(run_id)[0].content == "Expired"


@pytest.mark.parametrize("swept", [True, False], ids=["by the sweep", "by a late answer"])
def test_a_default_at_a_deadline_is_an_answer(plant: Plant, counters: Counters, swept: bool) -> None:
    terms = {
        "manager": {"timeout": MINUTE, "default": Verdict(approved=False)},
        "deputy": {"timeout": MINUTE, "default": Note(text="nobody")},
    }
    world = of(plant, asking(counters, **terms), to="Ann")
    run_id = world.start()
    waits = open_actions(world, run_id)
    world.advance(61)
    if swept:
        world.sweep()
    else:
        assert world.answer(waits["manager"], YES).status == "late"
    statuses = sorted(world.status_of(action.id) for action in waits.values())
    assert statuses == ["cancelled", "expired"]
    assert world.run(run_id).status == "completed"
    assert counters["effect"] == 1


def test_a_deadline_that_fails_the_run_does(plant: Plant, counters: Counters) -> None:
    world = of(plant, asking(counters, manager={"timeout": MINUTE}), to="Ann")
    run_id = world.start()
    world.advance(61)
    world.sweep()
    assert world.run(run_id).status == "failed"
    assert world.pending() == []


def test_who_may_answer_is_said_for_each(plant: Plant, counters: Counters) -> None:
    world = of(plant, asking(counters, manager={"answerers": ["ann"]}, deputy={"answerers": ["bob"]}), to="Ann")
    run_id = world.start()
    waits = open_actions(world, run_id)
    assert world.answer_as("bob", waits["manager"], YES).status == "forbidden"
    assert world.answer_as("bob", waits["deputy"], {"text": "ok"}).status == "accepted"


def test_a_new_process_finds_the_same_answer(plant: Plant, counters: Counters) -> None:
    made = asking(counters)
    world = of(plant, made, to="Ann")
    run_id = world.start()
    world.answer(open_actions(world, run_id)["deputy"], {"text": "ok"}, settle=False)
    world.deploy(world.app)
    world.settle()
    assert world.outputs(run_id)[0].content == "deputy: Note(text='ok')"


def test_a_question_that_differs_is_asked_anew_with_all_its_waits(plant: Plant, counters: Counters) -> None:
    @tool(wait_points=[manager, deputy])
    def pay(ctx: Context) -> str:
        """Pay."""
        number = min(counters.bump("pass"), 2)
        first = ctx.ask_any(Question(manager, Ask(prompt=f"{number}?")), Question(deputy, Ask(prompt="Same?")))
        return repr(first.answer)

    world = of(plant, pay)
    run_id = world.start()
    world.answer(open_actions(world, run_id)["manager"], YES)
    again = open_actions(world, run_id)
    assert {action.note is not None for action in again.values()} == {True}
    assert set(again) == {"manager", "deputy"}
    world.answer(again["deputy"], {"text": "ok"})
    assert world.outputs(run_id)[0].content == "Note(text='ok')"


class Payment(BaseModel):
    amount: int
    shown: int


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("field", [None, "amount"], ids=["a field that makes no question", "one that does"])
def test_the_fields_that_make_the_question_are_those_of_the_wait_point(
    plant: Plant, counters: Counters, field: str | None, position: int
) -> None:
    """`question=` counts for each of several questions: the first pass is answered, the second may ask otherwise."""
    payment = WaitPoint("payment", suspend=Payment, resume=Verdict, question=["amount"])

    @tool(wait_points=[payment, deputy])
    def pay(ctx: Context) -> str:
        """Pay."""
        number = min(counters.bump("pass"), 2)
        shown = Payment(amount=number if field else 1, shown=number)
        questions: list[Question[Any, Any]] = [Question(deputy, Ask(prompt="Same?"))]
        questions.insert(position, Question(payment, shown))
        return repr(ctx.ask_any(*questions).answer)

    world = of(plant, pay)
    run_id = world.start()
    world.answer(open_actions(world, run_id)["payment"], YES)
    again = open_actions(world, run_id)
    if field is None:
        assert (again, world.outputs(run_id)[0].content) == ({}, "Verdict(approved=True)")
        return
    assert {field in (action.note or "") for action in again.values()} == {True}
    world.answer(again["deputy"], {"text": "ok"})
    assert world.outputs(run_id)[0].content == "Note(text='ok')"


@pytest.mark.parametrize("more_later", [True, False])
def test_another_set_of_questions_is_another_question(plant: Plant, counters: Counters, more_later: bool) -> None:
    @tool(wait_points=[manager, deputy])
    def pay(ctx: Context) -> str:
        """Pay."""
        questions: list[Question[Any, Any]] = [Question(manager, Ask(prompt="?"))]
        if (counters.bump("pass") > 1) is more_later:
            questions.append(Question(deputy, Ask(prompt="?")))
        return repr(ctx.ask_any(*questions).answer)

    world = of(plant, pay)
    run_id = world.start()
    world.answer(open_actions(world, run_id)["manager"], YES)
    again = open_actions(world, run_id)
    assert set(again) == ({"manager", "deputy"} if more_later else {"manager"})
    assert {action.note for action in again.values()} == {
        "Asked again because the set of questions that are asked together differs from what was asked before; "
        "the earlier answer was not used."
    }
    world.answer(again["manager"], {"approved": False})
    assert world.outputs(run_id)[0].content == "Verdict(approved=False)"


def test_two_questions_at_one_wait_point_need_keys(plant: Plant) -> None:
    @tool(wait_points=[manager])
    def keyed(ctx: Context, keys: bool) -> str:
        """Ask twice."""
        first = ctx.ask_any(
            Question(manager, Ask(prompt="A?"), key="a" if keys else None),
            Question(manager, Ask(prompt="B?"), key="b" if keys else None),
        )
        return f"{first.question.key} {first.answer.approved}"

    world = of(plant, keyed, keys=False)
    run_id = world.start()
    assert (world.outputs(run_id)[0].outcome, "key" in world.outputs(run_id)[0].content) == ("error", True)
    world = of(plant, keyed, keys=True)
    run_id = world.start()
    second = next(action for action in world.pending(run_id) if action.prompt == "B?")
    world.answer(second, YES)
    assert world.outputs(run_id)[0].content == "b True"


def test_waits_that_an_answer_closed_stay_closed_over_a_retry(plant: Plant, counters: Counters) -> None:
    world = of(plant, asking(counters), to="Ann")
    run_id = world.start()
    world.answer(open_actions(world, run_id)["manager"], YES, settle=False)
    app = world.app
    world.deploy(App(agents=[Agent("agent", model=scripted(say("done")))]))
    world.settle()
    assert world.run(run_id).status == "failed"
    world.deploy(app)
    retry(world.services, run_id)
    assert world.pending(run_id) == []
    world.settle()
    assert world.outputs(run_id)[0].content == "manager: Verdict(approved=True)"


def test_the_entry_of_the_next_pass_is_the_answer_and_not_what_it_closed(plant: Plant) -> None:
    seen: list[Any] = []

    @tool(wait_points=[manager, deputy])
    def pay(ctx: Context) -> str:
        """Pay."""
        seen.append((type(ctx.entry).__name__, ctx.answer and ctx.answer.ok))
        if isinstance(ctx.entry, Resume):
            ctx.entry.action.input["prompt"] = "(hidden)"
        ctx.ask_any(Question(manager, Ask(prompt="?")), Question(deputy, Ask(prompt="?")))
        return "paid"

    world = of(plant, pay)
    run_id = world.start()
    world.answer(open_actions(world, run_id)["manager"], YES)
    assert world.outputs(run_id)[0].content == "paid"
    assert seen == [("Initial", None), ("Resume", True)]


def test_the_first_deadline_decides_however_late_the_sweep_is(plant: Plant, counters: Counters) -> None:
    terms = {"manager": {"timeout": MINUTE}, "deputy": {"timeout": 2 * MINUTE, "default": Note(text="nobody")}}
    world = of(plant, asking(counters, **terms), to="Ann")
    run_id = world.start()
    world.advance(600)
    world.sweep()
    assert world.run(run_id).status == "failed"
    assert counters["effect"] == 0
