"""What a run, or an agent that is a part of one, may still use. Arithmetic on what is recorded; decides nothing.

A child reserves its share: no other child gets any of that before it has ended, and then what it has not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from adjourn.schemas.errors import LimitExceededError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import Run
from adjourn.tasks.engine.history import History


class Amount(NamedTuple):
    """So much of everything that limits count, but for time."""

    turns: int
    tool_calls: int
    usage: Usage

    def plus(self, other: Amount) -> Amount:
        return Amount(self.turns + other.turns, self.tool_calls + other.tool_calls, self.usage + other.usage)


class Shortage(NamedTuple):
    """Too little is left of a limit to give everybody a part of it."""

    limit: str
    left: float
    parts: int

    def __str__(self) -> str:
        return f"what is left of the limit on {self.limit}, {self.left:g}, is too little for {self.parts} parts"


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
    def of_run(cls, run: Run, limits: Limits, log: History) -> Budget:
        """Of a run as a whole, with all that was done under it and has ended."""
        children = (state for states in log.children.values() for state in states)
        return cls(limits, Amount(run.turns, run.tool_calls, run.usage), run.seconds, _reserved(children))

    @classmethod
    def of_agent(cls, limits: Limits, call_id: str, run: Run, log: History) -> Budget:
        """Of an agent that is a part of a run: its own turns, and those of the children that it has called."""
        children = log.children.get(call_id, ())
        said = [turn for _, turn in log.turns.get(call_id, ()) if isinstance(turn, ResponseItem)]
        own = Amount(len(said), sum(len(turn.calls) for turn in said), sum((turn.usage for turn in said), Usage()))
        return cls(limits, own.plus(_used(children)), run.seconds, _reserved(children))

    def exceeded(self) -> LimitExceededError | None:
        """The limit that another model call would break."""
        return self.limits.exceeded(*self.used, self.seconds)

    def share(self, sharers: int) -> Limits | Shortage:
        """The part of each of so many who start now.

        Time is not divided: they run side by side, each by its own clock.
        """
        limits, gone = self.limits, self.used.plus(self.reserved)
        left: dict[str, Any] = {}
        # Who starts them reads what they came to: one turn is kept for that, and a part of all else.
        parts = {"turns": sharers, "seconds": 1}
        if limits.turns is not None:
            left["turns"] = limits.turns - gone.turns - 1
        if limits.tool_calls is not None:
            left["tool_calls"] = limits.tool_calls - gone.tool_calls
        if limits.tokens is not None:
            left["tokens"] = limits.tokens - gone.usage.total_tokens
        if limits.cost is not None:
            left["cost"] = Decimal(str(limits.cost)) - gone.usage.cost
        if limits.seconds is not None:
            left["seconds"] = limits.seconds - self.seconds
        share: dict[str, Any] = {"turns": None}
        for name, amount in left.items():
            divisor = parts.get(name, sharers + 1)
            share[name] = amount // divisor if isinstance(amount, int) else float(amount / divisor)
            if share[name] <= 0:
                return Shortage(name, max(0.0, float(amount)), divisor)
        return Limits.model_validate(share)


def _used(children: Iterable[ActionState]) -> Amount:
    """What children had used when they ended, with all under them; nothing before that."""
    turns, tool_calls, usage = 0, 0, Usage()
    for state in children:
        # Of a wait that was closed with its run, what the child had used stands in `data`.
        ended: Any = state.resolution and (state.resolution.resume or state.resolution.data)
        if ended and "usage" in ended:  # state version 3 did not tell
            turns += ended["turns"]
            tool_calls += ended["tool_calls"]
            usage += Usage.model_validate(ended["usage"])
    return Amount(turns, tool_calls, usage)


def _reserved(children: Iterable[ActionState]) -> Amount:
    turns, tool_calls, tokens, cost = 0, 0, 0, Decimal(0)
    for state in children:
        if state.child is not None and state.child.is_share and state.resolution is None:
            limits = state.child.limits
            turns += limits.turns or 0
            tool_calls += limits.tool_calls or 0
            tokens += limits.tokens or 0
            cost += 0 if limits.cost is None else Decimal(str(limits.cost))
    return Amount(turns, tool_calls, Usage(input_tokens=tokens, cost=cost))
