"""A provider's refusals without the provider: what every real one, taken together, demands of a conversation.

Put in front of a model in tests: a history that a single strict provider would refuse is refused
here, with the reason. Reads requests, changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, ModelTurn, ResultTurn, ToolCall, Turn
from adjourn.tasks.models.protocol import Model

MAX_ID = 40
"""Characters that the narrowest format in use (OpenAI chat) allows in the id of a call."""


class StrictModel:
    """`inner`, behind the refusals of `strict_problem`."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask `inner`, or raise a `ModelRequestError` (not retryable) that says what is wrong."""
        problem = strict_problem(request)
        if problem is not None:
            raise ModelRequestError(self.name, f"invalid conversation: {problem}", retryable=False, status=400)
        return await self.inner.request(request)


def strict_problem(request: ModelRequest) -> str | None:
    """What a strict provider would refuse in `request`, or None.

    Each call has exactly one result; the results stand right after the response, in the order of
    its calls; ids never repeat; ids and names are legal; arguments and results are JSON; the
    conversation ends with something to respond to.
    """
    return next(_problems(request), None)


def _problems(request: ModelRequest) -> Iterator[str]:
    yield from _name_problems(request)
    yield from _pairing_problems(request.conversation)
    if not request.conversation:
        yield "the conversation is empty"
    elif isinstance(request.conversation[-1], ModelTurn):
        yield "the conversation ends with a response: there is nothing to respond to"


def _name_problems(request: ModelRequest) -> Iterator[str]:
    names = [tool.name for tool in request.tools]
    yield from (f"tool {name!r} is offered twice" for name in _repeated(names))
    yield from (f"tool name {name!r} is not legal" for name in names if not LEGAL_NAME.fullmatch(name))
    calls = [call for turn in request.conversation if isinstance(turn, ModelTurn) for call in turn.calls]
    yield from (f"call id {id!r} is used twice" for id in _repeated(call.id for call in calls))
    for call in calls:
        if len(call.id) > MAX_ID or not LEGAL_NAME.fullmatch(call.id):
            yield f"call id {call.id!r} is not legal"
        if not LEGAL_NAME.fullmatch(call.tool):
            yield f"call {call.id} names tool {call.tool!r}, which is not a legal name"
        if not isinstance(call.args, dict) or not _is_json(call.args):
            yield f"the arguments of call {call.id} are not a JSON object"


def _pairing_problems(conversation: Iterable[Turn]) -> Iterator[str]:
    owed: list[ToolCall] = []
    for turn in conversation:
        if not isinstance(turn, ResultTurn):
            yield from (f"call {call.id} has no result right after its response" for call in owed)
            owed = list(turn.calls) if isinstance(turn, ModelTurn) else []
        elif not owed:
            yield f"result {turn.call_id} belongs to no call of the response before it, or is its second"
        elif turn.call_id != owed[0].id:
            yield f"result {turn.call_id} stands where the result of {owed[0].id} should"
        elif turn.tool != owed[0].tool:
            yield f"result {turn.call_id} is of tool {turn.tool!r}, its call of {owed[0].tool!r}"
        elif not _is_json(turn.content):
            yield f"the content of result {turn.call_id} is not JSON"
        else:
            owed.pop(0)
    yield from (f"call {call.id} has no result" for call in owed)


def _is_json(value: Any) -> bool:
    """Whether `value` can be written as JSON in UTF-8: no NaN, no lone surrogate, no foreign object."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _repeated(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
