"""`ctx.request` and `ctx.answer`: the short form of an entry-style wait, and what it shares with every other wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from adjourn import Agent, App, Context, RefusedEntry, WaitPoint, tool
from adjourn.schemas.records.entries import RequestAnswer
from adjourn.schemas.records.messages import ModelRequest, ResultTurn
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import ScriptedModel, call
from tests.world import AGENT, World

OBJECT_OR_NULL = {"anyOf": [{"additionalProperties": True, "type": "object"}, {"type": "null"}]}


def results(request: ModelRequest) -> str:
    return ", ".join(str(turn.content) for turn in request.conversation if isinstance(turn, ResultTurn))


def agent(*tools: Block) -> Agent:
    return Agent(AGENT, ScriptedModel([call(tools[0].name), results]), tools=tools)


def asking(seen: list[RequestAnswer | None], *, timeout: timedelta | None = None, **options: Any) -> Block:
    """A tool that asks once, and notes its `answer` on every pass."""

    @tool(name="act", **options)
    def act(ctx: Context) -> str:
        seen.append(ctx.answer)
        if ctx.answer is None:
            ending: Any = {} if timeout is None else {"timeout": timeout, "on_timeout": "error"}
            ctx.request(id="req-1", kind="authorization", prompt="Act?", data={"amount": 7}, **ending)
        return f"{ctx.answer.ok}: {ctx.answer.data or ctx.answer.reason}"

    return act


@pytest.fixture
def seen() -> list[RequestAnswer | None]:
    return []


@pytest.mark.parametrize("data", [{"by": "Ada"}, {}, None])
def test_the_body_runs_again_with_the_answer(plant: Any, seen: list[RequestAnswer | None], data: Any) -> None:
    w = plant(agent(asking(seen)))
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.name, action.request_id, action.kind, action.prompt) == (
        "act.request",
        "req-1",
        "authorization",
        "Act?",
    )
    assert (action.input, action.resume_schema, action.expires_at) == ({"amount": 7}, OBJECT_OR_NULL, None)
    assert w.answer(action, data).status == "accepted"
    assert seen == [None, RequestAnswer(id="req-1", ok=True, data=data)]
    assert w.run(run_id).output == f"True: {data or None}"


@pytest.mark.parametrize("data", ["yes", True, [], 0])
def test_an_answer_is_an_object_or_null(plant: Any, seen: list[RequestAnswer | None], data: Any) -> None:
    w = plant(agent(asking(seen)))
    run_id = w.start()
    assert w.answer(w.the_action(run_id), data).status == "invalid"
    assert (w.run(run_id).status, seen) == ("parked", [None])


def test_all_that_is_asked_may_be_left_out(plant: Any) -> None:
    @tool
    def bare(ctx: Context) -> str:
        if ctx.answer is None:
            ctx.request()
        return f"{ctx.answer.id}; {ctx.suspend_history[0].input}"

    w = plant(agent(bare))
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.request_id, action.kind, action.prompt, action.input) == (None, None, None, None)
    w.answer(action)
    assert w.run(run_id).output == f"{action.id}; None"


def test_requests_in_a_row_are_told_apart_by_their_ids(plant: Any) -> None:
    @tool
    def sign(ctx: Context) -> str:
        answer = ctx.answer
        if answer is None:
            ctx.request(id="first", prompt="Who?")
        if answer.id == "first":
            ctx.request(id="second", prompt="Really?", data=answer.data)
        assert ctx.answer == answer
        return ", ".join(f"{each.name} {each.input} {each.resume}" for each in ctx.suspend_history)

    w = plant(agent(sign))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"by": "Ada"})
    second = w.the_action(run_id)
    assert (second.request_id, second.input) == ("second", {"by": "Ada"})
    w.deploy(w.app)
    w.answer(second)
    assert w.run(run_id).output == "request None {'by': 'Ada'}, request {'by': 'Ada'} None"


# --- refusals ----------------------------------------------------------------------------------------


def decline(w: World, run_id: str) -> None:
    w.send(f'{{"id": "{w.the_action(run_id).request_id}", "ok": false, "reason": "not today"}}')


def fail(w: World, run_id: str) -> None:
    w.answer(w.the_action(run_id), kind="fail", message="nobody knows")


def expire(w: World, run_id: str) -> None:
    w.advance(61)
    w.sweep()


REFUSALS: dict[str, tuple[Callable[[World, str], None], str, str | None]] = {
    "cancelled": (decline, "declined: Act? (reason: not today)", "not today"),
    "failed": (fail, "nobody knows", "nobody knows"),
    "expired": (expire, "expired before anybody answered: Act?", None),
}


@pytest.mark.parametrize("how", REFUSALS)
def test_a_refusal_closes_the_call_and_the_body_is_not_entered_again(
    plant: Any, seen: list[RequestAnswer | None], how: str
) -> None:
    refuse, told, _ = REFUSALS[how]
    w = plant(agent(asking(seen, timeout=timedelta(minutes=1))))
    run_id = w.start()
    refuse(w, run_id)
    run = w.run(run_id)
    assert (run.status, seen) == ("completed", [None])
    assert told in run.output


@pytest.mark.parametrize("how", REFUSALS)
def test_a_tool_that_opts_in_is_told(plant: Any, seen: list[RequestAnswer | None], how: str) -> None:
    refuse, _, reason = REFUSALS[how]
    w = plant(agent(asking(seen, timeout=timedelta(minutes=1), reenter_on=[how])))
    run_id = w.start()
    refuse(w, run_id)
    assert seen == [None, RequestAnswer(id="req-1", ok=False, reason=reason)]
    assert w.run(run_id).output == f"False: {reason}"


# --- beside other waits, and misused -----------------------------------------------------------------


def test_the_answer_is_that_of_any_wait_which_was_asked_last(plant: Any) -> None:
    point = WaitPoint("point", suspend=dict[str, Any], resume=int)

    @tool(wait_points=[point], reenter_on=["cancelled"])
    def both(ctx: Context) -> str:
        if ctx.answer is None:
            ctx.request(id="first")
        if ctx.answer.id == "first":
            ctx.suspend(point, {}, request_id="second")
        assert isinstance(ctx.entry, RefusedEntry) is not ctx.answer.ok
        return str(ctx.answer)

    w = plant(agent(both))
    run_id = w.start()
    w.answer(w.the_action(run_id))
    w.answer(w.the_action(run_id), 7)
    assert w.run(run_id).output == str(RequestAnswer(id="second", ok=True, data=7))


def test_another_contract_of_the_tool_fails_the_run_and_keeps_the_answer(
    plant: Any, seen: list[RequestAnswer | None]
) -> None:
    w = plant(agent(asking(seen, version="1")))
    run_id = w.start()
    action = w.the_action(run_id)
    w.answer(action, {"by": "Ada"}, settle=False)
    w.deploy(App(agents=[agent(asking(seen, version="2"))]))
    w.settle()
    assert (w.run(run_id).error.type, w.status_of(action.id)) == ("ToolChangedError", "submitted")
    assert "fingerprint" not in w.run(run_id).error.message
    assert "version" in w.run(run_id).error.message


def test_an_answer_is_held_to_what_was_asked_whatever_a_later_build_declares_under_this_name(plant: Any) -> None:
    """The schema that the action shows decides. The re-entry fails because the tool has changed; the answer is kept."""
    w = plant(agent(asking([])))
    run_id = w.start()
    action = w.the_action(run_id)
    later = WaitPoint("request", suspend=dict[str, Any], resume=int)
    w.deploy(App(agents=[agent(asking([], wait_points=[later]))]))
    assert w.answer(action, 7).status == "invalid"
    assert w.answer(action, {"by": "Ada"}).status == "accepted"
    assert (w.run(run_id).error.type, w.status_of(action.id)) == ("ToolChangedError", "submitted")


def misused(ctx: Context, how: str) -> None:
    match how:
        case "data that is no object":
            ctx.request(data=["amount", 7])  # type: ignore[arg-type]
        case "data without a JSON form":
            ctx.request(data={"amount": object()})
        case "no time at all":
            ctx.request(timeout=timedelta(0))
        case "inside run_once":
            ctx.run_once("key", ctx.request)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("data that is no object", "misuse.request"),
        ("data without a JSON form", "cannot be written as JSON"),
        ("no time at all", "its timeout is"),
        ("inside run_once", "'key'"),
    ],
)
def test_a_misuse_is_an_error_of_the_tool_and_opens_nothing(plant: Any, how: str, told: str) -> None:
    @tool
    def misuse(ctx: Context) -> None:
        misused(ctx, how)

    w = plant(agent(misuse))
    run_id = w.start()
    assert w.run(run_id).status == "completed"
    assert told in w.run(run_id).output
    assert [output.outcome for output in w.outputs(run_id)] == ["error"]


def test_a_tool_with_a_wait_point_of_this_name_has_to_call_it_something_else(plant: Any) -> None:
    w = plant(agent(asking([], wait_points=[WaitPoint("request", suspend=dict[str, Any], resume=int)])))
    run_id = w.start()
    assert "request() beside a wait point named 'request'" in w.run(run_id).output
