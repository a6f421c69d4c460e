"""What a call came to: its output, or the waits that it opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from adjourn.schemas.errors import (
    AdjournError,
    AnswerFailed,
    Declined,
    Expired,
    Refused,
    ToolTimeoutError,
)
from adjourn.schemas.records.actions import NewAction
from adjourn.schemas.records.messages import Outcome
from adjourn.schemas.strict_json import clean_text
from adjourn.tasks.blocks.user_code import describe_error

_REFUSED: Final[dict[type[Refused], Outcome]] = {Declined: "declined", AnswerFailed: "failed", Expired: "expired"}


@dataclass(frozen=True)
class Output:
    """The call is closed: what the model reads."""

    outcome: Outcome
    content: Any


@dataclass(frozen=True)
class Suspended:
    """The call waits. `opened` are the waits that are not stored yet."""

    opened: tuple[NewAction, ...]


CallResult = Output | Suspended


def refusal(error: BaseException) -> Output:
    """An error as the model reads it."""
    if isinstance(error, Refused):
        return Output(_REFUSED[type(error)], clean_text(str(error)))
    if isinstance(error, ToolTimeoutError):
        return Output("interrupted", clean_text(str(error)))
    if isinstance(error, AdjournError):
        return Output("error", clean_text(str(error)))
    return Output("error", describe_error(error))
