"""What a worker holds while it drives a run: the claim, all that it loaded, and what a write makes of the run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from adjourn.schemas.actions import ActionState, NewAction
from adjourn.schemas.items import Item, ItemBody, RunFailure
from adjourn.schemas.messages import Usage
from adjourn.schemas.record import Record
from adjourn.schemas.runs import Due, Run, RunStatus


class Claim(Record):
    """A run, held under a token, with everything its next step needs. Loaded by one statement."""

    run: Run
    ordinal: int
    """Of the run, on its thread."""
    token: str
    wakes: int
    """The counter that answers, cancels and messages bump. The run parks only if it has not moved."""
    earlier: tuple[Item, ...]
    """Items of the ended runs of this thread, oldest first."""
    items: tuple[Item, ...]
    """Items of this run, by seq."""
    actions: tuple[ActionState, ...]
    """All actions of this run, by (opened_at, id)."""
    history_bytes: int
    """Of the bodies of all these items."""


class Park(Record):
    """Only open waits remain. Falls back to going on if the counter has moved."""

    kind: Literal["park"] = "park"


class Requeue(Record):
    """The run gives its claim back and is due again."""

    kind: Literal["requeue"] = "requeue"
    due: Due = "turn"
    delay_seconds: float = 0


class End(Record):
    """The run ends; what is still open is closed, and the next run of the thread becomes due."""

    kind: Literal["end"] = "end"
    status: Literal["completed", "failed", "cancelled"]
    output: Any = None
    error: RunFailure | None = None


class Write(Record):
    """One durable step of a run: items appended, waits opened, totals grown, and what the run becomes.

    All of it happens or none; only under the claim's token.
    """

    items: tuple[ItemBody, ...] = ()
    actions: tuple[NewAction, ...] = ()
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    becomes: Park | Requeue | End | None = None


class Written(Record):
    """What a write made of the run."""

    status: RunStatus
    """`running` if it was to park but the counter had moved: load again and go on."""
    wakes: int
    seq: int
    """Of the last item of the run. Those of a write are the last that it wrote."""
    at: datetime
    """The database's time of the write: `opened_at` of its actions."""
    bytes: int
    """Of the items of this write, as they are stored."""
    seconds: float = 0
    """For which workers have had the run in hand by now."""
    next_run_id: str | None = None
    """The run that became due because this one ended."""
    closed_action_ids: tuple[str, ...] = ()
    """The actions that ended with it."""


class Answered(Record):
    """What the compare-and-set made of an answer."""

    outcome: Literal["accepted", "duplicate", "late", "unknown", "waiting"]
    run_id: str | None = None
    thread_id: str | None = None
    name: str | None = None
    action_status: str | None = None
    wake: bool = False
    """Whether the run was parked and is due now: publish a hint."""
    item: Item | None = None
    """The resolution that was recorded, if this ended the action."""
    ordinal: int = 0
    """Of the run, on its thread, where there is an item."""


class Started(Record):
    """What a start made."""

    run_id: str
    thread_id: str
    created: bool
    """False if a run of this id was there already."""
    due: bool
    """False if it waits behind another run of its thread."""
    at: datetime | None = None
    """When, if this start made it."""
