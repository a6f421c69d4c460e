"""Sees everything that happens in a simulated world, and says what may not happen.

What somebody saw (a model that was asked, a body that ran, a person that got a receipt) is held
against what is recorded at that moment, and all of it once more at the end. A worker that has lost
its claim cannot know that, so what it begins is only held against what it writes: nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from adjourn import Context
from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.items import (
    EndItem,
    FaultItem,
    MemoItem,
    OutputItem,
    ResolutionItem,
    ResponseItem,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.records.runs import ENDED
from adjourn.store.memory.tables import ActionRow, RunRow, Statement
from adjourn.tasks.answers.answering import EARLY_CHANNEL
from adjourn.tasks.blocks.outcome import asks_outcome
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.decisions import Step, View, Wait, Work, decide
from tests.simulation import tools
from tests.simulation.bus import Sent

if TYPE_CHECKING:
    from tests.simulation.world import World

B = TypeVar("B")

WRITES: Final = frozenset({"append", "park", "requeue", "end"})
MAY_FAIL: Final = frozenset({"ActionExpiredError", "PoisonedRunError", "LimitExceededError", "ReplayMismatchError"})
OUTCOME_OF: Final = {"cancelled": "declined", "failed": "failed", "expired": "expired"}


class Witness:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.found: list[str] = []
        """What was wrong."""
        self.counts: Counter[str] = Counter()
        """What was tried, by name."""
        self.effects: Counter[str] = Counter()
        """By idempotency key."""
        self._seen: dict[str, tuple[int, str]] = {}
        """Of each run, its length and its status."""
        self._resolved: dict[str, tuple[str, str | None, str | None]] = {}
        """Of each action, how it ended."""
        self._accepted: defaultdict[str, set[str | None]] = defaultdict(set)
        """Answers that their senders were told are the action's."""
        self._asked: Counter[str] = Counter()
        """Model calls by claim."""
        self._heard: set[str] = set()
        """Claims under which a response or a fault of the model was recorded."""
        self._passes: Counter[tuple[str, str]] = Counter()
        """Of bodies, by claim and call."""
        self._came: Counter[tuple[str, str]] = Counter()
        """To outputs and suspensions, by claim and call."""
        self._failed: set[str] = set()
        """Claims under which a run was failed: what was done last under them may have come to nothing else."""
        self._given_back: set[str] = set()
        """Claims that their holders gave back themselves."""

    def says(self, problem: str) -> None:
        self.found.append(problem)

    # --- what happens ------------------------------------------------------------------------------

    def model(self, run_id: str, step: int, messages: int) -> None:
        """The model is asked for its response number `step`, and shown so many messages of the thread."""
        token, row = self._world.scheduler.me().token, self._world.db.runs[run_id]
        assert token is not None
        self.counts["model calls"] += 1
        self._asked[token] += 1
        if self._asked[token] > 1:
            self.says(f"the model was asked twice in one turn of {run_id}")
        if row.token == token and len(_of(row, ResponseItem)) > step:
            self.says(f"recorded turn {step} of {run_id} was asked again")
        if messages != row.ordinal:
            self.says(f"{run_id} is number {row.ordinal} of its thread, and its model was shown {messages} messages")

    @contextmanager
    def body(self, ctx: Context) -> Iterator[None]:
        """A pass of a tool's body."""
        self._world.point(f"body of {ctx.call_id}")
        token, row = self._world.scheduler.me().token, self._world.db.runs[ctx.run_id]
        assert token is not None
        self.counts["bodies"] += 1
        self._passes[token, ctx.call_id] += 1
        if ctx.call_id not in _calls(row):
            self.says(f"a body of {row.id} ran for a response that is not recorded")
        elif row.token == token:
            if any(output.call_id == ctx.call_id for output in _of(row, OutputItem)):
                self.says(f"finished call {ctx.call_id} ran again")
            if any(action.status == "pending" for action in self._waits(row, ctx.call_id)):
                self.says(f"call {ctx.call_id} ran while it waits")
        yield
        self._world.point("body has ended")

    def effect(self, ctx: Context) -> None:
        self.effects[ctx.idempotency_key] += 1

    def memo(self, ctx: Context, key: str) -> None:
        """The function of a `run_once` runs."""
        row = self._world.db.runs[ctx.run_id]
        recorded = any((memo.call_id, memo.key) == (ctx.call_id, key) for memo in _of(row, MemoItem))
        if recorded and row.token == self._world.scheduler.me().token:
            self.says(f"run_once({key!r}) of {ctx.call_id} ran again")

    def step_input(self, ctx: Context, turn: int, value: int | None) -> None:
        """A tool got an answer, or the refusal of one."""
        waits = [each for each in self._waits(self._world.db.runs[ctx.run_id], ctx.call_id) if not _by_operator(each)]
        ended = waits[turn].record().resolution if turn < len(waits) else None
        recorded = None if ended is None or ended.resume is None else ended.resume["value"]
        if ended is None or recorded != value:
            self.says(f"wait {turn} of {ctx.call_id} was handed {value} and is recorded as {ended}")

    def told(self, sent: Sent, receipt: Receipt) -> None:
        """A sender gets a receipt."""
        sent.receipts.append(receipt)
        self.counts[f"answers {receipt.status}"] += 1
        if receipt.status == "malformed":
            self.says(f"an answer that is in order could not be read: {receipt.detail}")
        if receipt.status not in ("accepted", "duplicate"):
            return
        assert receipt.action_id is not None
        self._accepted[receipt.action_id].add(receipt.answer_id)
        state = self._world.db.actions[receipt.action_id].record()
        ended = state.resolution
        if ended is None or ended.answer_id != receipt.answer_id:
            self.says(f"an answer of {receipt.action_id} was {receipt.status}, and {ended} is recorded")
        elif sent.kind == "submit" and ended.resume != sent.value:
            self.says(f"{receipt.action_id} was answered {sent.value}, and {ended.resume} is recorded")

    def run(self, statement: Statement) -> Any:
        """Run a statement of a task, and look at what it did."""
        db = self._world.db
        row = db.runs.get(statement.run_id or "") if statement.name in WRITES else None
        if row is None:
            try:
                return db.run(statement)
            finally:
                self._look()
        stale, items = row.token != statement.token, len(row.items)
        before = self._everything() if stale else []
        try:
            result = db.run(statement)
        except StaleClaimError:
            self.counts["stale writes"] += 1
            if not stale:
                self.says(f"the holder of {row.id} was refused")
            if stale and self._everything() != before:
                self.says(f"a stale write changed {row.id}")
            raise
        if stale:
            self.says(f"a stale write of {row.id} was not refused")
        self._wrote(row, statement.token or "", items)
        self._look()
        return result

    def _wrote(self, row: RunRow, token: str, before: int) -> None:
        new = [item.body for item in row.items[before:]]
        if any(isinstance(body, ResponseItem | FaultItem) for body in new):
            self._heard.add(token)
        if any(isinstance(body, EndItem) and body.error is not None for body in new):
            self._failed.add(token)
        calls = {body.call_id for body in new if isinstance(body, OutputItem | SuspensionItem)}
        self._came.update((token, call_id) for call_id in sorted(calls))
        if row.token != token:
            self._given_back.add(token)

    def _everything(self) -> list[Any]:
        """What a stale write may not change."""
        db = self._world.db
        runs = [
            (row.id, row.seq, row.status, row.due, row.token, row.revision, row.updated_at) for row in db.runs.values()
        ]
        return [*runs, *((row.id, row.status) for row in db.actions.values())]

    # --- what is recorded --------------------------------------------------------------------------

    def _look(self) -> None:
        """At all that has changed since the last look."""
        for row in self._world.db.runs.values():
            now = (row.seq, row.status)
            seen = self._seen.get(row.id)
            if now == seen:
                continue
            self._seen[row.id] = now
            if seen is not None and seen[1] in ENDED:
                self.says(f"{row.id} had ended {seen[1]}, and is {row.status} with {row.seq - seen[0]} items more")
            if row.active and any(
                other.active for other in self._world.db.of_thread(row.thread_id) if other is not row
            ):
                self.says(f"{row.thread_id} is busy with {row.id} and another")
            if row.status == "parked":
                self._parked(row)
            for action in self._world.db.actions_of(row.id):
                self._ended_once(action)

    def _parked(self, row: RunRow) -> None:
        states = tuple(action.record() for action in self._world.db.actions_of(row.id))
        step = decide(View(row.record(), tools.APP.blocks, (), tuple(row.items), states))
        if not isinstance(step, Wait) and not self._waits_for_siblings(row, step):
            self.says(f"{row.id} is parked, and should do this: {type(step).__name__}")

    def _waits_for_siblings(self, row: RunRow, step: Step) -> bool:
        """Whether all that it could do is to hear of children that are not the last of their group."""
        open_calls = step.activities if isinstance(step, Work) else ()
        heard = [each.actions[-1].child for each in open_calls if isinstance(each, OpenCall) and each.actions]
        groups = [self._world.db.groups[row.id, child.group] for child in heard if child is not None]
        return len(groups) == len(open_calls) > 0 and all(count > 0 for count in groups)

    def _ended_once(self, action: ActionRow) -> None:
        if action.status == "pending":
            return
        if action.asked.child is not None and action.status == "cancelled":
            return  # what the child had used is told afterwards
        ended = (action.status, action.answer_id, action.resume)
        if self._resolved.setdefault(action.id, ended) != ended:
            self.says(f"{action.id} had ended {self._resolved[action.id]}, and now {ended}")

    def _waits(self, row: RunRow, call_id: str) -> list[ActionRow]:
        """Of a call, in the order of their opening."""
        suspensions = [each for each in _of(row, SuspensionItem) if each.call_id == call_id]
        return [self._world.db.actions[each.action_id] for each in suspensions]

    # --- at the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything has come to its end: look at all of it once more."""
        db, people = self._world.db, self._world.people
        self._look()
        for row in db.runs.values():
            self.counts[f"runs {row.status}"] += 1
            for problem in self._whole(row):
                self.says(f"{row.id}: {problem}")
        for run_id in people.started:
            if run_id not in db.runs:
                self.says(f"{run_id} was started and is not there")
        for action_id, answer_ids in self._accepted.items():
            if answer_ids != {db.actions[action_id].answer_id}:
                self.says(
                    f"{answer_ids} of {action_id} were accepted, and {db.actions[action_id].answer_id} is recorded"
                )
        for sent in people.sent:
            if not sent.receipts:
                self.says(f"nobody judged the answer to {sent.to}")
        for sent in people.sent:
            for receipt in sent.receipts:
                if receipt.status == "early" and not self._judged_later(receipt):
                    self.says(f"the early answer {receipt.answer_id} to {receipt.action_id} is lost")
        self._claims()

    def _judged_later(self, receipt: Receipt) -> bool:
        """Whether an early answer became its action's, or was refused when that opened. If it opened at all."""
        db = self._world.db
        action = db.actions.get(receipt.action_id or "")
        if action is None or action.answer_id == receipt.answer_id:
            return True
        letters = [letter for letter in db.dead_letters.values() if letter.channel == EARLY_CHANNEL]
        return any(f'"{receipt.answer_id}"'.encode() in letter.body for letter in letters)

    def _claims(self) -> None:
        """Whoever gave a claim back had recorded what they did under it."""
        for token in self._asked:
            if token in self._given_back - self._failed and token not in self._heard:
                self.says("a response was not recorded by its worker, which lived")
        for (token, call_id), passes in self._passes.items():
            tool = next(calls[call_id] for calls in map(_calls, self._world.db.runs.values()) if call_id in calls)
            tries = 1 + tools.BY_NAME[tool].options.retries
            allowed = self._came[token, call_id] + (token not in self._given_back or token in self._failed)
            if passes > allowed * tries:
                self.says(f"{tool} {call_id} ran {passes} times under one claim and came to {allowed} ends")

    def _whole(self, row: RunRow) -> Iterator[str]:
        yield from _history(row)
        yield from self._end(row)
        turns = len(_of(row, ResponseItem)) + sum(child.turns for child in self._children_of(row))
        if (row.turns, row.usage.requests) != (turns, turns):
            yield f"{turns} turns are recorded, {row.turns} counted, {row.usage.requests} paid"
        if row.unpropagated:
            yield "has ended, and nobody was told"
        tasks = Counter(child.message for child in self._children_of(row))
        yield from (f"{count} runs were started for one task" for count in tasks.values() if count > 1)
        resolved = Counter(each.action_id for each in _of(row, ResolutionItem))
        suspended = Counter(each.action_id for each in _of(row, SuspensionItem))
        for action in self._world.db.actions_of(row.id):
            if (suspended[action.id], resolved[action.id]) != (1, action.status != "pending"):
                yield f"{action.id} was opened {suspended[action.id]} times and ended {resolved[action.id]} times"
        starts = Counter(each.call_id for each in _of(row, StartItem) if not each.taken_back)
        starts -= Counter(each.call_id for each in _of(row, StartItem) if each.taken_back)
        for output in _of(row, OutputItem):
            yield from self._output(row, output)
        for call_id, tool in _calls(row).items():
            ended = [action for action in self._waits(row, call_id) if action.status != "pending"]
            if (
                tool in tools.BY_NAME
                and not tools.BY_NAME[tool].options.repeatable
                and starts[call_id] > 1 + len(ended)
            ):
                yield f"{tool} began {starts[call_id]} times after {len(ended)} waits"

    def _children_of(self, row: RunRow) -> list[RunRow]:
        """What they have used is counted for the run, however they and it have ended."""
        return [child for child in self._world.db.runs.values() if child.parent_run_id == row.id]

    def _end(self, row: RunRow) -> Iterator[str]:
        if not row.ended:
            yield f"is {row.status}"
            return
        if any(action.status == "pending" for action in self._world.db.actions_of(row.id)):
            yield "has ended, and waits"
        error = row.error.type if row.error else None
        match row.status:
            case "completed":
                last = _of(row, ResponseItem)[-1]
                if row.output != last.text or last.calls:
                    yield f"its output is {row.output!r}"
            case "cancelled" if row.id not in self._world.people.cancelled and row.parent_run_id is None:
                yield "nobody cancelled it"
            case "failed" if error not in MAY_FAIL and not (error == "ModelRequestError" and self._out_of_order(row)):
                yield f"failed: {row.error}"

    def _out_of_order(self, row: RunRow) -> bool:
        """Whether its model really could not be asked."""
        return row.error is not None and tools.OUT_OF_ORDER in row.error.message

    def _moody(self, output: OutputItem, waits: list[ActionState]) -> Iterator[str]:
        """A question that was asked anew has two answers at its place, and each pass was given the one to its own."""
        places: dict[tuple[str, int], set[Any]] = {}
        for state in waits:
            place = (state.action.origin.wait_point, state.ordinal)
            places.setdefault(place, set()).update(tools.expected(tools.moody.name, {}, [state]))
        if output.outcome == "success":
            given = [value in answers for value, answers in zip(output.content, places.values(), strict=False)]
            if not all(given) or len(output.content) != len(places):
                yield f"moody gave {output.content}, and what is recorded makes one of each of {list(places.values())}"
        elif output.outcome in OUTCOME_OF.values():
            ended = {OUTCOME_OF.get(state.resolution.status) for state in waits if state.resolution is not None}
            if output.outcome not in ended:
                yield f"moody was {output.outcome}, and its waits ended {ended}"

    def _output(self, row: RunRow, output: OutputItem) -> Iterator[str]:
        call = next(c for response in _of(row, ResponseItem) for c in response.calls if c.id == output.call_id)
        waits = [action.record() for action in self._waits(row, call.id)]
        if call.tool == tools.moody.name:
            yield from self._moody(output, waits)
        elif output.outcome == "success":
            wanted = tools.expected(call.tool, call.args, waits)
            if output.content != wanted:
                yield f"{call.tool} gave {output.content}, and what is recorded makes {wanted}"
        elif output.outcome in OUTCOME_OF.values():
            # What an operator said of a pass that died is no wait of the tool's: the next pass meets its own again.
            own = [wait for wait in waits if not asks_outcome(wait)]
            ended = own[-1].resolution if own else None
            if ended is None or OUTCOME_OF.get(ended.status) != output.outcome:
                yield f"{call.tool} was {output.outcome}, and its last wait ended {ended}"
        elif (
            output.outcome == "error"
            and call.tool in tools.NEVER_IN_ERROR
            and call.fault is None
            and "number" in call.args
        ):
            yield f"{call.tool} ended in {output.content}"


def _history(row: RunRow) -> Iterator[str]:
    if [item.seq for item in row.items] != list(range(1, row.seq + 1)):
        yield f"its items have gaps: {[item.seq for item in row.items]}"
    ends = [item.seq for item in row.items if isinstance(item.body, EndItem)]
    if ends != ([row.seq] if row.ended else []):
        yield f"is {row.status} and has ends at {ends} of {row.seq}"
    outputs = Counter(output.call_id for output in _of(row, OutputItem))
    calls = _calls(row)
    for call_id, count in outputs.items():
        if count != 1 or call_id not in calls:
            yield f"{count} outputs of {calls.get(call_id, 'a call that is not recorded')}"
    if row.status == "completed" and outputs.keys() != calls.keys():
        yield f"has completed with {len(outputs)} outputs for {len(calls)} calls"


def _of(row: RunRow, kind: type[B]) -> list[B]:
    return [item.body for item in row.items if isinstance(item.body, kind)]


def _calls(row: RunRow) -> dict[str, str]:
    """Recorded calls: their tools by their ids."""
    return {call.id: call.tool for response in _of(row, ResponseItem) for call in response.calls}


def _by_operator(action: ActionRow) -> bool:
    return action.asked.kind == "outcome"
