"""What a run may use. Every limit stops the run with `LimitExceededError`; waiting never counts."""

from __future__ import annotations

from pydantic import Field

from adjourn.schemas.record import Record


class Limits(Record):
    """Limits of one run, counted across its waits. `None` means no limit."""

    turns: int | None = Field(default=50, gt=0)
    """Model calls."""
    tool_calls: int | None = Field(default=None, gt=0)
    """Calls that the model asked for."""
    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens together."""
