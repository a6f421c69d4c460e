"""Events: what a viewer of a thread is sent, in one order, each with an id to go on from.

Most events are items in other words, and the id of such an event is the place of its item, so that
Postgres alone can say what comes after it. Owns the ids, and how an item becomes its event.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from adjourn.schemas.errors import IllegalIdError
from adjourn.schemas.records.actions import ActionState, PendingAction, Resolution
from adjourn.schemas.records.items import EndItem, EndStatus, Item, ItemBody, ResponseItem, RunFailure, SuspensionItem
from adjourn.schemas.records.record import Record

_ID: Final = re.compile(r"(\d{1,9})-(\d{1,9})(-parked)?(?::(\d{1,20}-\d{1,20}))?")


class ThreadPosition(NamedTuple):
    """Where an item stands in its thread. Places compare as their items follow each other."""

    run: int
    """The ordinal of its run on the thread."""
    seq: int

    def __str__(self) -> str:
        return f"{self.run}-{self.seq}"


BEGINNING: Final = ThreadPosition(0, 0)
THREAD_START: Final = str(BEGINNING)
"""The id in Redis of what is no item of the thread: it is about a run below one of the thread's."""


class Cursor(NamedTuple):
    """What the id of an event says about who has seen it."""

    place: ThreadPosition = BEGINNING
    """The last item that they have seen."""
    parked: bool = False
    """Whether they were told that the run parked there."""
    entry: str | None = None
    """The last entry of the Redis stream that they have seen, if the event was only there."""

    @classmethod
    def parse(cls, id: str) -> Cursor:
        """Raises `IllegalIdError`."""
        match = _ID.fullmatch(id)
        if match is None:
            raise IllegalIdError("event id", id)
        run, seq, parked, entry = match.groups()
        return cls(ThreadPosition(int(run), int(seq)), parked is not None, entry)

    def __str__(self) -> str:
        return f"{self.place}{'-parked' if self.parked else ''}{f':{self.entry}' if self.entry else ''}"


class _Event(Record):
    id: str
    """Opaque. Given back as `after`, it brings everything that came after this event."""
    run_id: str


class ItemEvent(_Event):
    """An item was recorded: a message, a response with its calls and its usage, an output, and so on."""

    kind: Literal["item"] = "item"
    at: datetime
    item: ItemBody
    """Of a response without `raw`, the provider's own message, which is for its provider."""


class SuspensionEvent(_Event):
    """A wait was opened: everything that it takes to answer it."""

    kind: Literal["suspension"] = "suspension"
    at: datetime
    action: PendingAction
    """As it was opened. How it ended is another event, the item of its `resolution`."""


class ParkedEvent(_Event):
    """The run parked: nothing comes of it until somebody answers. A state, and no item."""

    kind: Literal["parked"] = "parked"
    at: datetime

    @classmethod
    def of(cls, run_id: str, place: ThreadPosition, at: datetime) -> ParkedEvent:
        """Parked at `at`, when `place` was the last item of the run."""
        return cls(id=str(Cursor(place, parked=True)), run_id=run_id, at=at)


class EndEvent(_Event):
    """The run ended: completed, failed or cancelled."""

    kind: Literal["end"] = "end"
    at: datetime
    reason: EndStatus
    output: Any = None
    error: RunFailure | None = None


class DeltaEvent(_Event):
    """A piece of a response that is not recorded yet, and may never be.

    `text` belongs at `offset` of part `part` of what attempt `attempt` at the turn of `call_id` says.
    """

    kind: Literal["delta"] = "delta"
    call_id: str
    """The call of the agent whose turn it is, as in the item of its response."""
    attempt: str
    part: int
    tool: str | None = None
    """The tool that is called, if the part is a call and the text a piece of its arguments."""
    offset: int
    """In characters."""
    text: str


class AttemptDiscarded(_Event):
    """An attempt at a turn broke: what its deltas said is void. The turn is asked again, or the run fails."""

    kind: Literal["void"] = "void"
    call_id: str
    attempt: str


class NestedEvent(_Event):
    """A wait of a run below was opened, or ended: of a sub-agent's run, or of one that was started under it.

    Such a wait is an item of another thread, so it has no place in the order of this one. A viewer is told of each
    that is open, and how each of these ended; one that joins again is told anew of those that are open by then.
    """

    kind: Literal["nested"] = "nested"
    run_id: str
    """The run that asked."""
    at: datetime
    action: PendingAction
    """Its `status` says whether it is open, or how it ended; its `origin` has the path to who asked."""
    resolution: Resolution | None = None
    """What was answered, if it has ended."""


class RefreshEvent(_Event):
    """Only in Redis: something was recorded, up to the place of the id, that is to be read in Postgres.

    With the id `0-0` it is something about a wait of a run below.
    """

    kind: Literal["more"] = "more"


Event = Annotated[
    ItemEvent | SuspensionEvent | ParkedEvent | EndEvent | DeltaEvent | AttemptDiscarded | NestedEvent | RefreshEvent,
    Field(discriminator="kind"),
]
EVENTS: TypeAdapter[tuple[Event, ...]] = TypeAdapter(tuple[Event, ...])


def event_of(item: Item, ordinal: int, action: PendingAction | None = None, output: Any = None) -> Event:
    """The event of an item, whoever tells it and whenever.

    A suspension takes its `action`, an end the `output` of the run.
    """
    body = item.body
    place: dict[str, Any] = {"id": str(ThreadPosition(ordinal, item.seq)), "run_id": item.run_id, "at": item.at}
    match body:
        case SuspensionItem() if action is not None:
            return SuspensionEvent(**place, action=action.model_copy(update={"status": "pending"}))
        case EndItem():
            return EndEvent(**place, reason=body.status, output=output, error=body.error)
        case ResponseItem():
            return ItemEvent(**place, item=body.model_copy(update={"raw": None}))
    return ItemEvent(**place, item=body)


def nested(state: ActionState, id: str) -> NestedEvent:
    """The event of a wait of a run below, as it is now."""
    at = state.resolution.resolved_at if state.resolution else state.action.opened_at
    run_id = state.action.origin.run_id
    return NestedEvent(id=id, run_id=run_id, at=at, action=state.action, resolution=state.resolution)
