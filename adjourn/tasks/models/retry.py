"""Asking again when a provider is busy, broken or silent. Owns when and how long; knows no provider.

These are the only retries of a model call inside a task: the provider's own client makes none.
What is still failing after them goes to the engine, which puts the message back or fails the run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from adjourn.schemas.contracts.definition_checks import check_seconds
from adjourn.schemas.errors import DefinitionError, ModelRequestError, NewerTurnError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.models.protocol import Deltas, Model, StreamingModel
from adjourn.tasks.models.responses import asked

GROWTH = 2.0
"""Each delay is this many times the one before."""

JITTER = 0.5
"""A delay is cut by up to this share at random, so that workers turned away together do not return together."""


class RetryingModel:
    """A model that asks `inner` up to `attempts` times.

    Only a `ModelRequestError` that is retryable is tried again, and a request that took longer
    than `timeout` seconds (`None`: no limit) counts as one. The delays start at `first_delay`
    seconds and double; a provider's own wish is followed where it is longer. No delay is over
    `max_delay`. The last error is raised as it came. Raises `DefinitionError` for fewer than one attempt, and for
    times below zero.
    """

    def __init__(
        self,
        inner: Model,
        *,
        attempts: int = 4,
        first_delay: float = 0.5,
        max_delay: float = 30.0,
        timeout: float | None = 120.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise DefinitionError("RetryingModel", f"attempts is {attempts!r}", "give a whole number from 1 on")
        check_seconds("RetryingModel", "first_delay", first_delay)
        check_seconds("RetryingModel", "max_delay", max_delay)
        if timeout is not None:
            check_seconds("RetryingModel", "timeout", timeout)
        self.inner = inner
        self.attempts = attempts
        self.first_delay = first_delay
        self.max_delay = max_delay
        self.timeout = timeout
        self._sleep = sleep

    @property
    def name(self) -> str:
        return self.inner.name

    def __repr__(self) -> str:
        return f"RetryingModel({self.inner!r}, attempts={self.attempts})"

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask, and ask again while that can help. Raises the last `ModelRequestError`."""
        return await self._ask(lambda: asked(self.name, self.inner.request, request))

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        """`request`, told piece by piece if `inner` can. What a failed attempt has told is void."""
        inner = self.inner
        if not isinstance(inner, StreamingModel):
            return await self.request(request)
        return await self._ask(lambda: asked(self.name, inner.stream, request, deltas), deltas.discard)

    async def _ask(
        self, ask: Callable[[], Awaitable[ModelResponse]], forget: Callable[[], None] = lambda: None
    ) -> ModelResponse:
        for attempt in range(1, self.attempts):
            try:
                return await self._ask_once(ask)
            except NewerTurnError:
                raise
            except ModelRequestError as error:
                if not error.retryable:
                    raise
                forget()
                await self._sleep(self._delay(attempt, error.retry_after))
        return await self._ask_once(ask)

    async def _ask_once(self, ask: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
        try:
            async with asyncio.timeout(self.timeout) as limit:
                return await ask()
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelRequestError(self.name, f"no response within {self.timeout:g} s", retryable=True) from None

    def _delay(self, attempt: int, retry_after: float | None) -> float:
        backoff = self.first_delay * GROWTH ** (attempt - 1) * (1 - JITTER * random.random())
        return min(self.max_delay, max(backoff, retry_after or 0.0))
