"""The turns of a thread that have not closed: what was asked for, what has finished, what waits. Pure.

A conversation gains a turn only when it has closed. A reader who wants to know what a suspended turn asked for finds
it here, apart from the conversation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.items import ROOT, Item, OutputItem, ResponseItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import Run
from adjourn.schemas.records.threads import OpenCall, OpenTurn
from adjourn.store.results import Seen, Wait
from adjourn.tasks.engine.history import STEP


def open_turns(seen: Seen) -> tuple[OpenTurn, ...]:
    """All open turns: those of the thread's own run first, then those of the runs below it, oldest first.

    Every pending action names one of them as its `origin.message_id`.
    """
    items: defaultdict[str, list[Item]] = defaultdict(list)
    for item in (*seen.items, *seen.items_below):
        items[item.run_id].append(item)
    found: list[OpenTurn] = []
    for run in (*seen.runs, *sorted(seen.runs_below, key=lambda run: (run.depth, run.created_at, run.id))):
        if not run.ended:
            waits = [wait for wait in seen.waits if wait.run_id == run.id]
            asked = [action for action in seen.pending if action.origin.run_id == run.id]
            found.extend(_OpenTurns(run, items[run.id], waits).all(asked))
    return tuple(found)


class _OpenTurns:
    """The open turns of one run."""

    def __init__(self, run: Run, items: Sequence[Item], waits: Sequence[Wait]) -> None:
        self._run = run
        self._items = items
        self._waits = waits
        self._outputs: dict[str, OutputItem] = {}
        self._last: dict[str, tuple[int, ResponseItem]] = {}
        """Of each agent, its newest response."""
        self._called_by: dict[str, str] = {}
        """Of each call of a model, the call of the agent that asked for it."""
        for item in items:
            body = item.body
            if body.kind == "output":
                self._outputs[body.call_id] = body
            elif body.kind == "response":
                self._last[body.call_id] = (item.seq, body)
                self._called_by.update((call.id, body.call_id) for call in body.calls)

    def all(self, asked: Iterable[PendingAction]) -> Iterator[OpenTurn]:
        """The turns of agents, in the order of their responses; then what waits without an agent around it."""
        known = set()
        for seq, response in sorted(self._last.values(), key=lambda turn: turn[0]):
            if response.calls and any(call.id not in self._outputs for call in response.calls):
                turn = self._turn(seq, response.call_id, response.text, map(self._call, response.calls))
                known.add(turn.id)
                yield turn
        steps: dict[str, OpenCall] = {}
        outside = [action for action in asked if action.origin.message_id not in known]
        for action in outside:
            call_id, tool = action.origin.tool_call_id, action.origin.tool
            steps.setdefault(call_id, self._shown(call_id, tool, None))
        if outside:
            text = next((item.body.text for item in self._items if item.body.kind == "message"), "")
            yield self._turn(_seq_of(outside[0].origin.message_id), ROOT, text, steps.values())

    def _turn(self, seq: int, call_id: str, text: str, calls: Iterable[OpenCall]) -> OpenTurn:
        run = self._run
        return OpenTurn(
            id=f"{run.id}:{seq}",
            run_id=run.id,
            thread_id=run.thread_id,
            call_id=call_id,
            text=text,
            calls=tuple(calls),
        )

    def _call(self, call: ToolCall) -> OpenCall:
        return self._shown(call.id, call.tool, call.args)

    def _shown(self, call_id: str, tool: str, args: Mapping[str, object] | None) -> OpenCall:
        output = self._outputs.get(call_id)
        waits = tuple(wait.action_id for wait in self._waits if self._is_inside(wait.call_id, call_id))
        return OpenCall(
            id=call_id,
            tool=tool,
            args=None if args is None else dict(args),
            status="finished" if output else "waiting" if waits else "open",
            outcome=output.outcome if output else None,
            output=output.content if output else None,
            action_ids=() if output else waits,
        )

    def _is_inside(self, inner: str, outer: str) -> bool:
        """True if the call `inner` is `outer`, or belongs to a block that `outer` runs, at any depth."""
        while inner != outer:
            if STEP in inner:
                inner = inner.rsplit(STEP, 1)[0]
            elif inner in self._called_by:
                inner = self._called_by[inner]
            else:
                return False
        return True


def _seq_of(message_id: str) -> int:
    return int(message_id.rsplit(":", 1)[1])
