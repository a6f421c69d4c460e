"""Holds what a model's methods gave to what the protocol says of it. A model is anybody's code; runs nothing itself.

What is wrong is the model's fault, and asking again would not put it right: `ModelRequestError`, not retryable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from inspect import isawaitable
from typing import Any, Final

from pydantic import ValidationError

from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.errors.base import shown
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, RequestedCall, Usage
from adjourn.schemas.strict_json import clean_text, pointer
from adjourn.tasks.models.protocol import ImmediateModel, Model

_MOST: Final = {"input_tokens": 10**12, "output_tokens": 10**12, "requests": 10**12, "cost": 10**6}
"""Of one response. Their sums over a tree of runs are stored, and have to fit there."""


async def asked(name: str, method: Callable[..., object], *given: Any) -> ModelResponse:
    """What a method of the model of this name gives that is to be awaited.

    Raises `ModelRequestError` for one that is not async, or a generator, and what the method raises.
    """
    coming = method(*given) if callable(method) else method
    if not isawaitable(coming):
        problem = (
            f"{getattr(method, '__name__', 'it')}() has to be `async def … -> ModelResponse`, and gave {_kind(coming)}"
        )
        raise ModelRequestError(name, problem, retryable=False)
    response: ModelResponse = await coming
    return response


def at_once(model: Model, request: ModelRequest) -> Future[ModelResponse] | None:
    """The response of a model that has it already, without the way to the loop and back; None if it has not."""
    if not isinstance(model, ImmediateModel):
        return None
    future: Future[ModelResponse] = Future()
    try:
        response = model.at_once(request)
        if response is None:
            return None
        future.set_result(response)
    # Whatever it is, it is what it would be on the loop.
    except (asyncio.CancelledError, CancelledError):
        future.cancel()
    except BaseException as error:
        future.set_exception(error)
    return future


def checked(name: str, given: object) -> ModelResponse:
    """A response of the model of this name, in order. Raises `ModelRequestError`, which names the field that is not.

    Pydantic checks what is constructed, and `model_copy` and `model_construct` pass by that. NUL and lone
    surrogates are replaced, as in all text of a run that must not fail for them.
    """
    if not isinstance(given, ModelResponse):
        problem = f"it has to give a ModelResponse, not {_kind(given)}"
        raise ModelRequestError(name, problem, retryable=False)
    try:
        response = ModelResponse.model_validate(_fields(given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _illegal(name, pointer(first["loc"]), first["msg"]) from error
    for field, most in _MOST.items():
        value = getattr(response.usage, field)
        if not 0 <= value <= most:
            raise _illegal(name, f"/usage/{field}", f"{shown(value)} is not between 0 and {most:.0e}")
    return response


def _fields(response: ModelResponse) -> dict[str, Any]:
    """All of it that its constructor would check; what is an instance already it would take as it is."""
    fields = {name: clean_text(each) if type(each) is str else each for name, each in vars(response).items()}
    if isinstance(usage := fields.get("usage"), Usage):
        fields["usage"] = vars(usage)
    if isinstance(calls := fields.get("calls"), list | tuple):
        fields["calls"] = [vars(call) if isinstance(call, RequestedCall) else call for call in calls]
    return fields


def _illegal(name: str, field: str, problem: str) -> ModelRequestError:
    return ModelRequestError(name, f"its response has an illegal {field}: {problem}", retryable=False)


def _kind(value: object) -> str:
    return type(value).__name__
