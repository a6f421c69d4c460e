"""A model that plays a script: for tests, benchmarks and the demo without network. Imports no provider.

It keeps nothing between requests. What it says next follows from the conversation alone, so a
fresh worker process goes on with a script where a killed one stopped.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from adjourn.schemas.contracts.definition_checks import check_flag, check_function, check_seconds
from adjourn.schemas.errors import DefinitionError, ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, ModelTurn, RequestedCall, Usage, UserTurn
from adjourn.tasks.models.protocol import Deltas
from adjourn.tasks.models.strict import strict_problem

Reply = str | RequestedCall | Sequence[RequestedCall] | ModelResponse
"""Text, one call, calls side by side, or a whole response."""
Step = Reply | Callable[[ModelRequest], Reply]
Script = Callable[[ModelRequest], Reply] | Sequence[Step]

USAGE = Usage(input_tokens=10, output_tokens=5, requests=1)
"""What every scripted response reports, unless it is a `ModelResponse` of its own: sums can be told by counting."""

_WORD: Final = re.compile(r"\S+\s*|\s+")


def call(tool: str, /, **args: Any) -> RequestedCall:
    """A well-formed call of `tool`."""
    return RequestedCall(name=tool, args=json.dumps(args))


def call_raw(tool: str, args_text: str, *, id: str | None = None) -> RequestedCall:
    """A call exactly as given, however malformed its arguments, its name or its id."""
    return RequestedCall(id=id, name=tool, args=args_text)


def say(text: str, *calls: RequestedCall) -> ModelResponse:
    """A response with text, and calls beside it where given."""
    return ModelResponse(text=text, calls=calls, usage=USAGE)


class ScriptedModel:
    """Plays `script`, which is a list of steps or a function of the request.

    Of a list, the step is the number of responses since the last user message: every message
    starts the list anew. A step, or the function, may compute its reply from the request. Asked
    for more than the list holds, it raises a `ModelRequestError` that is not retryable.

    `strict` refuses what a real provider would refuse (`strict_problem`). `delay` is how many
    seconds a response takes. `on_request` is called with every request that was not refused,
    before the delay; it may raise. Raises `DefinitionError` for a script that is one text, or no list.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        strict: bool = True,
        delay: float = 0.0,
        on_request: Callable[[ModelRequest], None] | None = None,
    ) -> None:
        if not callable(script) and (isinstance(script, str) or not isinstance(script, Sequence)):
            raise DefinitionError("ScriptedModel", f"its script is {script!r}", "give a list of steps, or a function")
        check_flag("ScriptedModel", "strict", strict)
        check_seconds("ScriptedModel", "delay", delay)
        check_function("ScriptedModel", "on_request", on_request)
        self.script = script
        self.strict = strict
        self.delay = delay
        self.on_request = on_request
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"ScriptedModel({self._name!r})"

    async def request(self, request: ModelRequest) -> ModelResponse:
        """The next step of the script. Raises `ModelRequestError`."""
        self._check(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        return _response(self._reply(request))

    def at_once(self, request: ModelRequest) -> ModelResponse | None:
        """The next step of a script without delay. Raises `ModelRequestError`."""
        if self.delay:
            return None
        self._check(request)
        return _response(self._reply(request))

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        """`request`, told word by word, with the delay spread over the words."""
        self._check(request)
        response = _response(self._reply(request))
        pieces = list(_pieces(response))
        for part, text, tool in pieces:
            deltas.add(part, text, tool)
            await asyncio.sleep(self.delay / len(pieces))
        return response

    def _check(self, request: ModelRequest) -> None:
        problem = strict_problem(request) if self.strict else None
        if problem is not None:
            raise ModelRequestError(self._name, f"invalid conversation: {problem}", retryable=False, status=400)
        if self.on_request is not None:
            self.on_request(request)

    def _reply(self, request: ModelRequest) -> Reply:
        if callable(self.script):
            return self.script(request)
        done = responses_so_far(request)
        if done >= len(self.script):
            problem = f"the script has {len(self.script)} steps and was asked for step {done + 1}"
            raise ModelRequestError(self._name, problem, retryable=False)
        step = self.script[done]
        return step(request) if callable(step) else step


def responses_so_far(request: ModelRequest) -> int:
    """How many responses the conversation holds since the last user message."""
    count = 0
    for turn in reversed(request.conversation):
        if isinstance(turn, UserTurn):
            break
        count += isinstance(turn, ModelTurn)
    return count


def _response(reply: Reply) -> ModelResponse:
    if isinstance(reply, ModelResponse):
        return reply
    if isinstance(reply, str):
        return say(reply)
    return say("", *([reply] if isinstance(reply, RequestedCall) else reply))


def _pieces(response: ModelResponse) -> Iterator[tuple[int, str, str | None]]:
    """A response as a provider would stream it: each part in words, the text first and then the calls."""
    parts: list[tuple[str, str | None]] = [(response.text, None)] if response.text else []
    parts += [(call.args, call.name) for call in response.calls]
    for part, (said, tool) in enumerate(parts):
        for word in _WORD.findall(said):
            yield part, word, tool
