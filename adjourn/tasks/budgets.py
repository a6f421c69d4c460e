"""What a run, or an agent that is a part of one, may still use. Arithmetic on what is recorded; decides nothing.

A child reserves its share: what it has not used by its end it gives back, and meanwhile nobody else may use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from adjourn.schemas.actions import ActionState
from adjourn.schemas.errors import LimitExceededError
from adjourn.schemas.items import ResponseItem
from adjourn.schemas.limits import Limits
from adjourn.schemas.messages import Usage
from adjourn.schemas.runs import Run
from adjourn.tasks.log import Log


@dataclass(frozen=True)
class Budget:
    """Limits, and what of them is gone."""

    limits: Limits
    turns: int
    tool_calls: int
    usage: Usage
    seconds: float
    reserved: tuple[Limits, ...] = ()
    """The shares of children that still run."""

    @classmethod
    def of_run(cls, run: Run, limits: Limits, log: Log) -> Budget:
        """Of a run as a whole, with all that was done under it and has ended."""
        children = (state for states in log.children.values() for state in states)
        return cls(limits, run.turns, run.tool_calls, run.usage, run.seconds, _reserved(children))

    @classmethod
    def of_agent(cls, limits: Limits, call_id: str, run: Run, log: Log) -> Budget:
        """Of an agent that is a part of a run: its own turns, and those of the children that it has called.

        Time is that of the whole run.
        """
        said = [turn for _, turn in log.turns.get(call_id, ()) if isinstance(turn, ResponseItem)]
        children = log.children.get(call_id, ())
        ended = [_used(state) for state in children]
        usages = [turn.usage for turn in said] + [each.usage for each in ended]
        return cls(
            limits,
            len(said) + sum(each.turns for each in ended),
            sum(len(turn.calls) for turn in said) + sum(each.tool_calls for each in ended),
            sum(usages, Usage()),
            run.seconds,
            _reserved(children),
        )

    def exceeded(self) -> LimitExceededError | None:
        """The limit that another model call would break."""
        return self.limits.exceeded(self.turns, self.tool_calls, self.usage, self.seconds)

    @property
    def holds_back(self) -> bool:
        """Whether another model call would use what a child has reserved: it has to wait until that has ended."""
        if not self.reserved:
            return False
        usage = self.usage + Usage(
            input_tokens=sum(each.tokens or 0 for each in self.reserved),
            cost=sum((Decimal(str(each.cost or 0)) for each in self.reserved), Decimal(0)),
        )
        turns = self.turns + sum(each.turns or 0 for each in self.reserved)
        tool_calls = self.tool_calls + sum(each.tool_calls or 0 for each in self.reserved)
        return self.limits.exceeded(turns, tool_calls, usage, self.seconds) is not None

    def share(self, sharers: int) -> Limits | None:
        """The part of each of so many who start now; None if there is nothing left to share.

        Time is not divided: they run side by side, each by its own clock.
        """
        limits = self.limits

        def part(limit: int | None, used: int, kept: Iterable[int | None]) -> int | None:
            return None if limit is None else (limit - used - sum(each or 0 for each in kept)) // sharers

        # The turn that reads what the children came to is the parent's own.
        turns = None if limits.turns is None else limits.turns - 1
        parts: dict[str, Any] = {
            "turns": part(turns, self.turns, (each.turns for each in self.reserved)),
            "tool_calls": part(limits.tool_calls, self.tool_calls, (each.tool_calls for each in self.reserved)),
            "tokens": part(limits.tokens, self.usage.total_tokens, (each.tokens for each in self.reserved)),
            "seconds": None if limits.seconds is None else limits.seconds - self.seconds,
            "cost": None,
        }
        if limits.cost is not None:
            kept = sum(Decimal(str(each.cost or 0)) for each in self.reserved)
            parts["cost"] = float((Decimal(str(limits.cost)) - self.usage.cost - kept) / sharers)
        if any(each is not None and each <= 0 for each in parts.values()):
            return None
        return Limits.model_validate(parts)


@dataclass(frozen=True)
class _Used:
    turns: int
    tool_calls: int
    usage: Usage


_NOTHING = _Used(0, 0, Usage())


def _used(state: ActionState) -> _Used:
    """What a child had used when it ended, with all under it; nothing before that."""
    ended: Any = state.resolution.resume if state.resolution else None
    if ended is None or "usage" not in ended:
        return _NOTHING
    return _Used(ended["turns"], ended["tool_calls"], Usage.model_validate(ended["usage"]))


def _reserved(children: Iterable[ActionState]) -> tuple[Limits, ...]:
    return tuple(
        state.child.limits
        for state in children
        if state.child is not None and state.child.is_share and state.resolution is None
    )
