"""What the methods of a store return, where it is no record of ours."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.answers import Issue
from adjourn.schemas.records.events import Event, ThreadPosition
from adjourn.schemas.records.items import Item
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import ENDED, Run, RunStatus, WakeUp


class DeadLetter(NamedTuple):
    """A refused message."""

    id: int
    at: datetime
    channel: str
    status: str
    detail: str
    action_id: str | None
    body: bytes
    issues: tuple[Issue, ...]


class EarlyAnswer(NamedTuple):
    """A kept answer."""

    id: int
    action_id: str
    body: str
    answered_by: str | None
    channel: str | None = None
    """How it came in; `None` of one that an older version kept."""
    awaited: bool = False
    """Whether its sender waits for the receipt."""
    received_at: datetime | None = None
    """When it came in. A deadline that passed after this does not make it late."""


class Notified(NamedTuple):
    """The parent that was told of the end of a child."""

    run_id: str
    thread_id: str
    ordinal: int
    item: Item
    """The resolution that was recorded."""
    wake: bool
    """Whether it rested and is due now: publish a wake-up."""


class Cancelled(NamedTuple):
    """What ending a run from outside did."""

    run: Run
    changed: bool
    """False if the run had ended before."""
    place: ThreadPosition | None = None
    """Of the end that this cancel wrote."""
    closed_action_ids: tuple[str, ...] = ()
    """The actions that ended with it: their parking records are of no more use."""
    next_run_id: str | None = None
    """The run of the thread that is due, because of this or an earlier cancel: publish its wake-up."""
    unpropagated: bool = False
    """Whether its end has yet to be told to its parent or its children."""


class Overdue(NamedTuple):
    """What a look for deadlines did."""

    wakeups: list[WakeUp]
    """Of the runs that rested until what expired would end."""
    action_ids: list[str]
    """The actions that expired: their parking records are of no more use."""
    damaged: tuple[DamagedRecordError, ...] = ()
    """Of the runs that cannot record that a deadline has passed."""


class Revived(NamedTuple):
    """A child that was retried with the root of its tree."""

    thread_id: str
    wakeup: WakeUp
    """To publish."""
    place: ThreadPosition
    """Of the last item that the retry wrote to it."""


class Retried(NamedTuple):
    """A run that was retried."""

    run: Run
    wakeup: WakeUp
    """To publish."""
    place: ThreadPosition
    """Of the last item that the retry wrote to it."""
    revived: tuple[Revived, ...] = ()
    """The children that were retried with it, those nearest to it first."""
    untold: tuple[str, ...] = ()
    """Children that had ended and of which a parent has yet to be notified."""


class ThreadSummary(NamedTuple):
    """A thread by its last run."""

    thread_id: str
    created_at: datetime
    updated_at: datetime
    agent: str
    status: str
    run_id: str


class Wait(NamedTuple):
    """An open wait: for an answer, or for a child."""

    run_id: str
    call_id: str
    action_id: str


class Seen(NamedTuple):
    """A thread with everything that it takes to show it, as one statement saw it."""

    runs: tuple[Run, ...]
    """Oldest first."""
    items: tuple[Item, ...]
    """Of these runs."""
    pending: tuple[PendingAction, ...]
    """Those of runs below included."""
    runs_below: tuple[Run, ...]
    """The runs that were started under these and have not ended."""
    items_below: tuple[Item, ...]
    waits: tuple[Wait, ...]
    """Of all these runs."""


class RunHistory(NamedTuple):
    """A run with everything that is recorded of it."""

    run: Run
    items: tuple[Item, ...]
    actions: tuple[ActionState, ...]
    damage: DamagedRecordError | None = None
    """The first row of the run that cannot be read."""


class ArchivedThread(Record):
    """A thread as it is written to an archive: everything that was recorded of it."""

    state_version: int = STATE_VERSION
    thread_id: str
    last_ordinal: int
    """How many runs were ever started on it: a later one would be told by this."""
    runs: tuple[Run, ...]
    items: tuple[Item, ...]
    actions: tuple[ActionState, ...]


class Extent(NamedTuple):
    """Where a run stands in its thread."""

    thread_id: str
    begins: ThreadPosition
    """Before its first item."""
    last: ThreadPosition
    """Of its last item by now."""


RUNS_PER_PAGE: Final = 20
"""Runs of a page of `Streams.read`, at most."""
NESTED_PER_PAGE: Final = 100
"""Open waits of a page of `Streams.below`, at most; the next page has the next of them."""


class RunPage(NamedTuple):
    """A run as it is now, and what is recorded of it after a place."""

    run_id: str
    last: ThreadPosition
    """Of its last item, which may be beyond this page."""
    status: RunStatus
    updated_at: datetime
    events: tuple[Event, ...]
    delegates: bool
    """Whether it waits for runs below it."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED


FIRST_PAGE: Final = ""
"""Before every thread: where a round of `Recovery.lost_waits` begins."""


class LostWaits(NamedTuple):
    """One page of the search."""

    wakeups: list[WakeUp]
    """Of the runs that are due again."""
    damaged: tuple[DamagedRecordError, ...]
    """Of the runs whose child does not exist."""
    last: str
    """The last thread of the page, after which the next page begins; `FIRST_PAGE` once all threads were looked at."""
