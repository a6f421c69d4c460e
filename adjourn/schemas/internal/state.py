"""What a worker holds while it drives a run: the claim, all that it loaded, and what a write makes of the run.

None of it is stored or sent as it is, so these are plain dataclasses: what is in them was checked when it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from adjourn.schemas.errors import AdjournError
from adjourn.schemas.records.actions import ActionState, NewAction, Resolution
from adjourn.schemas.records.items import EndStatus, Item, ItemBody, RunFailure, StoredItem
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import Due, Run, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run, held under a token, with everything its next step needs. Loaded by one statement."""

    run: Run
    ordinal: int
    """Of the run, on its thread."""
    token: str
    revision: int
    """The counter that answers, cancels and messages bump. The run parks only if it has not moved."""
    earlier: tuple[StoredItem, ...]
    """Items of the ended runs of this thread, oldest first."""
    items: tuple[StoredItem, ...]
    """Items of this run, by seq."""
    actions: tuple[ActionState, ...]
    """All actions of this run, by (opened_at, id)."""
    history_bytes: int
    """Of the bodies of all these items."""
    paused: bool = False
    """Whether the models that could not be asked are still left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Only open waits remain. Falls back to going on if the counter has moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """The run gives its claim back and is due again.

    At once; or, with `after_pause`, when the models that could not be asked may be asked again. Then it rests, and is
    due as soon as something happens to it, which may have been before this.
    """

    due: Due = "turn"
    after_pause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The run ends; what is still open is closed, and the next run of the thread becomes due."""

    status: EndStatus
    output: Any = None
    error: RunFailure | None = None

    @classmethod
    def failed(cls, error: AdjournError) -> End:
        """The end of a run that `error` fails."""
        return cls(status="failed", error=RunFailure.of(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One durable step of a run: items appended, waits opened, totals grown, and what the run becomes.

    All of it happens or none; only under the claim's token.
    """

    items: tuple[ItemBody, ...] = ()
    actions: tuple[NewAction, ...] = ()
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    pause_seconds: float = 0
    """For how long the models that could not be asked are left alone, if one more could not."""
    becomes: Park | Requeue | End | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write made of the run."""

    status: RunStatus
    """`running` if it was to park but the counter had moved: load again and go on."""
    rests: bool = False
    """Whether it was queued and is due later: no wake-up is to be published."""
    revision: int
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
    unpropagated: bool = False
    """Whether its end has to be told to its parent or its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the compare-and-set made of an answer."""

    outcome: Literal["accepted", "duplicate", "late", "unknown", "waiting"]
    run_id: str | None = None
    thread_id: str | None = None
    name: str | None = None
    action_status: str | None = None
    wake: bool = False
    """Whether the run rested and is due now: publish a wake-up."""
    item: Item | None = None
    """The resolution that was recorded, if this ended the action."""
    resolution: Resolution | None = field(default=None, compare=False)
    """What was answered, where there is an item."""
    ordinal: int = 0
    """Of the run, on its thread, where there is an item."""
    root_thread_id: str | None = None
    """Of a child, where there is an item: the thread of the root of its tree."""
    closed: tuple[str, ...] = ()
    """The waits of the same `ask_any` that this closed. Their items follow `item`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start made."""

    run_id: str
    thread_id: str
    created: bool
    """False if a run of this id was there already."""
    due: bool
    """False if it waits behind another run of its thread."""
    at: datetime | None = None
    """When, if this start made it."""
