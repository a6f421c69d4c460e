"""The checker: holds what is recorded of a trial against what its tools, models and publisher saw.

Pure: it is given `Facts` and says what is wrong with them, in one line each. An empty list means
that the promise was kept: no accepted answer lost, applied twice or applied to another action; no
recorded turn asked again; no finished tool run again; nothing left hanging.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from adjourn.schemas.records.actions import ActionState, Resolution
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.items import (
    ROOT,
    EndItem,
    Item,
    MemoItem,
    MessageItem,
    OutputItem,
    ReopeningItem,
    ResolutionItem,
    ResponseItem,
    RouteItem,
    SuspensionItem,
)
from adjourn.schemas.records.messages import Outcome
from adjourn.schemas.records.runs import Run
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT
from adjourn.tasks.engine.history import STEP
from tests.crash.ledger import Kind, Row

B = TypeVar("B")

HAPPENED: Final = ("accepted", "duplicate")
"""Receipts that say: this is the action's answer."""


CLIENT_TOOLS: Final = ("locate",)
"""They have no body that could take effect."""
ONCE_ONLY: Final = ("pay", "pay_verified", "pay_if_told")
"""They take effect once, whatever is interrupted."""
OUTCOMES: Final[dict[str, Outcome]] = {
    "submitted": "success",
    "cancelled": "declined",
    "failed": "failed",
    "expired": "expired",
}


@dataclass(frozen=True)
class Sent:
    """An answer that the publisher sent, and all the receipts that it got."""

    action_id: str
    answer_id: str
    kind: str
    value: Any
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True)
class RunFacts:
    """One run, as it is recorded at the end."""

    run: Run
    items: tuple[Item, ...]
    actions: tuple[ActionState, ...]

    @cached_property
    def name(self) -> str:
        """The message of the run, by which its models know it."""
        return next(message.text for _, message in self.of(MessageItem))

    @cached_property
    def delegated(self) -> set[str]:
        """Calls that other runs were started for."""
        return {state.action.origin.tool_call_id for state in self.actions if state.child is not None}

    @cached_property
    def replaced(self) -> set[str]:
        """Ids of actions whose question was asked anew as another one: what was answered there reaches no tool."""
        anew = {_place_of(state) for state in self.actions if state.action.note is not None}
        return {s.action.id for s in self.actions if _place_of(s) in anew and s.action.note is None}

    def of(self, kind: type[B]) -> list[tuple[datetime, B]]:
        """Items of a kind with their times, in order."""
        return [(item.at, item.body) for item in self.items if isinstance(item.body, kind)]

    @cached_property
    def calls(self) -> dict[str, str]:
        """Recorded calls: their tools by their ids."""
        return {call.id: call.tool for _, response in self.of(ResponseItem) for call in response.calls}

    def is_known(self, call_id: str) -> bool:
        """Whether it is a recorded call, the block that the run executes, or a step of one of these."""
        first = call_id.split(STEP)[0]
        return first == ROOT or first in self.calls

    @cached_property
    def composite(self) -> set[str]:
        """Calls of blocks without a body of their own: the root, and those that have steps."""
        ids = [output.call_id for _, output in self.of(OutputItem)]
        return {ROOT} | {call_id.rsplit(STEP, 1)[0] for call_id in ids if STEP in call_id}


@dataclass(frozen=True)
class Facts:
    """Everything that is known of a trial when it is over."""

    runs: tuple[RunFacts, ...]
    ledger: tuple[Row, ...]
    sent: tuple[Sent, ...]
    expected: dict[str, str]
    """How each run has to end, by its id."""
    interruptions: int
    """Processes that were killed or frozen: so often may what was not recorded have happened again."""
    stalled: str = ""
    """What was waited for in vain."""
    frozen: bool = False
    """A stale process was continued: what it began before it knew counts for nothing, and may have happened again."""
    left: dict[str, int] = field(default_factory=dict)
    """Messages, early answers and dead letters that are there at the end and should not be."""

    @cached_property
    def rows(self) -> defaultdict[tuple[str, Kind], list[Row]]:
        """The ledger by run and kind: a long chaos has thousands of runs, and looks into it for each."""
        found: defaultdict[tuple[str, Kind], list[Row]] = defaultdict(list)
        for row in self.ledger:
            found[row.run_id, row.kind].append(row)
        return found


def check(facts: Facts) -> list[str]:
    """What is wrong; nothing, if all is well."""
    return [
        *_moves(facts),
        *(f"{run.run.agent}: {problem}" for run in facts.runs for problem in _run(facts, run)),
        *_answers(facts),
        *_left(facts),
    ]


