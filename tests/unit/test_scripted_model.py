"""Scripted and strict models: the same conversation gives the same reply, and no invalid one passes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.messages import (
    ModelRequest,
    ModelResponse,
    ModelTurn,
    ResultTurn,
    ToolCall,
    ToolSpec,
    Turn,
    UserTurn,
)
from adjourn.tasks.models import ScriptedModel, StrictModel, call, call_raw, say
from adjourn.tasks.models.strict import strict_problem

USER = UserTurn(text="go")
A = ToolCall(id="a", tool="ask", args={})
B = ToolCall(id="b", tool="ask", args={"x": 1})


def request_for(*turns: Turn, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(instructions="", conversation=turns, tools=tools)


def result(call: ToolCall, content: Any = "ok") -> ResultTurn:
    return ResultTurn(call_id=call.id, tool=call.tool, outcome="success", content=content)


def ask(model: ScriptedModel | StrictModel, request: ModelRequest) -> ModelResponse:
    return asyncio.run(model.request(request))


def model_turn(*calls: ToolCall) -> ModelTurn:
    return ModelTurn(text="", calls=calls)


def test_a_fresh_model_goes_on_where_the_conversation_stands() -> None:
    def fresh() -> ScriptedModel:
        return ScriptedModel([call("ask", x=1), "done"])

    first = ask(fresh(), request_for(USER))
    second = ask(fresh(), request_for(USER, model_turn(A), result(A)))

    assert first.calls == (call("ask", x=1),)
    assert (second.text, second.calls) == ("done", ())


def test_every_user_message_starts_the_list_anew() -> None:
    model = ScriptedModel(["one", "two"])
    assert ask(model, request_for(USER, ModelTurn(text="one"), USER)).text == "one"


def test_steps_and_scripts_may_read_the_request() -> None:
    def count(request: ModelRequest) -> str:
        return f"{len(request.conversation)} turns"

    assert ask(ScriptedModel(count), request_for(USER)).text == "1 turns"
    assert ask(ScriptedModel([count]), request_for(USER)).text == "1 turns"


def test_calls_side_by_side_and_beside_text() -> None:
    assert ask(ScriptedModel([[call("a"), call("b")]]), request_for(USER)).calls == (call("a"), call("b"))
    spoken = ask(ScriptedModel([say("wait", call("a"))]), request_for(USER))
    assert (spoken.text, spoken.calls) == ("wait", (call("a"),))


def test_malformed_calls_go_out_as_written() -> None:
    [raw] = ask(ScriptedModel([call_raw("no such tool!", '{"a":1,,', id="")]), request_for(USER)).calls
    assert (raw.name, raw.args, raw.id) == ("no such tool!", '{"a":1,,', "")


def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ModelRequestError, match="1 steps and was asked for step 2") as caught:
        ask(ScriptedModel(["done"]), request_for(USER, model_turn(A), result(A)))
    assert not caught.value.retryable


def test_requests_are_counted_by_the_hook_and_refused_ones_are_not() -> None:
    seen: list[ModelRequest] = []
    model = ScriptedModel(["done"], on_request=seen.append)
    ask(model, request_for(USER))
    with pytest.raises(ModelRequestError):
        ask(model, request_for())
    assert seen == [request_for(USER)]


def test_no_provider_is_imported() -> None:
    program = "import adjourn.tasks.models, sys; sys.exit('pydantic_ai' in sys.modules or 'openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


VALID = [
    request_for(USER),
    request_for(USER, model_turn(A, B), result(A), result(B)),
    request_for(USER, model_turn(A), result(A), model_turn(B), result(B), USER),
    request_for(USER, ModelTurn(text="hello"), USER),
    request_for(USER, model_turn(A), result(A, {"deep": [None, False, ""]})),
]

INVALID = {
    "empty": (request_for(), "empty"),
    "no result": (request_for(USER, model_turn(A)), "call a has no result"),
    "no result before the next message": (request_for(USER, model_turn(A), USER), "call a has no result right after"),
    "one of two results": (request_for(USER, model_turn(A, B), result(A), USER), "call b has no result right after"),
    "results out of order": (request_for(USER, model_turn(A, B), result(B), result(A)), "result b stands where"),
    "result twice": (request_for(USER, model_turn(A), result(A), result(A)), "or is its second"),
    "result of nothing": (request_for(USER, result(A)), "belongs to no call"),
    "late result": (request_for(USER, model_turn(A), result(A), ModelTurn(text=""), result(A)), "belongs to no call"),
    "result of another tool": (
        request_for(USER, model_turn(A), ResultTurn(call_id="a", tool="other", outcome="success", content="")),
        "its call of 'ask'",
    ),
    "id used in a later turn": (
        request_for(USER, model_turn(A), result(A), model_turn(A), result(A)),
        "'a' is used twice",
    ),
    "id used twice in a turn": (request_for(USER, model_turn(A, A), result(A), result(A)), "'a' is used twice"),
    "nothing to respond to": (request_for(USER, ModelTurn(text="hello")), "nothing to respond to"),
    "two tools of one name": (
        request_for(USER, tools=(ToolSpec(name="t", description="", input_schema={}),) * 2),
        "'t' is offered twice",
    ),
}


@pytest.mark.parametrize("request_", VALID)
def test_valid_conversations_pass(request_: ModelRequest) -> None:
    assert strict_problem(request_) is None


@pytest.mark.parametrize(("request_", "problem"), INVALID.values(), ids=INVALID)
def test_invalid_conversations_are_refused_with_the_reason(request_: ModelRequest, problem: str) -> None:
    for model in (ScriptedModel(["x"] * 9), StrictModel(ScriptedModel(["x"] * 9, strict=False))):
        with pytest.raises(ModelRequestError, match=problem) as caught:
            ask(model, request_)
        assert not caught.value.retryable


@pytest.mark.parametrize("illegal", ["", "a:1", "a b", "é", "x" * 65, "a\n"])
def test_illegal_ids_and_names_are_refused(illegal: str) -> None:
    as_id = ToolCall(id=illegal, tool="ask", args={})
    as_tool = ToolCall(id="a", tool=illegal, args={})
    for bad in (as_id, as_tool):
        assert "legal" in str(strict_problem(request_for(USER, model_turn(bad), result(bad))))
    offered = request_for(USER, tools=(ToolSpec(name=illegal, description="", input_schema={}),))
    assert "is not legal" in str(strict_problem(offered))


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}, object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    odd = ToolCall(id="a", tool="ask", args={"x": value})
    assert "not a JSON object" in str(strict_problem(request_for(USER, model_turn(odd), result(odd))))
    assert "is not JSON" in str(strict_problem(request_for(USER, model_turn(A), result(A, value))))


def test_a_scripted_model_can_be_lenient() -> None:
    assert ask(ScriptedModel(["fine"], strict=False), request_for(USER, result(A))).text == "fine"
