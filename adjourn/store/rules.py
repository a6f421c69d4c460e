"""Rules that every store keeps: ends that it writes itself, reasons in the history of waits, how long things last."""

from __future__ import annotations

from typing import Final

from adjourn.schemas.internal.state import End
from adjourn.schemas.records.items import RunFailure

CLOSED_BY_ANSWER: Final = "another wait of the same question was answered first"
"""The reason in the history of a wait that an answer to another one closed."""
CLOSED_BY_DEADLINE: Final = "the deadline of another wait of the same question has passed"
"""The reason in the history of a wait that was closed by a deadline that fails the run."""
CLOSED_BY_CANCEL: Final = "the run was cancelled"
"""The reason in the history of a wait that was closed with its cancelled run."""
CLOSED_BY_FAILURE: Final = "the run failed"
"""The reason in the history of a wait that was closed with its failed run."""
PARENT_ENDED: Final = "the run that had started it has ended"
"""Why a run was cancelled that nobody waits for any more."""

BUILD_KEPT_DAYS: Final = 1
"""How long a build that is gone is remembered."""
LEFT_WAKE_UPS: Final = 6
"""A run that some of the live builds leave to others is announced so many times in the time of one lost wake-up."""
LONGEST_RETRY: Final = 20
"""The pause between repeated wake-ups grows to this many times the first one."""
EARLY_RECEIPT_SECONDS: Final = 3_600
"""How long the receipt of an early answer is kept for a sender that has ceased to wait for it."""


def cancelled(reason: str | None, by: str | None) -> End:
    """The end of a run that somebody cancelled."""
    error = RunFailure(type="Cancelled", message=reason or CLOSED_BY_CANCEL, data={"reason": reason, "by": by})
    return End(status="cancelled", error=error)


def orphaned() -> End:
    """The end of a run whose parent has ended."""
    data = {"reason": PARENT_ENDED, "by": None, "orphaned": True}
    return End(status="cancelled", error=RunFailure(type="Cancelled", message=PARENT_ENDED, data=data))
