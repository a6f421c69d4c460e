"""A provider behind the layer that real ones are behind: what it returns may be odd, what it takes may not."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, NativeToolCallPart, NativeToolReturnPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelResponse as ProviderResponse

from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.models.provider_messages import from_response, to_messages
from adjourn.tasks.models.scripted import responses_so_far
from adjourn.tasks.models.strict import strict_problem


class Provider:
    """A provider that runs tools of its own, through the layer that real ones go through.

    Refuses, as they do, a history with a provider-run call that has no result, or the reverse.
    """

    name = "some:model"

    def __init__(self, *turns: list[Any]) -> None:
        self.turns = turns
        self.sent: list[list[ModelMessage]] = []

    async def request(self, request: ModelRequest) -> ModelResponse:
        assert strict_problem(request) is None
        messages = to_messages(request, self.name, "some")
        self.sent.append(messages)
        parts = [part for message in messages for part in message.parts]
        called = [part.tool_call_id for part in parts if isinstance(part, NativeToolCallPart)]
        answered = [part.tool_call_id for part in parts if isinstance(part, NativeToolReturnPart)]
        assert sorted(called) == sorted(answered), "a provider-run call without its result, or the reverse"
        return from_response(ProviderResponse(self.turns[responses_so_far(request)]), self.name, "some")

    def native_ids(self) -> list[str]:
        """Of the provider-run calls in the last request."""
        parts = [part for message in self.sent[-1] for part in message.parts]
        return [part.tool_call_id for part in parts if isinstance(part, NativeToolCallPart)]

    def calls(self) -> list[tuple[str, Any]]:
        """Ids and arguments of the calls of our tools in the last request."""
        parts = [part for message in self.sent[-1] for part in message.parts]
        return [(part.tool_call_id, part.args) for part in parts if isinstance(part, ToolCallPart)]

    def results(self) -> list[tuple[str, Any]]:
        """Ids and contents of their results."""
        parts = [part for message in self.sent[-1] for part in message.parts]
        return [(part.tool_call_id, part.content) for part in parts if isinstance(part, ToolReturnPart)]
