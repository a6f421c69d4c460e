"""A response of pydantic-ai as it comes, told in our words. Imported with the provider layer, not before."""

from __future__ import annotations

import json
from typing import Final

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse

from adjourn.schemas.errors import ModelRequestError
from adjourn.tasks.models.protocol import Deltas

_CUT_OFF: Final = ("incomplete", "interrupted")


async def told(streamed: StreamedResponse, deltas: Deltas, model: str) -> ModelResponse:
    """Read a response to its end, and tell its text and calls meanwhile. What a model thinks is not told.

    Raises `ModelRequestError` if it ended before it was whole: some connections break without an error.
    """
    calls: dict[int, str] = {}
    async for event in streamed:
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text)):
                deltas.add(index, text)
            case PartStartEvent(index=index, part=ToolCallPart(tool_name=tool, args=args)):
                calls[index] = tool
                deltas.add(index, json.dumps(args) if isinstance(args, dict) else args or "", tool)
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                deltas.add(index, text)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=str() as text)) if index in calls:
                deltas.add(index, text, calls[index])
    response = streamed.get()
    if response.state in _CUT_OFF or response.finish_reason is None:
        raise ModelRequestError(model, "the response broke off before its end", retryable=True)
    return response