def _moves(facts: Facts) -> Iterator[str]:
    if facts.stalled:
        yield f"no longer moves: waited in vain for {facts.stalled}"
    known = {run.run.id for run in facts.runs}
    for run_id in facts.expected.keys() - known:
        yield f"run {run_id} was started and is not there"


def _left(facts: Facts) -> Iterator[str]:
    for what, count in facts.left.items():
        yield f"left at the end: {count} in {what}"


# --- one run -----------------------------------------------------------------------------------


def _run(facts: Facts, run: RunFacts) -> Iterator[str]:
    expected = facts.expected.get(run.run.id)
    if run.run.status != expected:
        error = f" ({run.run.error.type}: {run.run.error.message})" if run.run.error else ""
        yield f"is {run.run.status} instead of {expected}{error}"
    yield from _history(run)
    yield from _waits(run)
    yield from _turns(facts, run)
    yield from _children(facts, run)
    yield from _bodies(facts, run)
    yield from _effects(facts, run)


def _history(run: RunFacts) -> Iterator[str]:
    seqs = [item.seq for item in run.items]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"items have gaps: {seqs}"
    kinds = [item.body.kind for item in run.items]
    if len(run.of(MessageItem)) != 1:
        yield f"{len(run.of(MessageItem))} messages"
    if run.run.ended and kinds[-1] != "end":
        yield f"its end is not the one last item: {kinds}"
    for number, kind in enumerate(kinds[:-1]):
        if (kind == "end") != (kinds[number + 1] == "retry"):
            yield f"an end that was not retried, or a retry of no end: {kinds}"
    outputs = Counter(output.call_id for _, output in run.of(OutputItem))
    fewest = 1 if run.run.status == "completed" else 0
    for call_id, tool in run.calls.items():
        if run.run.ended and not fewest <= outputs[call_id] <= 1:
            yield f"{outputs[call_id]} outputs of {tool}"
    for call_id, count in outputs.items():
        if not run.is_known(call_id):
            yield f"an output of a call that was never recorded: {call_id}"
        elif count > 1:
            yield f"{count} outputs of {call_id}"
    yield from _routes(run)


def _routes(run: RunFacts) -> Iterator[str]:
    """A router takes one route, and nothing of another has run."""
    taken: dict[str, str] = {}
    for _, item in run.of(RouteItem):
        if item.call_id in taken:
            yield f"router {item.call_id} chose twice: {taken[item.call_id]}, {item.route}"
        taken[item.call_id] = item.route
    for _, output in run.of(OutputItem):
        router, _, step = output.call_id.rpartition(STEP)
        if router in taken and step != taken[router]:
            yield f"{output.tool} ran on route {step}, and {taken[router]} was taken"


def _waits(run: RunFacts) -> Iterator[str]:
    suspended = Counter(item.action_id for _, item in run.of(SuspensionItem))
    resolved = Counter(item.action_id for item in _standing(run))
    for state in run.actions:
        action = state.action
        if suspended[action.id] != 1:
            yield f"{action.name} was opened {suspended[action.id]} times"
        if run.run.ended and action.status == "pending":
            yield f"{action.name} is open in a run that has ended"
        if resolved[action.id] != (action.status != "pending"):
            count = resolved[action.id]
            yield f"{action.name} is {action.status} and has {count} resolutions: applied twice, or unheard"
    by_place = Counter((*_place_of(a), a.action.note is not None) for a in run.actions)
    for (_, name, ordinal, _), count in by_place.items():
        if count != 1:
            yield f"wait {ordinal} at {name} was opened {count} times"


def _place_of(state: ActionState) -> tuple[str, str, int]:
    """The call, the wait point and the number of the ask there."""
    return state.action.origin.tool_call_id, state.action.name, state.ordinal


def _standing(run: RunFacts) -> Iterator[ResolutionItem]:
    """The resolutions that count. One of a wait that was closed with the run does not, once that is retried: it is
    open again. Nor does the failure of a child that was revived with the run, nor an answer that nobody could read."""
    retried = max((number for number, item in enumerate(run.items) if item.body.kind == "retry"), default=0)
    for_children = {state.action.id for state in run.actions if state.child is not None}
    again = [item.body.action_id for item in run.items[retried:] if isinstance(item.body, ResolutionItem)]
    reopened = {item.body.action_id: n for n, item in enumerate(run.items) if isinstance(item.body, ReopeningItem)}
    for number, item in enumerate(run.items):
        body = item.body
        if isinstance(body, ResolutionItem) and number > reopened.get(body.action_id, -1):
            closed_with_run = body.status == "cancelled" and body.answer_id is None
            revived = body.action_id in for_children and body.action_id in again
            if number > retried or not (closed_with_run or revived):
                yield body


