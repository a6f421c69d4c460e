"""Waits in loops, branches and side by side, and their deadlines, wherever in a tree the body stands."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Parallel, Refused, Sequential, Tool, WaitPoint, tool
from adjourn.schemas.records.actions import PendingAction
from adjourn.store.postgres.answers import actions
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import World


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


point = WaitPoint("approval", suspend=Ask, resume=Verdict)
YES, NO = {"approved": True}, {"approved": False}
STEP, NESTED = "a step of a sequence", "a tool of a nested agent"
PLACES = (STEP, NESTED)


def asked(ctx: Context, prompt: str, key: str | None = None) -> bool:
    return ctx.ask(point, Ask(prompt=prompt), key=key).approved


def placed(place: str, body: Tool[..., Any]) -> Block:
    """The body in its place, in a block that comes to what the body came to."""

    @tool(name="before")
    def before(text: str) -> str:
        return text

    if place == STEP:
        return Sequential("root", [before, body])
    last = ScriptedModel([call(body.name, text="x"), _last_result])
    inner = Agent("inner", model=last, tools=[body])
    return Agent("root", model=ScriptedModel([call("inner", input="x"), _last_result]), tools=[inner])


def _last_result(request: Any) -> Any:
    turn = request.conversation[-1]
    return say(turn.content if isinstance(turn.content, str) else str(turn.content))


def the_one(w: World, run_id: str, prompt: str) -> PendingAction:
    (action,) = [action for action in w.pending(run_id) if action.prompt == prompt]
    return action


@pytest.mark.parametrize("place", PLACES)
def test_a_loop_asks_as_often_as_its_answers_say(plant: Any, place: str) -> None:
    @tool(wait_points=[point])
    def loop(ctx: Context, text: str) -> str:
        times = 1
        while not asked(ctx, f"{text}, time {times}?"):
            times += 1
        return f"after {times}"

    w = plant(placed(place, loop))
    run_id = w.start("x", agent="root")
    for answer in (NO, NO, YES):
        w.deploy(w.app)
        w.answer(w.the_action(run_id), answer)
    assert w.run(run_id).output == "after 3"


@pytest.mark.parametrize("place", PLACES)
def test_a_branch_asks_what_the_answer_before_chose(plant: Any, place: str) -> None:
    @tool(wait_points=[point])
    def branch(ctx: Context, text: str) -> str:
        way = "left" if asked(ctx, "left?") else "right"
        return f"{way} {asked(ctx, f'sure of {way}?')}"

    w = plant(placed(place, branch))
    for first, way in ((YES, "left"), (NO, "right")):
        run_id = w.start("x", agent="root")
        w.answer(the_one(w, run_id, "left?"), first)
        w.answer(the_one(w, run_id, f"sure of {way}?"), YES)
        assert w.run(run_id).output == f"{way} True"


@pytest.mark.parametrize("place", PLACES)
def test_answers_of_a_gather_are_told_apart_by_key_in_whichever_order_they_come(plant: Any, place: str) -> None:
    @tool(wait_points=[point])
    async def gather(ctx: Context, text: str) -> str:
        async def one(key: str) -> bool:
            await asyncio.sleep(0)
            return asked(ctx, "the same question?", key)

        first = await asyncio.gather(*map(one, "abc"))
        second = await asyncio.gather(*map(one, "ab"))
        return f"{first} {second}"

    w = plant(placed(place, gather))
    run_id = w.start("x", agent="root")
    answers = {"a": True, "b": False, "c": True}
    for keys, turned in (("cab", False), ("ba", True)):
        states = {_key_of(w, action): action for action in w.pending(run_id)}
        assert set(states) == set(keys)
        for key in keys:
            w.answer(states[key], YES if answers[key] != turned else NO)
    assert w.run(run_id).output == "[True, False, True] [False, True]"


def _key_of(w: World, action: PendingAction) -> str:
    state = actions.get(w.db, action.id)
    assert state is not None
    return str(state.key)


@pytest.mark.parametrize("place", PLACES)
def test_another_question_at_the_same_place_is_asked_anew_once_and_then_fails_the_run(plant: Any, place: str) -> None:
    passes: list[str] = []

    @tool(wait_points=[point])
    def fickle(ctx: Context, text: str) -> str:
        passes.append(text)
        return str(asked(ctx, f"question {len(passes)}?"))

    w = plant(placed(place, fickle))
    run_id = w.start("x", agent="root")
    w.answer(w.the_action(run_id), YES)
    again = w.the_action(run_id)
    assert again.note is not None
    w.answer(again, YES)
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "ReplayMismatchError"
    assert "ask number 1 of wait point 'approval' differs in /" in error.message


def test_calls_of_the_same_tool_side_by_side_each_get_their_own_answer(plant: Any) -> None:
    @tool(wait_points=[point])
    def gate(ctx: Context, text: str) -> str:
        return f"{text} {asked(ctx, 'the same question?')}"

    one, other = (
        Agent(
            name,
            model=ScriptedModel([[call("gate", text=f"{name}1"), call("gate", text=f"{name}2")], _all_results]),
            tools=[gate],
        )
        for name in ("one", "other")
    )
    w = plant(Parallel("root", [one, other]))
    run_id = w.start("x", agent="root")
    assert {action.origin.block_path for action in w.pending(run_id)} == {
        ("root", "one", "gate"),
        ("root", "other", "gate"),
    }
    for number, action in enumerate(w.pending(run_id)[::-1]):
        w.answer(action, YES if number % 2 else NO)
    output = w.run(run_id).output
    assert {name: sorted(said.split(", ")) for name, said in output.items()} == {
        name: sorted(_said(w, run_id, name)) for name in ("one", "other")
    }


def _all_results(request: Any) -> Any:
    return say(", ".join(turn.content for turn in request.conversation if turn.kind == "result"))


def _said(w: World, run_id: str, name: str) -> list[str]:
    return [output.content for output in w.outputs(run_id) if output.tool == "gate" and output.content.startswith(name)]


# --- deadlines --------------------------------------------------------------------------------

DAY = timedelta(days=1)


def gate(deadline: dict[str, Any], handles: bool = False) -> Tool[..., Any]:
    wait = WaitPoint("approval", suspend=Ask, resume=Verdict, timeout=DAY, **deadline)

    @tool(name="gate", wait_points=[wait])
    def body(ctx: Context, text: str) -> str:
        try:
            return f"approved: {ctx.ask(wait, Ask(prompt=text)).approved}"
        except Refused as refused:
            if handles:
                return f"went on without: {type(refused).__name__}"
            raise

    return body


def expired(w: World) -> str:
    run_id = w.start("x", agent="root")
    action = w.the_action(run_id)
    w.advance(DAY.total_seconds() + 1)
    w.sweep()
    assert w.status_of(action.id) == "expired"
    assert w.answer(action, YES).status == "late"
    return run_id


@pytest.mark.parametrize("place", PLACES)
def test_fail_run_ends_the_run_however_deep_it_waits(plant: Any, place: str) -> None:
    w = plant(placed(place, gate({"on_timeout": "fail_run"})))
    run = w.run(expired(w))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ActionExpiredError"


@pytest.mark.parametrize("place", PLACES)
def test_a_default_answer_lets_it_go_on(plant: Any, place: str) -> None:
    w = plant(placed(place, gate({"default": Verdict(approved=False)})))
    run = w.run(expired(w))
    assert (run.status, run.output) == ("completed", "approved: False")


@pytest.mark.parametrize("place", PLACES)
def test_an_error_is_raised_at_the_wait_and_may_be_handled_there(plant: Any, place: str) -> None:
    w = plant(placed(place, gate({"on_timeout": "error"}, handles=True)))
    run = w.run(expired(w))
    assert (run.status, run.output) == ("completed", "went on without: Expired")


def test_an_error_that_is_not_handled_is_read_by_the_model_or_ends_the_sequence(plant: Any) -> None:
    w = plant(placed(NESTED, gate({"on_timeout": "error"})))
    run_id = expired(w)
    run = w.run(run_id)
    assert run.status == "completed"
    assert "expired" in run.output
    assert [output.outcome for output in w.outputs(run_id) if output.tool == "gate"] == ["expired"]
    w.deploy(App(blocks=[placed(STEP, gate({"on_timeout": "error"}))]))
    run = w.run(expired(w))
    assert run.error is not None
    assert (run.error.type, run.error.data["outcome"]) == ("BlockFailedError", "expired")


@pytest.mark.parametrize("place", PLACES)
def test_an_answer_past_the_deadline_expires_it_there_and_then_without_a_sweep(plant: Any, place: str) -> None:
    w = plant(placed(place, gate({"on_timeout": "error"}, handles=True)))
    run_id = w.start("x", agent="root")
    w.advance(DAY.total_seconds() + 1)
    assert w.answer(w.the_action(run_id), YES).status == "late"
    assert w.run(run_id).output == "went on without: Expired"
