"""What a run, or an agent that is a part of one, may still use. Arithmetic on what is recorded; decides nothing.

A child reserves its share: no other child gets any of that before it has ended, and then what it has not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NamedTuple

from adjourn.schemas.actions import ActionState
from adjourn.schemas.errors import LimitExceededError
from adjourn.schemas.items import ResponseItem
from adjourn.schemas.limits import Limits
from adjourn.schemas.messages import Usage
from adjourn.schemas.runs import Run
from adjourn.tasks.log import Log


class Amount(NamedTuple):
    """So much of everything that limits count, but for time."""

    turns: int
    tool_calls: int
    usage: Usage

    def plus(self, other: Amount) -> Amount:
        return Amount(self.turns + other.turns, self.tool_calls + other.tool_calls, self.usage + other.usage)


_NOTHING: Final = Amount(0, 0, Usage())


class Shortage(NamedTuple):
    """Too little is left of a limit to give everybody a part of it."""

    limit: str
    left: float
    sharers: int

    def __str__(self) -> str:
        return f"what is left of the limit on {self.limit}, {self.left:g}, is not enough for {self.sharers} at once"


@dataclass(frozen=True)
class Budget:
    """Limits, and what of them is gone."""

    limits: Limits
    used: Amount
    seconds: float
    """Of the whole run."""
    reserved: Amount
    """The shares of children that still run."""

    @classmethod
    def of_run(cls, run: Run, limits: Limits, log: Log) -> Budget:
        """Of a run as a whole, with all that was done under it and has ended."""
        children = (state for states in log.children.values() for state in states)
        return cls(limits, Amount(run.turns, run.tool_calls, run.usage), run.seconds, _reserved(children))

    @classmethod
    def of_agent(cls, limits: Limits, call_id: str, run: Run, log: Log) -> Budget:
        """Of an agent that is a part of a run: its own turns, and those of the children that it has called."""
        children = log.children.get(call_id, ())
        said = (turn for _, turn in log.turns.get(call_id, ()) if isinstance(turn, ResponseItem))
        own = (Amount(1, len(turn.calls), turn.usage) for turn in said)
        return cls(limits, _sum((*own, *map(_used, children))), run.seconds, _reserved(children))

    def exceeded(self) -> LimitExceededError | None:
        """The limit that another model call would break."""
        return self.limits.exceeded(*self.used, self.seconds)

    def share(self, sharers: int) -> Limits | Shortage:
        """The part of each of so many who start now.

        Time is not divided: they run side by side, each by its own clock.
        """
        limits, gone = self.limits, self.used.plus(self.reserved)
        left: dict[str, Any] = {}
        parts: dict[str, Any] = {}
        # Who starts them reads what they came to: one turn is kept for that, and a part of all else.
        if limits.turns is not None:
            left["turns"] = limits.turns - gone.turns - 1
            parts["turns"] = left["turns"] // sharers
        if limits.tool_calls is not None:
            left["tool_calls"] = limits.tool_calls - gone.tool_calls
            parts["tool_calls"] = left["tool_calls"] // (sharers + 1)
        if limits.tokens is not None:
            left["tokens"] = limits.tokens - gone.usage.total_tokens
            parts["tokens"] = left["tokens"] // (sharers + 1)
        if limits.cost is not None:
            left["cost"] = Decimal(str(limits.cost)) - gone.usage.cost
            parts["cost"] = float(left["cost"] / (sharers + 1))
        if limits.seconds is not None:
            left["seconds"] = parts["seconds"] = limits.seconds - self.seconds
        short = next((name for name, part in parts.items() if part <= 0), None)
        if short is not None:
            return Shortage(short, max(0.0, float(left[short])), sharers)
        return Limits.model_validate({"turns": None, **parts})


def _sum(amounts: Iterable[Amount]) -> Amount:
    return reduce(Amount.plus, amounts, _NOTHING)


def _used(state: ActionState) -> Amount:
    """What a child had used when it ended, with all under it; nothing before that."""
    ended: Any = state.resolution.resume if state.resolution else None
    if ended is None or "usage" not in ended:  # state version 3 did not tell
        return _NOTHING
    return Amount(ended["turns"], ended["tool_calls"], Usage.model_validate(ended["usage"]))


def _reserved(children: Iterable[ActionState]) -> Amount:
    return _sum(
        Amount(
            state.child.limits.turns or 0,
            state.child.limits.tool_calls or 0,
            Usage(input_tokens=state.child.limits.tokens or 0, cost=Decimal(str(state.child.limits.cost or 0))),
        )
        for state in children
        if state.child is not None and state.child.is_share and state.resolution is None
    )