def _turns(facts: Facts, run: RunFacts) -> Iterator[str]:
    """A model call that was recorded is never made again; one that was not, once per interruption."""
    responses = run.of(ResponseItem)
    asked = _of_run(facts, run, "model")
    for step, (at, _) in enumerate(responses):
        rows = [row for row in asked if row.call_id == str(step)]
        if not rows:
            yield f"turn {step} was recorded and never asked"
        if len(rows) > 1 + facts.interruptions:
            yield f"turn {step} was asked {len(rows)} times"
        if any(row.at > at for row in rows) and not facts.frozen:
            yield f"recorded turn {step} was asked again"
    for row in asked:
        if run.run.status == "completed" and int(row.call_id) >= len(responses):
            yield f"turn {row.call_id} was asked and is not recorded"
    turns = len(responses) + sum(child.run.turns for child in _children_of(facts, run))
    if (run.run.turns, run.run.usage.requests) != (turns, turns):
        yield f"{turns} turns are recorded, {run.run.turns} counted, {run.run.usage.requests} paid"


def _children(facts: Facts, run: RunFacts) -> Iterator[str]:
    """Each task is done by one run, and none outlives the run that handed it over."""
    children = _children_of(facts, run)
    tasks = Counter(child.name for child in children)
    for name, count in tasks.items():
        if count > 1:
            yield f"{count} runs were started for task {name}"
    if run.run.ended and any(not child.run.ended for child in children):
        yield "it has ended, and a run that it started has not"


def _children_of(facts: Facts, run: RunFacts) -> list[RunFacts]:
    """The runs that it has started: what they have used is counted for it, however they and it have ended."""
    return [child for child in facts.runs if child.run.parent_run_id == run.run.id]


def _bodies(facts: Facts, run: RunFacts) -> Iterator[str]:
    """A body starts once, and once after each wait that ended with an answer, or is interrupted and unrecorded.

    Also once for each time that it could not read an answer.
    """
    finished = {output.call_id: at for at, output in run.of(OutputItem)}
    passes: Counter[str] = Counter()
    for row in _of_run(facts, run, "body"):
        passes[row.call_id] += 1
        if not run.is_known(row.call_id):
            yield f"{row.name} ran for a response that was never recorded"
        if row.call_id in finished and row.at > finished[row.call_id] and not facts.frozen:
            yield f"finished tool {row.name} was run again"
    asked = {(state.action.origin.tool_call_id, state.any_of or state.action.id) for state in run.actions}
    waits = Counter(call_id for call_id, _ in asked)
    calls_of = {state.action.id: state.action.origin.tool_call_id for state in run.actions}
    ends = [end.error.data for _, end in run.of(EndItem) if end.error and end.error.type == "StoredValueError"]
    unread = Counter(calls_of.get(data.get("action_id", "")) for data in ends)
    reopened = Counter(item.call_id for _, item in run.of(ReopeningItem))
    for call_id, count in passes.items():
        wanted = 1 + waits[call_id] + unread[call_id] + reopened[call_id]
        if count > wanted + facts.interruptions + run.run.deaths:
            yield f"{run.calls.get(call_id, call_id)} was run {count} times for {waits[call_id]} waits"


def _effects(facts: Facts, run: RunFacts) -> Iterator[str]:
    """What took effect is what the output says, and once; once more per interruption."""
    done = Counter(row.call_id for row in _of_run(facts, run, "effect"))
    for _, output in run.of(OutputItem):
        if output.call_id in run.composite or output.call_id in run.delegated:
            continue
        count = done.pop(output.call_id, 0)
        if count > (1 if output.tool in ONCE_ONLY and not facts.frozen else 1 + facts.interruptions):
            yield f"{output.tool} took effect {count} times"
        if (output.outcome == "success") != (count > 0) and output.tool not in CLIENT_TOOLS:
            yield f"{output.tool} took effect {count} times, and its output is {output.outcome}"
    if done and run.run.status == "completed":
        yield f"effects without an output: {sorted(done)}"
    yield from _once(facts, run)


def _once(facts: Facts, run: RunFacts) -> Iterator[str]:
    memos = {memo.call_id: at for at, memo in run.of(MemoItem)}
    charged = Counter(row.call_id for row in _of_run(facts, run, "once"))
    for row in _of_run(facts, run, "once"):
        if charged[row.call_id] > 1 + facts.interruptions:
            yield f"run_once ran {charged[row.call_id]} times"
        if row.call_id in memos and row.at > memos[row.call_id] and not facts.frozen:
            yield "run_once ran again after its result was recorded"


# --- answers -------------------------------------------------------------------------------------


