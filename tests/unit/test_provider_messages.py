"""Our turns in a provider's messages and back: what is replayed, what is rewritten, what is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelQuotaExceededError
from pydantic_ai.messages import (
    ModelMessage,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as ProviderRequest
from pydantic_ai.messages import ModelResponse as ProviderResponse
from pydantic_ai.usage import RequestUsage

from adjourn.schemas.errors import ModelRequestError, NewerTurnError
from adjourn.schemas.records.messages import (
    ModelRequest,
    ModelTurn,
    Outcome,
    ResultTurn,
    ToolCall,
    ToolSpec,
    Turn,
    UserTurn,
)
from adjourn.tasks.models.provider_errors import MAX_TEXT, describe
from adjourn.tasks.models.provider_messages import from_response, to_messages, to_parameters

USER = UserTurn(text="go")
OURS = ToolCall(id="call_1", tool="ask", args={"x": 1})
MODEL, SYSTEM = "some:model", "some"


def messages_of(*turns: Turn, fill_content: bool = False) -> list[ModelMessage]:
    return to_messages(
        ModelRequest(instructions="Be brief.", conversation=turns), MODEL, SYSTEM, fill_content=fill_content
    )


def recorded(*parts: Any, calls: tuple[ToolCall, ...] = (OURS,)) -> ModelTurn:
    """A turn as it is stored after a provider returned `parts`."""
    response = from_response(ProviderResponse(list(parts)), MODEL, SYSTEM)
    return ModelTurn(text=response.text, calls=calls, raw=response.raw, provider=response.provider)


def replayed(turn: ModelTurn) -> list[Any]:
    results = [ResultTurn(call_id=call.id, tool=call.tool, outcome="success", content="ok") for call in turn.calls]
    [response] = [m for m in messages_of(USER, turn, *results) if isinstance(m, ProviderResponse)]
    return list(response.parts)


def result_part(outcome: Outcome, content: Any) -> ToolReturnPart[Any]:
    turn = ResultTurn(call_id="call_1", tool="ask", outcome=outcome, content=content)
    *_, last = messages_of(USER, ModelTurn(text="", calls=(OURS,)), turn)
    [part] = last.parts
    assert isinstance(part, ToolReturnPart)
    return part


def test_what_stands_between_two_responses_is_one_message_in_order() -> None:
    second = ToolCall(id="call_2", tool="ask", args={})
    results = [ResultTurn(call_id=id, tool="ask", outcome="success", content=id) for id in ("call_1", "call_2")]
    first, response, last = messages_of(USER, ModelTurn(text="", calls=(OURS, second)), *results, UserTurn(text="and?"))

    assert isinstance(first, ProviderRequest)
    assert isinstance(response, ProviderResponse)
    assert isinstance(last, ProviderRequest)
    assert [type(part) for part in last.parts] == [ToolReturnPart, ToolReturnPart, UserPromptPart]
    assert first.instructions == last.instructions == "Be brief."


def test_ids_names_and_arguments_of_a_recorded_turn_are_ours() -> None:
    calls = (OURS, ToolCall(id="call_2", tool="no_such_tool", args={}, fault="not JSON"))
    parts = replayed(
        recorded(
            TextPart("hm"),
            ToolCallPart("ask", '{"x": 1}', tool_call_id="t:1"),
            ToolCallPart("no such tool!", '{"a":1,,', tool_call_id="t:1"),
            calls=calls,
        )
    )
    assert [(p.tool_call_id, p.tool_name, p.args) for p in parts[1:]] == [
        ("call_1", "ask", {"x": 1}),
        ("call_2", "no_such_tool", {}),
    ]
    assert parts[0].content == "hm"


def test_thinking_provider_runs_and_details_survive() -> None:
    thinking = ThinkingPart("hm", signature="sig", provider_name=SYSTEM)
    search = NativeToolCallPart("web_search", {"q": "x"}, "n1", provider_name=SYSTEM)
    found = NativeToolReturnPart("web_search", [{"url": "u"}], "n1", provider_name=SYSTEM)
    call = ToolCallPart("ask", {"x": 1}, "theirs", id="item_1", provider_details={"thought": "sig"})
    parts = replayed(recorded(thinking, search, found, call))

    assert parts[0] == thinking
    assert (parts[1].tool_call_id, parts[1].args) == ("n1", {"q": "x"})
    assert parts[2].content == [{"url": "u"}]
    assert (parts[3].id, parts[3].provider_details) == ("item_1", {"thought": "sig"})


def test_a_provider_run_call_without_its_result_is_not_sent_and_never_ours_to_run() -> None:
    search = NativeToolCallPart("web_search", {"q": "x"}, "n1", provider_name=SYSTEM)
    call = ToolCallPart("ask", {"x": 1}, "theirs")
    response = from_response(ProviderResponse([search, call]), MODEL, SYSTEM)

    assert [requested.name for requested in response.calls] == ["ask"]
    assert [type(part) for part in replayed(recorded(search, call))] == [ToolCallPart]


def test_a_turn_of_another_provider_is_told_by_its_text_and_calls() -> None:
    turn = recorded(ThinkingPart("hm", signature="sig"), TextPart("hello"), ToolCallPart("ask", {"x": 1}, "theirs"))
    parts = replayed(replace(turn, provider="pydantic-ai:other"))
    assert parts == [TextPart("hello"), ToolCallPart("ask", {"x": 1}, "call_1")]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "[]",
        "null",
        '{"parts": 3}',
        '{"parts": [null]}',
        '{"parts": [{"part_kind": "tool-call"}]}',
        '{"parts": []}',
    ],
)
def test_a_damaged_record_is_told_by_its_text_and_calls(raw: str) -> None:
    turn = ModelTurn(text="hello", calls=(OURS,), raw=raw, provider="pydantic-ai:some")
    assert replayed(turn) == [TextPart("hello"), ToolCallPart("ask", {"x": 1}, "call_1")]


def test_parts_of_a_newer_worker_put_the_run_back() -> None:
    turn = recorded(TextPart("hello"), calls=())
    document = json.loads(turn.raw or "")
    document["parts"].append({"part_kind": "hologram", "depth": 3})
    with pytest.raises(NewerTurnError, match="hologram") as caught:
        messages_of(USER, replace(turn, raw=json.dumps(document)), USER)
    assert caught.value.retryable


def test_unknown_fields_of_a_newer_worker_are_read_over() -> None:
    turn = recorded(TextPart("hello"), calls=())
    document = json.loads(turn.raw or "") | {"mood": "good"}
    assert replayed(replace(turn, raw=json.dumps(document))) == [TextPart("hello")]


@pytest.mark.parametrize(
    ("content", "text"), [("as is", "as is"), (None, "null"), ([], "[]"), ({"a": "é"}, '{"a": "é"}')]
)
def test_results_are_json_unless_they_are_text(content: Any, text: str) -> None:
    assert result_part("success", content).model_response_str() == text


def test_an_error_is_told_as_an_error_and_a_refusal_as_none() -> None:
    assert result_part("error", "boom").model_response_str() == '{"error":"boom"}'
    told: dict[Outcome, str] = {}
    refusals: tuple[Outcome, ...] = ("declined", "failed", "expired", "interrupted", "cancelled")
    for outcome in refusals:
        part = result_part(outcome, "because")
        assert part.outcome in ("denied", "interrupted")
        told[outcome] = part.model_response_str()
        assert json.loads(told[outcome]) == {"outcome": outcome, "detail": "because"}
    assert len(set(told.values())) == len(refusals)


def test_an_empty_turn_leaves_no_message() -> None:
    [only] = messages_of(USER, ModelTurn(text=""), UserTurn(text="hello?"))
    assert [part.content for part in only.parts if isinstance(part, UserPromptPart)] == ["go", "hello?"]


def test_content_is_filled_beside_calls_where_asked_for() -> None:
    turn = ModelTurn(text="", calls=(OURS,))
    outcome = ResultTurn(call_id="call_1", tool="ask", outcome="success", content="ok")
    response = messages_of(USER, turn, outcome, fill_content=True)[1]
    assert list(response.parts) == [TextPart(""), ToolCallPart("ask", {"x": 1}, "call_1")]


def test_text_that_no_store_can_hold_is_repaired_and_literal_escapes_stay() -> None:
    parts: list[Any] = [
        TextPart("a\ud800\x00b \\u0000"),
        ToolCallPart("ask", '{"x": "\udfff"}', "1"),
        ThinkingPart("\udead"),
    ]
    response = from_response(ProviderResponse(parts), MODEL, SYSTEM)
    assert response.text == "a\ufffd\ufffdb \\u0000"
    assert response.calls[0].args == '{"x": "\ufffd"}'
    response.model_dump_json().encode()


@pytest.mark.parametrize("args", ["", None, {}])
def test_no_arguments_are_an_empty_object(args: Any) -> None:
    [requested] = from_response(ProviderResponse([ToolCallPart("ask", args, "1")]), MODEL, SYSTEM).calls
    assert requested.args == "{}"


def test_a_turn_that_the_provider_paused_is_no_answer() -> None:
    with pytest.raises(ModelRequestError, match="paused") as caught:
        from_response(ProviderResponse([TextPart("so far")], state="suspended"), MODEL, SYSTEM)
    assert not caught.value.retryable


def test_tools_keep_their_schema() -> None:
    spec = ToolSpec(name="ask", description="Ask.", input_schema={"type": "object", "properties": {}})
    [tool] = to_parameters(ModelRequest(instructions="", conversation=(USER,), tools=(spec,)), ()).function_tools
    assert (tool.name, tool.description, tool.parameters_json_schema) == ("ask", "Ask.", spec.input_schema)


def test_errors_are_short_and_hold_no_key() -> None:
    body = {"message": "Incorrect key s3cret-key, Bearer abc.def and sk-live-0123456789abcdef" + "x" * 10_000}
    error = describe(MODEL, ModelHTTPError(401, "m", body), secrets=("s3cret-key", "", "k"))
    for leak in ("s3cret-key", "abc.def", "sk-live"):
        assert leak not in str(error)
    assert "Incorrect key" in str(error)
    assert (error.status, error.retryable) == (401, False)
    assert len(error.problem) < MAX_TEXT + 50


def test_an_exhausted_quota_is_not_retryable_though_it_is_a_429() -> None:
    error = describe(MODEL, ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m"))
    assert (error.status, error.retryable) == (429, False)


@pytest.mark.parametrize(
    ("model", "details", "cost"),
    [
        ("gpt-4o", {}, Decimal("7.5") / 1000),
        ("gpt-4o", {"cost": 0.25}, Decimal("0.25")),
        ("a-model-of-my-own", {}, Decimal(0)),
        ("a-model-of-my-own", {"cost": "much"}, Decimal(0)),
        (None, {"cost": -1}, Decimal(0)),
    ],
)
def test_a_turn_costs_what_its_provider_says_or_what_the_price_list_does(
    model: str | None, details: dict[str, Any], cost: Decimal
) -> None:
    response = ProviderResponse(
        [TextPart("x")],
        usage=RequestUsage(input_tokens=1000, output_tokens=500),
        model_name=model,
        provider_name="openai",
        provider_details=details,
    )
    assert from_response(response, "m", "openai").usage.cost == cost
