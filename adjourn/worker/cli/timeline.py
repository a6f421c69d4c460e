"""A run as a timeline that a person can read. Turns records into lines; prints nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import assert_never

from adjourn.schemas.actions import PendingAction
from adjourn.schemas.items import (
    CorrectionItem,
    EndItem,
    FaultItem,
    Item,
    ItemBody,
    MemoItem,
    MessageItem,
    OutputItem,
    ResolutionItem,
    ResponseItem,
    RetryItem,
    RouteItem,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.messages import ToolCall
from adjourn.schemas.runs import Run
from adjourn.worker.cli.output import SHORT, as_json, one_line

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
    for item in items:
        for number, text in enumerate(_lines(item.body)):
            place = f"{item.seq:>{width}}  {_clock(item.at)}  {item.body.kind:<{_KIND_WIDTH}}"
            yield f"{place if number == 0 else ' ' * len(place)}  {one_line(text, SHORT)}"
    for action in pending:
        yield f"{'waits':>{width}}  {waiting(action)}"


def waiting(action: PendingAction) -> str:
    """One line about an open action."""
    asked = action.prompt or as_json(action.input)
    until = f"  until {action.expires_at.isoformat(timespec='seconds')}" if action.expires_at else ""
    return one_line(f"{action.id}  {action.name}  {asked}", SHORT) + until


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
            yield "it begins"
        case MemoItem():
            yield f"{body.key} = {as_json(body.value)}"
        case SuspensionItem():
            yield f"{body.name} waits as {body.action_id}"
        case ResolutionItem():
            by = f" by {body.answered_by}" if body.answered_by else ""
            yield f"{body.action_id} {body.status}{by}"
        case FaultItem():
            yield f"{body.message} (tried again later)"
        case EndItem():
            yield body.status if body.error is None else f"{body.status}: {body.error.type}: {body.error.message}"
        case RetryItem():
            yield f"goes on{f', at the word of {body.by}' if body.by else ''}"
        case _:
            assert_never(body)


def _call(call: ToolCall) -> str:
    fault = f"  (cannot run: {call.fault})" if call.fault else ""
    args = ", ".join(f"{name}={as_json(value)}" for name, value in call.args.items())
    return f"calls {call.tool}({args}){fault}"
