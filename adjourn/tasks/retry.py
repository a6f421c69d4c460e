"""Picking a failed run up again once what failed it has been put right."""

from __future__ import annotations

from typing import Final

from adjourn.schemas.errors import (
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
from adjourn.schemas.events import NOWHERE, MoreEvent
from adjourn.schemas.limits import Limits
from adjourn.schemas.runs import Run
from adjourn.store import actions, retries
from adjourn.tasks.children import settle
from adjourn.tasks.services import Door

_FIXABLE: Final[tuple[type[RunError], ...]] = (
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
    retried = retries.retry(
        door.db,
        run_id,
        types=FIXABLE,
        types_anew=_ANEW,
        by=by,
        limits=limits,
        rehint_seconds=door.policy.rehint_seconds,
    )
    run = retried.run
    # Committed. Whatever follows may be lost in a crash: an answer then finds its action in PostgreSQL, a reader of the
    # thread reads the retry there, and the sweep publishes the hints and notifies parents.
    reopened = actions.pending(door.db, run_id=run_id)  # those beyond its limit are looked up in Postgres
    door.parking.put(reopened)
    door.events.publish(run.thread_id, [MoreEvent(id=str(retried.place), run_id=run_id)])
    for child in retried.revived:
        child_id = child.hint.run_id
        door.events.publish(child.thread_id, [MoreEvent(id=str(child.place), run_id=child_id)])
        door.events.publish(run.thread_id, [MoreEvent(id=NOWHERE, run_id=child_id)])
    door.hints.publish(retried.hint)
    for child in retried.revived:
        door.hints.publish(child.hint)
    for ended in retried.untold:
        settle(door, ended)
    return run
