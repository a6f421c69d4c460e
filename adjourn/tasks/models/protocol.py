"""What Adjourn needs of a model: one request in, one response out. Owns no provider's format."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from adjourn.schemas.records.messages import ModelRequest, ModelResponse


class Model(Protocol):
    """Something that can be asked for the next turn of a conversation.

    One instance serves every run of its process, many at a time, on one event loop. It keeps
    nothing between requests: a fresh process goes on with the conversation alone.
    """

    @property
    def name(self) -> str:
        """How the model is called in items, events and errors."""
        ...

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask for the next turn.

        Raises `ModelRequestError` and no other exception. Its `retryable` says whether the same
        request may succeed later. Cancelling the call cancels what it does on the network.
        """
        ...


@runtime_checkable
class ImmediateModel(Model, Protocol):
    """A model that may have its response at once: it asks nobody, and has nothing to wait for."""

    def at_once(self, request: ModelRequest) -> ModelResponse | None:
        """The response, or None if it takes `request` to get it. Called in the thread of the run; never blocks."""
        ...


class Deltas(Protocol):
    """Where a model puts what comes of a response while it comes. Neither method waits.

    Raises `TypeError` for what is no piece, and nothing else.
    """

    def add(self, part: int, text: str, tool: str | None = None) -> None:
        """More of part `part` of the response, counted from 0: text, or arguments of a call of `tool`."""

    def discard(self) -> None:
        """What was added is void: the response broke, and begins again if anything is added now."""


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can also say its response while it comes."""

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        """`request`, with its response told piece by piece. Whoever tries again has to void what was told."""
        ...
