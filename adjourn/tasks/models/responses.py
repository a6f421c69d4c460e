"""Holds what a model's methods gave to what the protocol says of it. A model is anybody's code; runs nothing itself.

What is wrong is the model's fault, and asking again would not put it right: `ModelRequestError`, not retryable.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.messages import ModelResponse


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


def _kind(value: object) -> str:
    return type(value).__name__
