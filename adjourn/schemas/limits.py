"""What a run may use. Every limit stops the run with `LimitExceededError`; waiting never counts."""

from __future__ import annotations

from pydantic import Field

from adjourn.schemas.errors import LimitExceededError
from adjourn.schemas.messages import Usage
from adjourn.schemas.record import Record


class Limits(Record):
    """Limits of one run, counted across its waits. `None` means no limit."""

    turns: int | None = Field(default=50, gt=0)
    """Model calls."""
    tool_calls: int | None = Field(default=None, gt=0)
    """Calls that the model asked for."""
    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens together."""

    def exceeded(self, turns: int, tool_calls: int, usage: Usage) -> LimitExceededError | None:
        """The limit that another model call would break, after so much. Judged before the call, not after."""
        if self.turns is not None and turns >= self.turns:
            return LimitExceededError("turns", self.turns, turns + 1)
        if self.tool_calls is not None and tool_calls > self.tool_calls:
            return LimitExceededError("tool_calls", self.tool_calls, tool_calls)
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return LimitExceededError("tokens", self.tokens, usage.total_tokens)
        return None
