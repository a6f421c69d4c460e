"""Calls whose body died in the middle: nobody knows whether it did its work.

A tool that marks its start (`repeatable=False`, or `verify`) leaves a start item before each pass.
A start with neither an output nor a suspension after it is a pass that died.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel

from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.wait_points import WaitPoint

T = TypeVar("T")

OUTCOME_WAIT_POINT: Final = "outcome"
"""Where an operator is asked what became of the call: the action is `tool.outcome`."""


class AskOutcome(BaseModel):
    """What the operator is shown."""

    prompt: str
    input: dict[str, Any]
    """What the tool was called with."""
    idempotency_key: str
    """What the body handed on, if it did: look for this in the other system."""


class Happened(BaseModel, Generic[T]):
    """The body had done its work; this is what it would have returned."""

    happened: Literal[True]
    output: T


class DidNotHappen(BaseModel):
    """It had not: it may run again."""

    happened: Literal[False]


def outcome_wait_point(output: Any) -> WaitPoint[Any, Any]:
    """The wait point of a tool with this output type. It has no deadline: only a person knows."""
    answer: Any = Happened[output] | DidNotHappen
    return WaitPoint(OUTCOME_WAIT_POINT, suspend=AskOutcome, resume=answer, kind="outcome", on_timeout="error")


def asks_outcome(state: ActionState) -> bool:
    """Whether this action asks an operator, and is none of the tool's own waits."""
    return state.action.origin.wait_point == OUTCOME_WAIT_POINT and state.action.kind == "outcome"
