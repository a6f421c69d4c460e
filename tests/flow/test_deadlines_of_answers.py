"""Answers around a deadline: what counts is when an answer came in, and the first deadline that decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adjourn import Agent, App, Context, Question, Tool, WaitPoint, call, say, tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.store.postgres.answers import actions, dead_letters, early_answers
from adjourn.store.rules import CLOSED_BY_ANSWER, CLOSED_BY_DEADLINE
from adjourn.tasks.answers.answering import receive, receive_kept
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.sweep import sweep
from tests.flow.conftest import Plant
from tests.flow.one_door_app import Amount, Ask
from tests.world import World, scripted

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

first = WaitPoint("first", suspend=Ask, resume=bool)
second = WaitPoint("second", suspend=Ask, resume=bool)


def asking(**terms: Any) -> Tool[..., Any]:
    @tool(wait_points=[first, second])
    def pay(ctx: Context) -> str:
        """Pay."""
        answer = ctx.ask_any(
            Question(first, Ask(prompt="?"), **terms.get("first", {})),
            Question(second, Ask(prompt="?"), **terms.get("second", {})),
        )
        return f"{answer.question.point.name} {answer.answer}"

    return pay


def asked(plant: Plant, **terms: Any) -> tuple[World, str, dict[str, PendingAction]]:
    made = asking(**terms)
    world = plant(Agent("agent", model=scripted(call("pay"), say("done")), tools=[made]))
    run_id = world.start()
    return world, run_id, {action.origin.wait_point: action for action in world.pending(run_id)}


# --- the first of several ------------------------------------------------------------------------

DECISIVE = {
    "a default": ({"timeout": MINUTE, "default": False}, CLOSED_BY_ANSWER),
    "a failure": ({"timeout": MINUTE}, CLOSED_BY_DEADLINE),
}


@pytest.mark.parametrize(("terms", "reason"), DECISIVE.values(), ids=DECISIVE)
@pytest.mark.parametrize("kind", ["submit", "cancel", "fail", "unfit"])
def test_after_the_deadline_that_decides_no_other_wait_takes_an_answer(
    plant: Plant, terms: Any, reason: str, kind: str
) -> None:
    world, run_id, waits = asked(plant, first=terms)
    world.advance(61)
    said: dict[str, Any] = {"submit": {"data": True}, "unfit": {"data": "x"}, "fail": {"message": "no"}}.get(kind, {})
    if kind != "unfit":
        said["kind"] = kind
    late = world.answer(waits["second"], settle=False, **said)
    assert (late.status, late.action_status) == ("late", "cancelled")
    # Written by that answer itself: no sweep was needed.
    states = {name: actions.get(world.db, action.id) for name, action in waits.items()}
    assert {name: state and state.action.status for name, state in states.items()} == {
        "first": "expired",
        "second": "cancelled",
    }
    closed = states["second"]
    assert closed is not None
    assert closed.resolution is not None
    assert closed.resolution.reason == reason
    assert [world.services.parking.get(action.id) for action in waits.values()] == [None, None]
    # Nor does the other one, nor the same one again.
    for action in waits.values():
        assert world.answer(action, True, settle=False).status == "late"
    world.settle()
    run = world.run(run_id)
    if terms is DECISIVE["a default"][0]:
        assert (run.status, world.outputs(run_id)[0].content) == ("completed", "first False")
    else:
        assert (run.status, run.error and run.error.type) == ("failed", "ActionExpiredError")


def test_of_several_deadlines_that_have_passed_the_first_decides_for_an_answer_as_for_the_sweep(plant: Plant) -> None:
    later = {"timeout": 2 * MINUTE, "default": True}
    world, run_id, waits = asked(plant, first={"timeout": MINUTE, "default": False}, second=later)
    world.advance(600)
    late = world.answer(waits["second"], True)
    assert (late.status, late.action_status) == ("late", "cancelled")
    assert world.outputs(run_id)[0].content == "first False"


def test_a_deadline_that_decides_nothing_leaves_the_others_open(plant: Plant) -> None:
    world, run_id, waits = asked(plant, first={"timeout": MINUTE, "on_timeout": "error"})
    world.advance(61)
    assert world.answer(waits["second"], True).status == "accepted"
    assert world.outputs(run_id)[0].content == "second True"


def test_the_sweep_closes_the_others_with_a_deadline_that_fails_the_run(plant: Plant) -> None:
    world, _, waits = asked(plant, first={"timeout": MINUTE})
    world.advance(61)
    sweep(world.services)
    assert {name: world.status_of(action.id) for name, action in waits.items()} == {
        "first": "expired",
        "second": "cancelled",
    }
    assert world.answer(waits["second"], True, settle=False).status == "late"


# --- kept answers ----------------------------------------------------------------------------------


def slow_app(**terms: Any) -> App:
    @tool(wait_points=[WaitPoint("even", suspend=Ask, resume=Amount, **terms)])
    def slow(ctx: Context) -> Any:
        if ctx.answer is not None:
            return {"read": ctx.answer.data and ctx.answer.data.amount}
        ctx.suspend("even", Ask(prompt="?"))

    return App(blocks=[slow])


def bare(world: World) -> Door:
    """The door of a process that has no app, and waits for no worker."""
    s = world.services
    tuning = Tuning(verdict_seconds=0)
    return Door(store=s.store, parking=s.parking, events=s.events, wakeups=s.wakeups, tuning=tuning, app=None)


def keep(world: World, action: PendingAction, amount: int, answer_id: str = "a") -> str:
    body = {"action_id": action.id, "data": {"amount": amount}, "answer_id": answer_id}
    return receive(bare(world), json.dumps(body), channel="t").status


def waiting(world: World) -> PendingAction:
    started = world.enqueue(agent="slow", data={})
    world.settle()
    return world.the_action(started.run_id)


@pytest.fixture
def world(plant: Plant) -> World:
    return plant(*slow_app(timeout=HOUR).blocks.values())


@pytest.mark.parametrize("judge", [lambda w, a: receive_kept(w.services, a.id), lambda w, a: w.sweep()])
def test_an_answer_that_came_in_time_counts_whenever_it_is_validated(
    world: World, judge: Callable[[World, PendingAction], Any]
) -> None:
    action = waiting(world)
    assert keep(world, action, 2) == "kept"
    world.advance(7200)
    judge(world, action)
    world.settle()
    assert world.status_of(action.id) == "submitted"
    assert world.run(action.origin.run_id).output == {"read": 2}


def test_neither_a_late_answer_nor_the_sweep_of_another_app_expires_what_was_answered_in_time(world: World) -> None:
    action = waiting(world)
    assert keep(world, action, 2) == "kept"
    world.advance(7200)
    late = world.answer(action, {"amount": 4}, settle=False)
    assert (late.status, late.action_status) == ("late", "pending")
    assert "came in time" in (late.detail or "")
    sweep(replace(world.services, app=App(blocks=[])))
    assert world.status_of(action.id) == "pending"
    world.sweep()
    assert world.run(action.origin.run_id).output == {"read": 2}


def test_an_answer_that_came_after_the_deadline_is_late_whenever_it_is_validated(world: World) -> None:
    action = waiting(world)
    world.advance(3599)
    assert keep(world, action, 3, "odd") == "kept"  # the model will refuse it
    key = {"action_id": action.id, "answered_by": None, "channel": "t"}
    body = {"action_id": action.id, "data": {"amount": 2}, "answer_id": "late", "kind": "submit"}
    world.advance(2)
    early_answers.keep(world.db, body=json.dumps(body), **key)
    world.sweep()
    assert [letter.status for letter in dead_letters.list(world.db)] == ["late", "invalid"]
    assert world.status_of(action.id) == "expired"
    assert world.run(action.origin.run_id).status == "failed"


def test_an_unfit_answer_that_came_in_time_holds_the_deadline_up_no_longer_than_its_validation(world: World) -> None:
    action = waiting(world)
    assert keep(world, action, 3) == "kept"
    world.advance(7200)
    assert world.sweep().overdue == 1
    assert dead_letters.list(world.db)[0].status == "invalid"
    assert world.status_of(action.id) == "expired"


def test_an_answer_that_came_before_the_deadline_of_another_question_counts(plant: Plant) -> None:
    even = WaitPoint("even", suspend=Ask, resume=Amount)

    @tool(wait_points=[first, even])
    def slow(ctx: Context) -> Any:
        answer = ctx.ask_any(
            Question(first, Ask(prompt="?"), timeout=MINUTE, default=False), Question(even, Ask(prompt="?"))
        )
        return answer.question.point.name

    world = plant(slow)
    run_id = world.enqueue(agent="slow", data={}).run_id
    world.settle()
    waits = {action.origin.wait_point: action for action in world.pending(run_id)}
    assert keep(world, waits["even"], 2) == "kept"
    world.advance(600)
    late = world.answer(waits["first"], True, settle=False)
    assert (late.status, late.action_status) == ("late", "pending")
    sweep(replace(world.services, app=App(blocks=[])))
    world.sweep()
    assert world.run(run_id).output == "even"
