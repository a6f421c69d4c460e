"""What Adjourn needs of a model: one request in, one response out. Owns no provider's format."""

from __future__ import annotations

from typing import Protocol

from adjourn.schemas.messages import ModelRequest, ModelResponse


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
