"""What a run has done, in words that are the same however it came to it: without random ids, times and order.

Two runs of one tree have the same account, whatever went wrong on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from adjourn.schemas.records.items import (
    EndItem,
    Item,
    MemoItem,
    OutputItem,
    ResolutionItem,
    ResponseItem,
    RouteItem,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.records.messages import ModelRequest, ModelTurn, ResultTurn
from adjourn.schemas.records.runs import Run
from adjourn.tasks.engine.history import STEP
from tests.blocks.trees import short


@dataclass(frozen=True)
class Account:
    """What a run has done."""

    end: tuple[Any, ...]
    """How it ended, and what it used."""
    items: Counter[tuple[Any, ...]]
    effects: Counter[str]
    """By call. A repetition that a death excuses is not counted (`Effects`)."""
    kept: Counter[str]
    """What was done under `run_once`."""
    requests: Counter[tuple[str, str]]
    """By agent and conversation."""

    def differences(self, other: Account) -> Iterator[str]:
        """Where another account says something else."""
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            if mine == its:
                continue
            if isinstance(mine, Counter):
                yield f"{each.name}: only undisturbed {dict(mine - its)}, only disturbed {dict(its - mine)}"
            else:
                yield f"{each.name}: undisturbed {mine}, disturbed {its}"


def names_of(items: Iterable[Item]) -> dict[str, str]:
    """For each call id that a model's response made, where in the run it stands."""
    names: dict[str, str] = {}
    turns: Counter[str] = Counter()
    for item in items:
        if isinstance(item.body, ResponseItem):
            agent = named(item.body.call_id, names)
            for n, call in enumerate(item.body.calls):
                names[call.id] = f"{agent}.{turns[agent]}.{n}"
            turns[agent] += 1
    return names


def named(call_id: str, names: dict[str, str]) -> str:
    """A call id with the random part of it replaced."""
    first, *steps = call_id.split(STEP)
    return STEP.join([names.get(first, first), *steps])


def end_of(run: Run) -> tuple[Any, ...]:
    error = None if run.error is None else (run.error.type, run.error.message)
    return run.status, run.output, error, run.turns, run.tool_calls, run.usage


def items_of(items: Iterable[Item]) -> Counter[tuple[Any, ...]]:
    """Items in no order."""
    items = list(items)
    names = names_of(items)
    return Counter(_said(item, names) for item in items)


def _said(item: Item, names: dict[str, str]) -> tuple[Any, ...]:
    body = item.body
    where = named(getattr(body, "call_id", ""), names)
    match body:
        case ResponseItem():
            calls = [(call.tool, call.args, call.fault, call.provider_id) for call in body.calls]
            return body.kind, where, body.text, short(calls)
        case OutputItem():
            return body.kind, where, body.tool, body.outcome, short(body.content)
        case RouteItem():
            return body.kind, where, body.route
        case MemoItem():
            return body.kind, where, body.key, short(body.value)
        case SuspensionItem():
            return body.kind, where, body.name
        case ResolutionItem():
            return body.kind, where, body.status
        case EndItem():
            return body.kind, body.status
        case StartItem():
            return body.kind, where
    return body.kind, where, getattr(body, "text", None)


def heard(agent: str, request: ModelRequest) -> tuple[str, str]:
    """A request without ids: whose it was, and what stood in it."""
    said: list[Any] = [request.instructions, sorted(tool.name for tool in request.tools)]
    for turn in request.conversation:
        match turn:
            case ModelTurn():
                said.append([turn.text, [(call.tool, call.args) for call in turn.calls]])
            case ResultTurn():
                said.append([turn.tool, turn.outcome, turn.content])
            case _:
                said.append(turn.text)
    return agent, short(said)
