"""A provider that streams, over real HTTP: what is told while it comes, and what becomes of a stream that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, ToolSpec, UserTurn
from adjourn.tasks.models import ProviderModel, RetryingModel
from adjourn.tasks.models.protocol import StreamingModel
from tests.openai_server import (
    USED,
    OpenAIServer,
    Reply,
    call_fragment,
    completion,
    failure,
    fragment,
    streamed,
    tool_call,
)

KEY = "test-key-do-not-leak"
SILENCE = 0.5
"""Seconds without a byte that a model waits here. What it waits for never comes."""
REQUEST = ModelRequest(
    instructions="Be brief.",
    conversation=(UserTurn(text="go"),),
    tools=(ToolSpec(name="ask", description="Ask somebody.", input_schema={"type": "object", "properties": {}}),),
)
HELLO = streamed(fragment("Hel"), fragment("lo"), fragment(finish="stop"), USED)
CALLS = streamed(
    fragment("Let me ask."),
    fragment(None, call_fragment(0, "", "ask", "t1")),
    fragment(None, call_fragment(0, '{"x":')),
    fragment(None, call_fragment(0, " 1}")),
    fragment(None, call_fragment(1, '{"x": 2}', "ask", "t2")),
    fragment(finish="tool_calls"),
    USED,
)


class Heard:
    """`Deltas` that are kept. `at_first` is called with the first piece."""

    def __init__(self, at_first: Callable[[], None] = lambda: None) -> None:
        self.pieces: list[tuple[int, str, str | None]] = []
        self.voided: list[list[tuple[int, str, str | None]]] = []
        self._at_first = at_first

    def add(self, part: int, text: str, tool: str | None = None) -> None:
        if not self.pieces:
            self._at_first()
        self.pieces.append((part, text, tool))

    def discard(self) -> None:
        self.voided.append(self.pieces)
        self.pieces = []

    def said(self, part: int = 0) -> str:
        return "".join(text for each, text, _ in self.pieces if each == part)


def provider(server: OpenAIServer, **options: Any) -> ProviderModel:
    return ProviderModel("openai-chat:test-model", base_url=server.base_url, api_key=KEY, **options)


def stream(model: StreamingModel, owner: ProviderModel, heard: Heard) -> ModelResponse:
    async def and_close() -> ModelResponse:
        try:
            return await model.stream(REQUEST, heard)
        finally:
            await owner.aclose()

    return asyncio.run(and_close())


async def at_once(seconds: float) -> None:
    return


def test_text_is_told_while_it_comes_and_the_response_is_the_whole() -> None:
    with OpenAIServer([HELLO]) as server:
        model = provider(server)
        heard = Heard()
        response = stream(model, model, heard)
    assert server.requests[0]["stream"] is True
    assert [text for _, text, _ in heard.pieces] == ["Hel", "lo"]
    assert (response.text, response.calls, response.finish_reason) == ("Hello", (), "stop")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.requests) == (11, 7, 1)
    assert response.raw is not None


def test_calls_are_put_together_from_their_fragments() -> None:
    whole = completion("Let me ask.", tool_call("ask", '{"x": 1}', "t1"), tool_call("ask", '{"x": 2}', "t2"))
    with OpenAIServer([CALLS, whole]) as server:
        model = provider(server)
        heard = Heard()
        response = stream(model, model, heard)
        at_once = asyncio.run(model.request(REQUEST))
    assert response.calls == at_once.calls
    assert (response.text, response.usage, response.finish_reason) == (
        at_once.text,
        at_once.usage,
        at_once.finish_reason,
    )
    first, second = sorted({part for part, _, tool in heard.pieces if tool is not None})
    assert (heard.said(), heard.said(first), heard.said(second)) == ("Let me ask.", '{"x": 1}', '{"x": 2}')
    assert {tool for part, _, tool in heard.pieces if part in (first, second)} == {"ask"}


@pytest.mark.parametrize(
    "broken",
    [
        streamed(fragment("Once upon"), drop=True),
        streamed(fragment("Once upon"), stall=True),
        streamed(fragment("Once upon")),
        streamed(fragment("Once upon"), fragment(None, call_fragment(0, '{"x', "ask", "t1")), drop=True),
    ],
    ids=["the connection breaks", "it stalls", "somebody in between ends it", "in the middle of a call"],
)
def test_a_stream_that_breaks_is_tried_again_and_what_it_told_is_void(broken: Reply) -> None:
    with OpenAIServer([broken, HELLO]) as server:
        owner = provider(server, read_timeout=SILENCE)
        heard = Heard()
        response = stream(RetryingModel(owner, sleep=at_once), owner, heard)
    assert len(server.requests) == 2
    assert response.text == heard.said() == "Hello"
    (void,) = heard.voided
    assert void[0] == (0, "Once upon", None)


def test_a_refusal_before_the_stream_is_the_same_error_as_ever() -> None:
    with OpenAIServer([failure(401, f"bad key {KEY}")]) as server:
        owner = provider(server)
        heard = Heard()
        with pytest.raises(ModelRequestError) as caught:
            stream(RetryingModel(owner, sleep=at_once), owner, heard)
    assert (caught.value.status, caught.value.retryable, len(server.requests)) == (401, False, 1)
    assert KEY not in str(caught.value)
    assert heard.pieces == heard.voided == []


def test_a_cancelled_stream_lets_go_of_its_connection() -> None:
    async def leave(model: ProviderModel) -> None:
        started = asyncio.Event()
        asking = asyncio.create_task(model.stream(REQUEST, Heard(started.set)))
        await started.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await model.request(REQUEST)).text == "next"
        await model.aclose()

    with OpenAIServer([streamed(fragment("Once"), stall=True), completion("next")]) as server:
        asyncio.run(leave(provider(server)))
    assert server.peers[0] != server.peers[1]
