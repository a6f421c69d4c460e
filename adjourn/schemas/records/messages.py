"""What goes to a model and what comes back, in our own words; providers translate.

A `Conversation` is rebuilt from items for every turn (`adjourn.tasks.engine.conversation`). Nothing
here knows a provider's format, but a response carries the provider's own message as text, so
that thinking, signatures and provider-run tool calls can be replayed to the same provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from adjourn.schemas.records.record import Record

_DECIMALS: Final = 12
"""Of a cost that are kept: a token costs some ten-millionths of a dollar."""
_TOO_MUCH: Final = Decimal(10**12)


def _kept(cost: Decimal) -> Decimal:
    exponent = cost.as_tuple().exponent
    return round(cost, _DECIMALS) if isinstance(exponent, int) and exponent < -_DECIMALS else cost


Cost = Annotated[Decimal, Field(ge=0, lt=_TOO_MUCH), AfterValidator(_kept)]


class Usage(Record):
    """What one or more model calls took. Sums only grow."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cost: Cost = Decimal(0)
    """US dollars: what the provider says, or else what its price list does. Nothing where neither is known."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            requests=self.requests + other.requests,
            cost=self.cost + other.cost,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class ToolCall(Record):
    """A call that the model asked for, under our id. Legal and unique whatever the provider sent."""

    id: str
    """Ours: unique in the thread, within `[A-Za-z0-9_-]`."""
    tool: str
    """The name that the model used, made legal."""
    misnamed: str | None = None
    """The name as the model said it, where that is not legal. No tool has such a name, so no tool runs."""
    args: dict[str, Any]
    """The parsed arguments; empty if they could not be parsed."""
    fault: str | None = None
    """Why this call cannot run at all: its arguments are not a JSON object, or its response was cut off."""
    provider_id: str | None = None
    """What the provider called it; kept for reading, never used to match."""


OUTCOMES = ("success", "error", "declined", "failed", "expired", "interrupted", "cancelled")
Outcome = Literal["success", "error", "declined", "failed", "expired", "interrupted", "cancelled"]


# Turns are made anew from items for every request, a thousand of them for a long history, of values that
# were validated when the items were read: plain dataclasses, which cost half as much to make.
_TURN: Final = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """What a user said."""

    __pydantic_config__ = _TURN

    kind: Literal["user"] = "user"
    id: str = field(default="", compare=False)
    """`run_id:seq` of its item: what an action names as `origin.message_id`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """A recorded response."""

    __pydantic_config__ = _TURN

    kind: Literal["model"] = "model"
    id: str = field(default="", compare=False)
    """`run_id:seq` of its item: what an action names as `origin.message_id`."""
    text: str
    calls: tuple[ToolCall, ...] = ()
    raw: str | None = None
    """The provider's own message as JSON text, for replay to it."""
    provider: str | None = None
    """Who can read `raw`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTurn:
    """The one result of one call."""

    __pydantic_config__ = _TURN

    kind: Literal["result"] = "result"
    id: str = field(default="", compare=False)
    """`run_id:call_id`."""
    call_id: str
    tool: str
    outcome: Outcome
    content: Any
    """JSON value that the model reads."""
    note: str | None = None
    """A statement about the call that the model reads as well: who changed its arguments, and what they said."""


Turn = Annotated[UserTurn | ModelTurn | ResultTurn, Field(discriminator="kind")]


class ToolSpec(Record):
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(Record):
    """One model call. `conversation` holds exactly one `ResultTurn` per call, in the order of the calls."""

    instructions: str
    conversation: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    """temperature, max_tokens and so on, handed to the provider."""


class RequestedCall(Record):
    """A tool call exactly as the provider returned it: any field may be empty, repeated or illegal."""

    id: str | None = None
    name: str
    args: str
    """Raw text, hopefully a JSON object."""


class ModelResponse(Record):
    """What a model returned."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    finish_reason: str | None = None
    raw: str | None = None
    provider: str | None = None
