"""A provider over real HTTP: what it sends, what it takes, and what it makes of every failure."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

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
from adjourn.tasks.models import Model, ProviderModel, RetryingModel
from tests.openai_server import DROPPED, STALLED, OpenAIServer, Reply, completion, failure, tool_call

T = TypeVar("T")

LIMIT = 30.0
"""Seconds to wait for what must come."""
KEY = "test-key-do-not-leak"
USER = UserTurn(text="go")
ASK = ToolSpec(name="ask", description="Ask somebody.", input_schema={"type": "object", "properties": {}})


def request_for(*turns: Turn, **settings: Any) -> ModelRequest:
    return ModelRequest(instructions="Be brief.", conversation=turns, tools=(ASK,), settings=settings)


def provider(server: OpenAIServer, **options: Any) -> ProviderModel:
    return ProviderModel("openai-chat:test-model", base_url=server.base_url, api_key=KEY, **options)


async def no_sleep(seconds: float) -> None:
    return


def ask(model: Model, request: ModelRequest | None = None) -> ModelResponse:
    return run(model, model.request(request or request_for(USER)))


def run(model: Model, work: Coroutine[Any, Any, T]) -> T:
    """`work` on a loop of its own, with the connections closed at its end."""

    async def and_close() -> T:
        try:
            return await work
        finally:
            owner = model.inner if isinstance(model, RetryingModel) else model
            assert isinstance(owner, ProviderModel)
            await owner.aclose()

    return asyncio.run(and_close())


def failed(model: Model) -> ModelRequestError:
    with pytest.raises(ModelRequestError) as caught:
        ask(model)
    assert KEY not in repr(caught.value) + str(caught.value) + repr(model)
    return caught.value


def replay(response: ModelResponse, *calls: ToolCall) -> ModelRequest:
    """The request after `response`, with a result for each of `calls`, which are ours for the ones in it."""
    turn = ModelTurn(text=response.text, calls=calls, raw=response.raw, provider=response.provider)
    results = [ResultTurn(call_id=call.id, tool=call.tool, outcome="success", content={"ok": True}) for call in calls]
    return request_for(USER, turn, *results)


def test_a_request_holds_instructions_tools_settings_and_key() -> None:
    with OpenAIServer([completion("hello")]) as server:
        response = ask(provider(server, settings={"temperature": 0.5, "seed": 1}), request_for(USER, temperature=0.1))
    [sent] = server.requests
    assert [(m["role"], m["content"]) for m in sent["messages"]] == [("system", "Be brief."), ("user", "go")]
    assert (sent["model"], sent["temperature"], sent["seed"]) == ("test-model", 0.1, 1)
    assert sent["tools"][0]["function"]["name"] == "ask"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (response.text, response.calls, response.finish_reason) == ("hello", (), "stop")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.requests) == (11, 7, 1)
    assert response.model == "test-model"


def test_parallel_calls_and_their_results_go_there_and_back() -> None:
    calls = completion("so", tool_call("ask", '{"x": 1}', "t1"), tool_call("ask", '{"x": 2}', "t2"))
    with OpenAIServer([calls, completion("done")]) as server:
        model = provider(server)
        response = ask(model)
        ours = [ToolCall(id=f"call_{n}", tool="ask", args={"x": n}) for n in (1, 2)]
        assert ask(model, replay(response, *ours)).text == "done"

    assert [(call.id, call.args) for call in response.calls] == [("t1", '{"x": 1}'), ("t2", '{"x": 2}')]
    assistant, *results = server.requests[1]["messages"][2:]
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_1", "call_2"]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in results] == [
        ("tool", "call_1", '{"ok": true}'),
        ("tool", "call_2", '{"ok": true}'),
    ]


@pytest.mark.parametrize("ids", [("", None), ("t:1", "t:1"), ("é", "x" * 100)])
def test_empty_repeated_and_illegal_ids_become_paired_results(ids: tuple[Any, Any]) -> None:
    with OpenAIServer([completion(None, *(tool_call("ask", "{}", id) for id in ids)), completion("done")]) as server:
        model = provider(server)
        response = ask(model)
        assert len(response.calls) == 2
        ours = [ToolCall(id=f"call_{n}", tool="ask", args={}) for n in (1, 2)]
        ask(model, replay(response, *ours))
    assistant, first, second = server.requests[1]["messages"][2:]
    sent = [call["id"] for call in assistant["tool_calls"]]
    assert sent == [first["tool_call_id"], second["tool_call_id"]] == ["call_1", "call_2"]


@pytest.mark.parametrize("arguments", ['{"a":1,,', "[1, 2]", "not JSON", '"text"'])
def test_malformed_arguments_come_as_they_are_and_leave_as_an_object(arguments: str) -> None:
    with OpenAIServer([completion(None, tool_call("ask", arguments)), completion("sorry")]) as server:
        model = provider(server)
        response = ask(model)
        assert response.calls[0].args == arguments
        ask(model, replay(response, ToolCall(id="call_1", tool="ask", args={}, fault="no JSON object")))
    [call] = server.requests[1]["messages"][2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize("arguments", [None, ""])
def test_absent_arguments_are_an_empty_object(arguments: str | None) -> None:
    with OpenAIServer([completion(None, tool_call("ask", arguments))]) as server:
        assert ask(provider(server)).calls[0].args == "{}"


def test_an_unknown_tool_with_an_illegal_name_goes_back_under_a_legal_one() -> None:
    with OpenAIServer([completion(None, tool_call("no such.tool", "{}")), completion("sorry")]) as server:
        model = provider(server)
        response = ask(model)
        assert response.calls[0].name == "no such.tool"
        ask(model, replay(response, ToolCall(id="call_1", tool="no_such_tool", args={})))
    assert server.requests[1]["messages"][2]["tool_calls"][0]["function"]["name"] == "no_such_tool"


@pytest.mark.parametrize(("fill", "content"), [(False, None), (True, "")])
def test_content_beside_calls_is_null_or_filled(fill: bool, content: str | None) -> None:
    with OpenAIServer([completion(None, tool_call("ask", "{}")), completion("done")]) as server:
        model = provider(server, fill_content=fill)
        ask(model, replay(ask(model), ToolCall(id="call_1", tool="ask", args={})))
    assert server.requests[1]["messages"][2]["content"] == content


@pytest.mark.parametrize(
    "trouble",
    [failure(429, retry_after="3"), failure(408), failure(500), failure(503), failure(529), DROPPED],
    ids=["429", "408", "500", "503", "529", "dropped"],
)
def test_passing_trouble_is_tried_again_and_only_by_us(trouble: Reply) -> None:
    with OpenAIServer([trouble, completion("hello")]) as server:
        assert ask(RetryingModel(provider(server), sleep=no_sleep)).text == "hello"
        assert len(server.requests) == 2
    with OpenAIServer([trouble]) as server:
        error = failed(provider(server))
        assert len(server.requests) == 1
    assert error.retryable
    assert error.status == (None if trouble.drop else trouble.status)
    assert error.retry_after == (3.0 if trouble.headers else None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refused_request_is_not_tried_again(status: int) -> None:
    with OpenAIServer([failure(status, f"no, not with {KEY}")]) as server:
        error = failed(RetryingModel(provider(server), sleep=no_sleep))
    assert (error.status, error.retryable, len(server.requests)) == (status, False, 1)


def test_an_exhausted_quota_is_not_tried_again() -> None:
    with OpenAIServer([failure(429, code="insufficient_quota")]) as server:
        error = failed(RetryingModel(provider(server), sleep=no_sleep))
    assert (error.status, error.retryable, len(server.requests)) == (429, False, 1)


def test_a_stalled_response_is_given_up_and_tried_again() -> None:
    with OpenAIServer([STALLED, completion("hello")]) as server:
        assert ask(RetryingModel(provider(server), timeout=0.5, sleep=no_sleep)).text == "hello"
        assert len(server.requests) == 2


def test_silence_ends_at_the_read_timeout() -> None:
    with OpenAIServer([STALLED]) as server:
        error = failed(provider(server, read_timeout=0.2))
    assert (error.retryable, error.status) == (True, None)


def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = failed(ProviderModel("openai-chat:m", base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY))
    assert (error.retryable, error.status) == (True, None)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b'{"choices": []}', b"null"])
def test_a_response_of_another_format_is_an_error_of_ours(body: bytes) -> None:
    with OpenAIServer([Reply(body=body)]) as server:
        assert not failed(provider(server)).retryable


def test_an_unknown_provider_is_an_error_that_names_it() -> None:
    error = failed(ProviderModel("no-such-provider:m", api_key=KEY))
    assert "no-such-provider" in str(error)
    assert not error.retryable


def test_a_key_for_openai_is_not_sent_to_another_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer([completion("hello")]) as server:
        ask(ProviderModel("openai-chat:m", base_url=server.base_url))
    assert KEY not in str(server.headers)


def test_connections_are_kept_for_a_loop_and_made_anew_for_another() -> None:
    with OpenAIServer([completion("hello")]) as server:
        model = provider(server)

        async def two_requests() -> None:
            await model.request(request_for(USER))
            await model.request(request_for(USER))

        run(model, two_requests())
        run(model, two_requests())
    first, second, third, fourth = server.peers
    assert first == second
    assert third == fourth != first


def test_cancelling_a_request_lets_the_next_one_through() -> None:
    with OpenAIServer([STALLED, completion("hello")]) as server:
        model = provider(server)

        async def cancel_then_ask() -> ModelResponse:
            task = asyncio.create_task(model.request(request_for(USER)))
            assert await asyncio.to_thread(server.asked.wait, LIMIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await model.request(request_for(USER))

        assert run(model, cancel_then_ask()).text == "hello"
