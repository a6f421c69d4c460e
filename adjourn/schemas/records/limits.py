"""What a run may use. Every limit stops the run with `LimitExceededError`; waiting never counts."""

from __future__ import annotations

from pydantic import Field

from adjourn.schemas.errors import LimitExceededError
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.record import Record


class Limits(Record):
    """Limits of one run, counted across its waits. `None` means no limit."""

    turns: int | None = Field(default=50, gt=0)
    """Model calls."""
    tool_calls: int | None = Field(default=None, gt=0)
    """Calls that the model asked for."""
    tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens together."""
    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars, as `Usage.cost` counts them. A model whose price is not known costs nothing: limit its tokens."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For which workers had the run in hand, by the clock of the database. Of an agent that is a part of a run, this
    is held against the time of the whole run."""

    def exceeded(self, turns: int, tool_calls: int, usage: Usage, seconds: float) -> LimitExceededError | None:
        """The limit that another model call would break, after so much. Judged before the call, not after."""
        if self.turns is not None and turns >= self.turns:
            return LimitExceededError("turns", self.turns, turns + 1)
        if self.tool_calls is not None and tool_calls > self.tool_calls:
            return LimitExceededError("tool_calls", self.tool_calls, tool_calls)
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return LimitExceededError("tokens", self.tokens, usage.total_tokens)
        if self.cost is not None and float(usage.cost) >= self.cost:
            return LimitExceededError("cost", self.cost, float(usage.cost))
        return self.overtime(seconds)

    def within(self, other: Limits) -> Limits:
        """Of each limit the tighter one."""
        mine, others = self.model_dump(), other.model_dump()
        both = {name: [each for each in (mine[name], others[name]) if each is not None] for name in mine}
        return Limits.model_validate({name: min(each, default=None) for name, each in both.items()})

    def overtime(self, seconds: float) -> LimitExceededError | None:
        """The limit that anything more would break after so many seconds."""
        if self.seconds is not None and seconds >= self.seconds:
            return LimitExceededError("seconds", self.seconds, seconds)
        return None