def _answers(facts: Facts) -> Iterator[str]:
    states = {state.action.id: state for run in facts.runs for state in run.actions}
    reopenings = [item for run in facts.runs for _, item in run.of(ReopeningItem)]
    unread = {(item.action_id, item.answer_id): item for item in reopenings}
    for sent in facts.sent:
        if (sent.action_id, sent.answer_id) not in unread:
            yield from _one_answer(sent, states.get(sent.action_id))
    accepted: defaultdict[str, set[str]] = defaultdict(set)
    for sent in facts.sent:
        told = any(receipt.status in HAPPENED for receipt in sent.receipts)
        if told and (kept := unread.get((sent.action_id, sent.answer_id))) is not None:
            if kept.answer is None or kept.answer.resume != sent.value:
                yield f"an answer that nobody could read was {sent.value!r}, and is kept as {kept.answer!r}"
        elif told:
            accepted[sent.action_id].add(sent.answer_id)
    for action_id, answer_ids in accepted.items():
        if len(answer_ids) > 1:
            yield f"{len(answer_ids)} answers of {action_id} were accepted"
    yield from _deliveries(facts)


def _one_answer(sent: Sent, state: ActionState | None) -> Iterator[str]:
    """What the publisher was told is what is recorded."""
    told = {receipt.status for receipt in sent.receipts}
    if not told:
        yield f"an answer was published and never judged (action {sent.action_id})"
    if not told & {*HAPPENED, "early"}:
        return
    ended = None if state is None else state.resolution
    if ended is None:
        yield f"an answer was {' and '.join(sorted(told))}, and is lost (action {sent.action_id})"
    elif ended.answer_id != sent.answer_id:
        yield f"an answer was {' and '.join(sorted(told))}, and another one is recorded (action {sent.action_id})"
    elif sent.kind == "submit" and ended.resume != sent.value:
        yield f"an answer was recorded as {ended.resume!r} instead of {sent.value!r}"


def _deliveries(facts: Facts) -> Iterator[str]:
    """What a tool was handed is the recorded answer of the very wait at which it asked, and shows in its output."""
    handed: defaultdict[tuple[str, str], set[str | None]] = defaultdict(set)
    for row in facts.ledger:
        if row.kind == "answer":
            handed[row.call_id, row.name].add(row.value)
    for run in facts.runs:
        for state in run.actions:
            if state.action.id in run.replaced:
                continue
            origin, ended = state.action.origin, state.resolution
            values = handed.pop((origin.tool_call_id, origin.wait_point), set())
            if origin.wait_point == OUTCOME_WAIT_POINT:
                continue  # it is not the tool that asks there
            recorded = {_value(ended)} if ended is not None and _has_value(ended) else set()
            if values - recorded:
                yield f"{state.action.name} was handed {values}, and {recorded or 'nothing'} was its answer"
            if run.run.status == "completed":
                yield from _reached(facts, run, state)
    for (_, name), values in handed.items():
        yield f"a tool was handed {values} at {name}, where nothing was asked"


def _reached(facts: Facts, run: RunFacts, state: ActionState) -> Iterator[str]:
    """The output of the call shows how its wait ended; that of a task, how its run ended."""
    call_id, ended = state.action.origin.tool_call_id, state.resolution
    for _, output in run.of(OutputItem):
        if output.call_id != call_id or ended is None or _closed_by_another(state):
            continue
        wanted: Outcome = "success" if _has_value(ended) else OUTCOMES[ended.status]
        if state.child is not None and facts.expected.get(state.child.run_id) == "failed":
            wanted = "error"
        if output.outcome != wanted:
            yield f"{state.action.name} was {ended.status}, and its output is {output.outcome}"
        elif state.style not in ("policy", "task") and _has_value(ended) and _value(ended) not in str(output.content):
            yield f"{state.action.name} was answered {ended.resume}, and its output is {output.content!r}"


def _closed_by_another(state: ActionState) -> bool:
    """Whether the answer to another wait of the same `ask_any` has closed this one."""
    ended = state.resolution
    return state.any_of is not None and ended is not None and ended.status == "cancelled" and ended.answer_id is None


def _has_value(ended: Resolution) -> bool:
    """Whether a tool goes on with a value: an answer, or the default of a deadline."""
    return ended.status == "submitted" or (ended.status == "expired" and ended.resume is not None)


def _value(ended: Resolution) -> str:
    """What an answer says. One that is of no shape that could have been accepted says something as well."""
    resume = ended.resume
    return str(resume["value"]) if isinstance(resume, dict) and "value" in resume else repr(resume)


def _of_run(facts: Facts, run: RunFacts, kind: Kind) -> list[Row]:
    return facts.rows[run.name if kind == "model" else run.run.id, kind]
