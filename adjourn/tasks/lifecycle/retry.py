"""Picking a failed run up again once what failed it has been put right."""

from __future__ import annotations

from typing import Final

from adjourn.schemas.errors import (
    AskAwaitedError,
    BlockChangedError,
    ChildFailedError,
    DamagedRecordError,
    DriverFaultError,
    HistoryTooLargeError,
    LimitExceededError,
    ModelRequestError,
    NewerTurnError,
    PoisonedRunError,
    PromptError,
    ReplayMismatchError,
    RouteUnavailableError,
    RunError,
    SelectorError,
    StatementRefusedError,
    StoredValueError,
    ToolChangedError,
    ToolProcessError,
    ToolResolverError,
    UnknownBlockError,
)
from adjourn.schemas.records.events import THREAD_START, RefreshEvent
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import Run
from adjourn.tasks.answers.ends import propagate_end
from adjourn.tasks.host.services import Door

_FIXABLE: Final[tuple[type[RunError], ...]] = (
    AskAwaitedError,
    BlockChangedError,
    ChildFailedError,
    DamagedRecordError,
    DriverFaultError,
    HistoryTooLargeError,
    LimitExceededError,
    ModelRequestError,
    NewerTurnError,
    PoisonedRunError,
    PromptError,
    ReplayMismatchError,
    RouteUnavailableError,
    SelectorError,
    StatementRefusedError,
    StoredValueError,
    ToolChangedError,
    ToolProcessError,
    ToolResolverError,
    UnknownBlockError,
)
FIXABLE: Final = frozenset(each.__name__ for each in _FIXABLE)
"""Failures that lie outside the run: in the code, a limit, a provider. What its own blocks came to, or a
deadline that passed, is the run's outcome, and a new run is started instead."""


_ANEW: Final = frozenset({LimitExceededError.__name__})
"""Failures of a child after which its call starts another: with a share of the limit that has been raised."""


def retry(door: Door, run_id: str, *, by: str | None = None, limits: Limits | None = None) -> Run:
    """Let a failed run go on where it was, with all that it has recorded; its open waits are open again.

    So are those of its children, at any depth, that failed in a way that lies outside them or were closed with it:
    they go on where they were, too. `limits` take the place of the run's own. Raises `NotFoundError`,
    `NotRetryableError`, and `ThreadBusyError` if its thread has another run that has not ended.
    """
    retried = door.store.retries.retry(
        run_id,
        types=FIXABLE,
        types_anew=_ANEW,
        by=by,
        limits=limits,
    )
    run = retried.run
    # Committed. Whatever follows may be lost in a crash: an answer then finds its action in PostgreSQL, a reader of the
    # thread reads the retry there, and the sweep publishes the wake-ups and notifies parents.
    reopened = door.store.actions.pending(run_id=run_id)  # those beyond its limit are looked up in Postgres
    door.parking.put(reopened)
    door.events.publish(run.thread_id, [RefreshEvent(id=str(retried.place), run_id=run_id)])
    for child in retried.revived:
        child_id = child.wakeup.run_id
        door.events.publish(child.thread_id, [RefreshEvent(id=str(child.place), run_id=child_id)])
        door.events.publish(run.thread_id, [RefreshEvent(id=THREAD_START, run_id=child_id)])
    door.wakeups.publish(retried.wakeup)
    for child in retried.revived:
        door.wakeups.publish(child.wakeup)
    for ended in retried.untold:
        propagate_end(door, ended)
    return run
