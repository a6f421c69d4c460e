"""Between our turns and pydantic-ai's messages, both ways. Sends nothing and keeps nothing.

A recorded turn is replayed from the provider's own message, so that thinking, signatures and
provider-run tools survive, with the ids, names and arguments of its calls replaced by ours:
theirs may be empty, repeated or illegal, and would then break every later request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as ProviderRequest
from pydantic_ai.messages import ModelResponse as ProviderResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.tools import ToolDefinition

from adjourn.schemas.errors import ModelRequestError, NewerTurnError
from adjourn.schemas.records.messages import (
    ModelRequest,
    ModelResponse,
    ModelTurn,
    RequestedCall,
    ResultTurn,
    ToolCall,
    Usage,
    UserTurn,
)
from adjourn.schemas.strict_json import clean_strings, clean_text

READER = "pydantic-ai"
"""Written before the provider's name in `provider`, so that a later reader of another kind knows what `raw` is."""

CALL, NATIVE_CALL, NATIVE_RESULT = "tool-call", "builtin-tool-call", "builtin-tool-return"


def to_parameters(request: ModelRequest, native_tools: Sequence[AbstractNativeTool]) -> ModelRequestParameters:
    """The tools of a request."""
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.input_schema)
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools, native_tools=list(native_tools))


def to_messages(request: ModelRequest, model: str, system: str, *, fill_content: bool = False) -> list[ModelMessage]:
    """The conversation of a request, for the provider that calls itself `system`.

    What stands between two responses is one message, results first, since some providers refuse
    them apart. A turn that leaves nothing to send is left out. Raises `NewerTurnError`.
    """
    messages: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    instructions = request.instructions or None
    for turn in request.conversation:
        if isinstance(turn, UserTurn):
            parts.append(UserPromptPart(turn.text))
        elif isinstance(turn, ResultTurn):
            parts.append(_result(turn))
        elif (response := _replayed(turn, model, system, fill_content)).parts:
            if parts:
                messages.append(ProviderRequest(parts, instructions=instructions))
            parts = []
            messages.append(response)
    if parts or not messages:
        messages.append(ProviderRequest(parts, instructions=instructions))
    return messages


def from_response(response: ProviderResponse, model: str, system: str) -> ModelResponse:
    """A provider's response in our words, with the whole of it in `raw`.

    Text that no store can hold is repaired (`clean_text`). Raises `ModelRequestError` for a turn
    that the provider has paused by itself: it is not finished, and is no answer.
    """
    if response.state == "suspended":
        problem = "the provider paused its turn; use no background mode and no provider-run tool that takes so long"
        raise ModelRequestError(model, problem, retryable=False)
    [document] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    document = clean_strings({key: value for key, value in document.items() if value is not None})
    refusal = (response.provider_details or {}).get("refusal")
    return ModelResponse(
        text=clean_text(response.text or refusal or ""),
        calls=tuple(
            RequestedCall(id=part["tool_call_id"] or None, name=part["tool_name"], args=_args_text(part["args"]))
            for part in document["parts"]
            if part["part_kind"] == CALL
        ),
        usage=Usage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            requests=1,
            cost=_cost(response),
        ),
        model=response.model_name,
        finish_reason=response.finish_reason,
        raw=json.dumps(document),
        provider=_reader(system),
    )


def _cost(response: ProviderResponse) -> Decimal:
    """US dollars: as the provider says, else by the price list of pydantic-ai; 0 where neither knows."""
    said = (response.provider_details or {}).get("cost", response.usage.cost)
    try:
        cost = response.cost().total_price if said is None else Decimal(str(said))
    except (LookupError, ValueError, AssertionError, ArithmeticError):  # of what is not in the list, or is no number
        return Decimal(0)
    return cost if cost.is_finite() and cost >= 0 else Decimal(0)


def _reader(system: str) -> str:
    return f"{READER}:{system}"


def _args_text(args: str | dict[str, Any] | None) -> str:
    """Arguments as text. Providers send nothing at all for a tool without parameters."""
    return args if isinstance(args, str) and args else json.dumps(args or {}, ensure_ascii=False)


def _result(turn: ResultTurn) -> ToolReturnPart[Any]:
    """A result, with an outcome other than success said in words that every provider passes on.

    An error goes through the provider's own channel for errors. The others do not: nothing broke,
    and a model that reads "error" tries again what a person has refused.
    """
    content = turn.content if isinstance(turn.content, str) else json.dumps(turn.content, ensure_ascii=False)
    if turn.note is not None:
        content = f"{content}\n\n{turn.note}"
    if turn.outcome == "success":
        return ToolReturnPart(turn.tool, content, turn.call_id)
    if turn.outcome == "error":
        return ToolReturnPart(turn.tool, content, turn.call_id, outcome="failed")
    told = json.dumps(
        {"outcome": turn.outcome, "detail": turn.content} | ({"note": turn.note} if turn.note else {}),
        ensure_ascii=False,
    )
    return ToolReturnPart(
        turn.tool, told, turn.call_id, outcome="denied" if turn.outcome == "declined" else "interrupted"
    )


def _replayed(turn: ModelTurn, model: str, system: str, fill_content: bool) -> ProviderResponse:
    response = _recorded(turn, model) if turn.raw and turn.provider == _reader(system) else None
    if response is None:
        response = _plain(turn)
    if fill_content and response.parts and not any(isinstance(part, TextPart) for part in response.parts):
        response.parts = [TextPart(""), *response.parts]
    return response


def _plain(turn: ModelTurn) -> ProviderResponse:
    """A turn of another provider, or one whose record is damaged: its text and its calls say all that we know."""
    text: list[ModelResponsePart] = [TextPart(turn.text)] if turn.text else []
    return ProviderResponse([*text, *(ToolCallPart(call.tool, call.args, call.id) for call in turn.calls)])


def _recorded(turn: ModelTurn, model: str) -> ProviderResponse | None:
    """The provider's own message with our calls in it, or None where it does not fit the turn."""
    try:
        document = json.loads(turn.raw or "")
        parts = document["parts"]
        document["parts"] = _with_our_calls(_without_orphans(parts), turn.calls)
        [message] = ModelMessagesTypeAdapter.validate_json(json.dumps([document]))
    except ValidationError as error:
        newer = [str(issue["ctx"]["tag"]) for issue in error.errors() if issue["type"] == "union_tag_invalid"]
        if newer:
            raise NewerTurnError(model, newer) from None
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return message if isinstance(message, ProviderResponse) else None


def _without_orphans(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without a provider-run call that has no result, and the reverse: providers refuse a history with either."""
    called = {part["tool_call_id"] for part in parts if part["part_kind"] == NATIVE_CALL}
    answered = {part["tool_call_id"] for part in parts if part["part_kind"] == NATIVE_RESULT}
    paired = called & answered
    return [
        part
        for part in parts
        if part["part_kind"] not in (NATIVE_CALL, NATIVE_RESULT) or part["tool_call_id"] in paired
    ]


def _with_our_calls(parts: list[dict[str, Any]], calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """The parts with the n-th call replaced by our n-th call. Raises `ValueError` where they are not as many."""
    places = [index for index, part in enumerate(parts) if part["part_kind"] == CALL]
    replaced = list(parts)
    for index, call in zip(places, calls, strict=True):
        replaced[index] = {**parts[index], "tool_name": call.tool, "tool_call_id": call.id, "args": call.args}
    return replaced
