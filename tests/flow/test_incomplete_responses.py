"""Nothing of a response that was cut off or filtered runs, and a name that is not a tool's runs no tool."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from adjourn import Agent, ModelRequest, ModelResponse, RequestedCall, ScriptedModel, call, say, tool
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ResultTurn
from adjourn.tasks.models.scripted import call_raw
from tests.flow.conftest import Plant
from tests.world import Counters

CUT_OFF = ("length", "content_filter", "error", "max_tokens", "MAX_TOKENS", "content-filter", "FinishReason.SAFETY")
COMPLETE = (None, "stop", "tool_call", "tool_calls", "end_turn", "")


class Report(BaseModel):
    title: str = "untitled"


def read_by_model(request: ModelRequest) -> list[str]:
    return [str(turn.content) for turn in request.conversation if isinstance(turn, ResultTurn)]


def wiper(counters: Counters):  # type: ignore[no-untyped-def]
    @tool
    def wipe(path: str = "/") -> str:
        """Wipe a path."""
        counters.bump(path)
        return "wiped"

    return wipe


@pytest.mark.parametrize("reason", CUT_OFF)
@pytest.mark.parametrize("args", ["", "{}", '{"path": "/', '{"path": "/tmp"}'])
def test_no_call_of_a_response_that_is_not_complete_runs(
    plant: Plant, counters: Counters, reason: str, args: str
) -> None:
    cut = ModelResponse(calls=(call_raw("wipe", args), call("wipe", path="/home")), finish_reason=reason)
    seen: list[list[str]] = []

    def last(request: ModelRequest) -> ModelResponse:
        seen.append(read_by_model(request))
        return say("done")

    model = ScriptedModel([cut, last])
    world = plant(Agent("agent", model=model, tools=[wiper(counters)]))
    run_id = world.start()
    assert world.run(run_id).status == "completed"
    assert counters.seen == {}
    assert [output.outcome for output in world.outputs(run_id)] == ["error", "error"]
    assert all("nothing of it was run" in text for text in seen[0])


@pytest.mark.parametrize("reason", COMPLETE)
def test_calls_of_a_complete_response_run_with_their_defaults(
    plant: Plant, counters: Counters, reason: str | None
) -> None:
    whole = ModelResponse(calls=(call_raw("wipe", ""),), finish_reason=reason)
    world = plant(Agent("agent", model=ScriptedModel([whole, say("done")]), tools=[wiper(counters)]))
    world.start()
    assert counters.seen == {"/": 1}


@pytest.mark.parametrize("reason", CUT_OFF)
@pytest.mark.parametrize("text", ["", "{}"])
def test_a_final_output_made_of_defaults_is_no_output(plant: Plant, reason: str, text: str) -> None:
    cut = ModelResponse(text=text, calls=() if text else (call_raw("final_result", ""),), finish_reason=reason)
    model = ScriptedModel([cut, call("final_result", title="Q3")] if not text else _after_a_correction(cut))
    world = plant(Agent("agent", model=model, output_type=Report))
    run_id = world.start()
    assert world.run(run_id).output == {"title": "Q3"}


def _after_a_correction(cut: ModelResponse):  # type: ignore[no-untyped-def]
    def play(request: ModelRequest) -> ModelResponse:
        asked = sum(turn.kind == "user" for turn in request.conversation)
        return cut if asked == 1 else ModelResponse(calls=(call("final_result", title="Q3"),))

    return play


@pytest.mark.parametrize(
    "name",
    ["send.mail", "send mail", "send_mail ", "send_mail\n", " send_mail", "send_mail\0", "ѕend_mail", "ｓend_mail"],
)
def test_a_name_that_only_looks_like_a_tools_runs_nothing(plant: Plant, counters: Counters, name: str) -> None:
    @tool
    def send_mail(to: str = "all") -> str:
        """Send a mail."""
        counters.bump("sent")
        return "sent"

    seen: list[list[str]] = []

    def last(request: ModelRequest) -> ModelResponse:
        seen.append(read_by_model(request))
        return say("done")

    bad = ModelResponse(calls=(RequestedCall(name=name, args="{}"),))
    world = plant(Agent("agent", model=ScriptedModel([bad, last]), tools=[send_mail]))
    run_id = world.start()
    assert counters.seen == {}
    assert world.run(run_id).status == "completed"
    assert "there is no tool" in seen[0][0]
    assert "send_mail" in seen[0][0].partition("the tools are")[2]


def test_a_name_longer_than_a_tools_runs_nothing(plant: Plant, counters: Counters) -> None:
    longest = "a" * 64

    @tool(name=longest)
    def act() -> str:
        """Act."""
        counters.bump("acted")
        return "acted"

    bad = ModelResponse(calls=(RequestedCall(name=longest + "b", args="{}"),))
    world = plant(Agent("agent", model=ScriptedModel([bad, say("done")]), tools=[act]))
    run_id = world.start()
    assert counters.seen == {}
    (response, *_) = [item.body for item in world.items(run_id) if isinstance(item.body, ResponseItem)]
    assert response.calls[0].misnamed == longest + "b"


@pytest.mark.parametrize("name", ["final.result", "final_result "])
def test_a_name_that_looks_like_the_end_ends_nothing(plant: Plant, name: str) -> None:
    bad = ModelResponse(calls=(RequestedCall(name=name, args=json.dumps({"title": "wrong"})),))
    model = ScriptedModel([bad, call("final_result", title="right")])
    world = plant(Agent("agent", model=model, output_type=Report))
    assert world.run(world.start()).output == {"title": "right"}


def test_a_policy_is_not_asked_about_a_tool_that_does_not_run(plant: Plant, counters: Counters) -> None:
    bad = ModelResponse(calls=(RequestedCall(name="wi.pe", args="{}"),))
    world = plant(
        Agent(
            "agent",
            model=ScriptedModel([bad, say("done")]),
            tools=[wiper(counters)],
            policies=[lambda asked: counters.bump("judged") and None],
        )
    )
    world.start()
    assert counters.seen == {}
