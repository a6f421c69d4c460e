"""A run as a timeline that a person can read. Turns records into lines; prints nothing.

What happens inside a block that is a part of the run is indented, and named after the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import assert_never

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.events import Cursor, EndEvent, Event, ItemEvent, NestedEvent, ParkedEvent, SuspensionEvent
from adjourn.schemas.records.items import (
    ROOT,
    CorrectionItem,
    DamagedItem,
    EndItem,
    FaultItem,
    GivenAnswer,
    Item,
    ItemBody,
    MemoItem,
    MessageItem,
    OutputItem,
    ReopeningItem,
    ResolutionItem,
    ResponseItem,
    RetryItem,
    RouteItem,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import Run
from adjourn.tasks.engine.history import STEP
from adjourn.worker.text.lines import SHORT, as_json, one_line

LONG = 2_000
"""Characters of an answer that the timeline shows. `adjourn action` shows all of it."""
_LIVE_WIDTH = 3
"""Characters for the number of an item, where it is not known how many there will be."""
_KIND_WIDTH = max(len(kind) for kind in ("message", "response", "suspension", "resolution"))


def headline(run: Run) -> str:
    """One line about the run as it is now."""
    parts = [f"{run.id}  {run.agent}  {run.status}", f"thread {run.thread_id}"]
    parts.append(f"{run.turns} turns, {run.tool_calls} tool calls, {run.usage.total_tokens} tokens")
    return one_line("  ·  ".join(parts))


def result(run: Run) -> Iterator[str]:
    """What came of the run, if it has ended."""
    if run.error is not None:
        yield one_line(f"{run.error.type}: {run.error.message}")
    elif run.status == "completed":
        yield run.output if isinstance(run.output, str) else as_json(run.output)


def timeline(items: Sequence[Item], pending: Sequence[PendingAction] = ()) -> Iterator[str]:
    """A line per item: number, time, kind, and what it says; then a line per action that still waits."""
    width = len(str(len(items)))
    tree = _Tree()
    for item in items:
        yield from _item(item, tree, width)
    for action in pending:
        yield f"{'waits':>{width}}  {waiting(action)}"


def following(events: Iterable[Event]) -> Iterator[str]:
    """The same of a run that goes on, line by line as it does. Pieces of responses are left out."""
    tree = _Tree()
    for event in events:
        body: ItemBody
        match event:
            case ItemEvent():
                body = event.item
            case SuspensionEvent(action=action):
                body = SuspensionItem(call_id=action.origin.tool_call_id, action_id=action.id, name=action.name)
            case EndEvent():
                body = EndItem(status=event.reason, error=event.error)
            case ParkedEvent():
                yield f"{'':>{_LIVE_WIDTH}}  {_clock(event.at)}  parked"
                continue
            case NestedEvent():
                yield from _nested(event)
                continue
            case _:
                continue
        seq = Cursor.parse(event.id).place.seq
        yield from _item(Item(run_id=event.run_id, seq=seq, at=event.at, body=body), tree, _LIVE_WIDTH)
        if isinstance(event, SuspensionEvent):
            yield f"{'waits':>{_LIVE_WIDTH}}  {waiting(event.action)}"


def _nested(event: NestedEvent) -> Iterator[str]:
    action = event.action
    if action.status == "pending":
        yield f"{'waits':>{_LIVE_WIDTH}}  {waiting(action)}"
        return
    path = " / ".join(action.origin.block_path)
    ended = event.resolution
    who, said = answered(GivenAnswer.of(ended), ended.answered_by) if ended else ("", ())
    first, *more = (f"{action.id} of {path} {action.status}{who}", *said)
    place = f"{'':>{_LIVE_WIDTH}}  {_clock(event.at)}"
    yield f"{place}  {one_line(first)}"
    for line in more:
        yield f"{' ' * len(place)}  {one_line(line, LONG)}"


def _item(item: Item, tree: _Tree, width: int) -> Iterator[str]:
    tree.add(item.body)
    around = tree.around(item.body)
    inside = f"{'  ' * len(around)}{around[-1]}: " if around else ""
    limit = LONG if item.body.kind == "resolution" else SHORT
    for number, text in enumerate(_lines(item.body)):
        place = f"{item.seq:>{width}}  {_clock(item.at)}  {item.body.kind:<{_KIND_WIDTH}}"
        yield f"{place if number == 0 else ' ' * len(place)}  {one_line(inside + text, limit)}"


def waiting(action: PendingAction) -> str:
    """One line about an open action."""
    asked = action.prompt or as_json(action.input)
    until = f"  until {action.expires_at.isoformat(timespec='seconds')}" if action.expires_at else ""
    note = f"  ({action.note})" if action.note else ""
    return one_line(f"{action.id}  {action.name}  {asked}", SHORT) + until + note


def answered(said: GivenAnswer | None, answered_by: str | None) -> tuple[str, tuple[str, ...]]:
    """Who answered and by which channel, then lines with the value and the words beside it, as far as there are any."""
    who = f" by {answered_by}" if answered_by else ""
    if said is None:
        return who, ()
    value = said.data if said.resume is None else said.resume
    has_value = value is not None or (said.channel is not None and not (said.reason or said.message))
    lines = (
        f"→ {as_json(value)}" if has_value else "",
        f"message: {said.message}" if said.message else "",
        f"reason: {said.reason}" if said.reason else "",
    )
    return who + (f" via {said.channel}" if said.channel else ""), tuple(filter(None, lines))


class _Tree:
    """Which block each call of a run belongs to."""

    def __init__(self) -> None:
        self._called: dict[str, tuple[str, str]] = {}
        """By call id: the call id of the agent whose model made the call, and the name of what it called."""

    def add(self, body: ItemBody) -> None:
        if isinstance(body, ResponseItem):
            self._called |= {call.id: (body.call_id, call.tool) for call in body.calls}

    def around(self, body: ItemBody) -> list[str]:
        """The names of the blocks that an item is inside of, from the outermost, without the run's own."""
        call_id = getattr(body, "call_id", ROOT)
        if not isinstance(body, ResponseItem | CorrectionItem | RouteItem | FaultItem):
            call_id, _ = self._outside(call_id)  # it is about a call, made by the block around it
        names: list[str] = []
        while call_id != ROOT:
            call_id, name = self._outside(call_id)
            names.insert(0, name)
        return names

    def _outside(self, call_id: str) -> tuple[str, str]:
        """The call around a call, and the name of the inner one."""
        if STEP in call_id:
            outer, name = call_id.rsplit(STEP, 1)
            return outer, name
        return self._called.get(call_id, (ROOT, ""))


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _lines(body: ItemBody) -> Iterator[str]:
    match body:
        case MessageItem():
            yield body.text
        case ResponseItem():
            if body.text or not body.calls:
                yield body.text
            yield from map(_call, body.calls)
        case CorrectionItem():
            yield f"told to answer in another form: {body.text}"
        case RouteItem():
            yield f"takes route {body.route}"
        case OutputItem():
            failed = "" if body.outcome == "success" else f" ({body.outcome})"
            yield f"{body.tool}{failed} → {as_json(body.content)}"
        case StartItem():
            yield (
                "it ends where its code does not fit the record, and may begin again"
                if body.taken_back
                else "it begins"
            )
        case MemoItem():
            yield f"{body.key} = {as_json(body.value)}"
        case SuspensionItem():
            yield f"{body.name} waits as {body.action_id}"
        case ResolutionItem():
            who, said = answered(body.answer, body.answered_by)
            yield f"{body.action_id} {body.status}{who}"
            yield from said
        case FaultItem():
            yield f"{body.message} (tried again later)"
        case EndItem():
            yield body.status if body.error is None else f"{body.status}: {body.error.type}: {body.error.message}"
        case RetryItem():
            yield f"goes on{f', at the word of {body.by}' if body.by else ''}"
        case ReopeningItem():
            who, said = answered(body.answer, body.answered_by)
            yield f"{body.action_id} is open again"
            if body.problem is not None:
                yield f"the answer{who} could not be read: {body.problem}"
            yield from said
        case DamagedItem():
            yield f"cannot be read: {body.problem}"
        case _:
            assert_never(body)


def _call(call: ToolCall) -> str:
    fault = f"  (cannot run: {call.fault})" if call.fault else ""
    args = ", ".join(f"{name}={as_json(value)}" for name, value in call.args.items())
    return f"calls {call.misnamed or call.tool}({args}){fault}"
