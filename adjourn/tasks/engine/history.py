"""The items of one run, sorted by the call that they belong to. Pure: an index, and no decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import (
    CorrectionItem,
    OutputItem,
    Recorded,
    ResponseItem,
)
from adjourn.schemas.strict_json import JsonValue

V = TypeVar("V")

STEP: Final = "/"
"""Between the call id of a block and the name of a step of it."""


@dataclass
class History:
    """What a run has done, by call id. Read only, once made."""

    input: JsonValue = ""
    turns: dict[str, list[tuple[int, ResponseItem | CorrectionItem]]] = field(default_factory=lambda: defaultdict(list))
    """Of each agent, what its model said and was told, with the seq of the item."""
    outputs: dict[str, OutputItem] = field(default_factory=dict)
    memos: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Of each agent, how often in a row its model could not be asked."""
    started: set[str] = field(default_factory=set)
    """Calls with a start that was not taken back, and no suspension after it."""
    routes: dict[str, str] = field(default_factory=dict)
    actions: dict[str, list[ActionState]] = field(default_factory=lambda: defaultdict(list))
    """In the order of their items, not of their times: the clock goes back when a server takes
    over from one that was ahead of it."""
    replaced: set[str] = field(default_factory=set)
    """Ids of waits for children that count for nothing: the run was retried since, and the child was not revived."""
    retried: int = 0
    """The place of the last retry."""
    tasks: dict[tuple[str, str, str], ActionState] = field(default_factory=dict)
    """By caller, agent and task key, the wait for the run that has the task."""
    children: dict[str, list[ActionState]] = field(default_factory=lambda: defaultdict(list))
    """By caller, all waits for children, those too that count for nothing any more."""
    steps: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Of each block made of steps, the names of those of which anything is recorded, in the order of their first."""

    @classmethod
    def of(cls, items: Iterable[Recorded], actions: Iterable[ActionState]) -> History:
        log = cls()
        log._extend(items, actions)
        return log

    def with_(self, items: Iterable[Recorded], actions: Iterable[ActionState]) -> History:
        """This log after a write: a copy of the tables, and nothing read again. A turn writes many times."""
        log = History(
            input=self.input,
            turns=_copied(self.turns, list),
            outputs=self.outputs.copy(),
            memos=_copied(self.memos, dict),
            faults=self.faults.copy(),
            started=self.started.copy(),
            routes=self.routes.copy(),
            actions=_copied(self.actions, list),
            replaced=self.replaced.copy(),
            retried=self.retried,
            tasks=self.tasks.copy(),
            children=_copied(self.children, list),
            steps=_copied(self.steps, dict),
        )
        log._extend(items, actions)
        return log

    def _extend(self, items: Iterable[Recorded], actions: Iterable[ActionState]) -> None:
        places: dict[str, int] = {}
        ends: dict[str, int] = {}
        for item in items:
            self._add(item, places, ends)
        for state in sorted(actions, key=lambda state: places.get(state.action.id, 0)):
            child = state.child
            if child is not None:
                self.children[child.caller].append(state)
                if _is_replaced(state, ends.get(state.action.id, 0) < self.retried):
                    self.replaced.add(state.action.id)
                    continue
                self.tasks[child.caller, child.agent, child.key] = state
            self.actions[state.action.origin.tool_call_id].append(state)
            self._note_step(state.action.origin.tool_call_id)

    def _add(self, item: Recorded, places: dict[str, int], ends: dict[str, int]) -> None:
        """`places` gets the place of each suspension by action id, `ends` that of the last resolution."""
        # By kind and not by class: a class that does not match costs a look through its bases, and a long
        # history is sorted anew for every turn.
        body = item.body
        if body.kind == "output":
            self.outputs[body.call_id] = body
        elif body.kind == "response" or body.kind == "correction":
            self.turns[body.call_id].append((item.seq, body))
            self.faults[body.call_id] = 0
        elif body.kind == "memo":
            self.memos[body.call_id][body.key] = body.value
        elif body.kind == "suspension":
            self.started.discard(body.call_id)
            places[body.action_id] = item.seq
        elif body.kind == "start":
            (self.started.discard if body.taken_back else self.started.add)(body.call_id)
        elif body.kind == "route":
            self.routes[body.call_id] = body.route
        elif body.kind == "fault":
            self.faults[body.call_id] += 1
        else:
            if body.kind == "resolution":
                ends[body.action_id] = item.seq
            elif body.kind == "message":
                self.input = body.input
            elif body.kind == "retry":
                self.faults.clear()
                self.retried = item.seq
            return
        self._note_step(body.call_id)

    def _note_step(self, call_id: str) -> None:
        while STEP in call_id:
            call_id, name = call_id.rsplit(STEP, 1)
            self.steps[call_id].setdefault(name)


def _is_replaced(state: ActionState, ended_before_retry: bool) -> bool:
    """True for a wait for a child that counts for nothing: its call starts another child.

    The child failed, or its wait was closed with the run, and the retry after that did not revive it. A child that
    completed is not run again, and one that was cancelled on its own stays cancelled.
    """
    ended = state.resolution
    if ended is None or not ended_before_retry:
        return False
    return ended.status == "cancelled" or ended.resume["status"] == "failed"


def _copied(of: dict[str, V], kind: type[V]) -> defaultdict[str, V]:
    """A copy of a table of tables or lists, and of these."""
    return defaultdict(kind, {key: copy(value) for key, value in of.items()})


def step_id(call_id: str, name: str) -> str:
    """The call id of a step."""
    return f"{call_id}{STEP}{name}"
