"""The deciding core: from what is recorded of a run to what has to happen next. No I/O, no clock.

A run executes a tree of blocks. A walk through it (`adjourn.tasks.engine.interpreter`) finds, from the items and
actions alone, what each block has come to, and what can be done where it goes on:

    a body can run, a model can be asked, a router has to choose  -> Work
    only waits are left                                           -> Wait
    the root has come to its end                                  -> Finish

The driver (`adjourn.tasks.execution.drive`) does what is decided, records it, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from adjourn.schemas.errors import (
    ActionExpiredError,
    BlockFailedError,
    UnknownBlockError,
)
from adjourn.schemas.internal.state import Claim, End
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import (
    ROOT,
    ItemBody,
    OutputItem,
    Recorded,
    ResponseItem,
    StoredItem,
    SuspensionItem,
)
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall, Usage
from adjourn.schemas.records.runs import Run
from adjourn.schemas.strict_json import JsonValue, digest, dumps
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.block import Block, Composite
from adjourn.tasks.blocks.policies import input_of
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.engine.activities import Activity, AskModel, OpenCall
from adjourn.tasks.engine.budgets import Budget
from adjourn.tasks.engine.history import History
from adjourn.tasks.engine.interpreter import CallbackCache, Ended, Evaluation, Interpreter


@dataclass(frozen=True)
class Work:
    """These can be done, side by side."""

    activities: tuple[Activity, ...]


@dataclass(frozen=True)
class Wait:
    """Only pending actions remain."""


@dataclass(frozen=True)
class Finish:
    """The run ends."""

    end: End


Step = Work | Wait | Finish


@dataclass(frozen=True)
class Decision:
    """What has to happen next, and what can be recorded before it: outputs of blocks that have come to their end."""

    step: Step
    closing: tuple[OutputItem, ...] = ()
    active_agents: frozenset[str] = frozenset()
    """The calls of agents within the run that have not come to their end, those too that wait."""
    pending_starts: tuple[OpenCall, ...] = ()
    """Calls of sub-agents that have no run yet, those too that wait."""


@dataclass(frozen=True)
class View:
    """A run as far as it is recorded, and as the next write will make it (`with_`)."""

    run: Run
    blocks: Mapping[str, Block]
    """Those of the app, one of which the run executes."""
    earlier: tuple[Recorded, ...]
    items: tuple[Recorded, ...]
    actions: tuple[ActionState, ...]
    cached: CallbackCache = field(default_factory=CallbackCache, compare=False)
    indexed: History | None = field(default=None, compare=False, repr=False)
    """The log of these items and actions, where it is known already."""

    @classmethod
    def of(cls, claim: Claim, blocks: Mapping[str, Block], cached: CallbackCache | None = None) -> View:
        """A run as it was loaded."""
        return cls(claim.run, blocks, claim.earlier, claim.items, claim.actions, cached or CallbackCache())

    def with_(
        self,
        items: Sequence[ItemBody],
        actions: Sequence[ActionState] = (),
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
    ) -> View:
        """This view after a write. Times are the database's; nothing here reads them."""
        start = self.items[-1].seq if self.items else 0
        added = tuple(StoredItem(self.run.id, seq, body) for seq, body in enumerate(items, start + 1))
        run = self.run
        if turns or tool_calls or usage != Usage():
            totals = {"usage": run.usage + usage, "turns": run.turns + turns, "tool_calls": run.tool_calls + tool_calls}
            run = run.model_copy(update=totals)
        log = self.log.with_(added, actions)
        return replace(self, run=run, items=self.items + added, actions=self.actions + tuple(actions), indexed=log)

    def at(self, seconds: float) -> View:
        """This view when the run has been in hand for so long, if anything depends on it."""
        if self.limits.seconds is None:
            return self
        return replace(self, run=self.run.model_copy(update={"seconds": max(self.run.seconds, seconds)}))

    @cached_property
    def log(self) -> History:
        return History.of(self.items, self.actions) if self.indexed is None else self.indexed

    @property
    def root(self) -> Block:
        """The block that the run executes. Raises `UnknownBlockError`."""
        block = self.blocks.get(self.run.agent)
        if block is None:
            raise UnknownBlockError(self.run.agent, list(self.blocks))
        return block

    @property
    def limits(self) -> Limits:
        """The run's own, or those of the agent that it executes."""
        return self.run.limits or (self.root.limits if isinstance(self.root, Agent) else Limits())

    @cached_property
    def decision(self) -> Decision:
        """What has to happen next. Raises `RunError` where the code no longer fits what was recorded."""
        expired = next((s for s in self.actions if _fails_run(s)), None)
        if expired is not None:
            return Decision(Finish(End.failed(ActionExpiredError(expired.action.id, expired.action.name))))
        walk = Interpreter(self.run, self.log, self.cached)
        reached = walk.through(self.root)
        closing = list(walk.closing)
        if isinstance(reached, Ended) and isinstance(self.root, Composite) and not isinstance(self.root, Agent):
            # Later agents of the thread read here what this run came to; of an agent they read what it said.
            closing.append(
                OutputItem(call_id=ROOT, tool=self.root.name, outcome=reached.outcome, content=reached.content)
            )
        return Decision(self._step(reached), tuple(closing), frozenset(walk.active_agents), tuple(walk.pending_starts))

    def _step(self, reached: Evaluation) -> Step:
        if isinstance(reached, Ended):
            if reached.outcome == "success":
                return Finish(End(status="completed", output=reached.content))
            said = reached.content if isinstance(reached.content, str) else dumps(reached.content)
            return Finish(End.failed(BlockFailedError(self.root.name, reached.outcome, said)))
        if not reached.work:
            return Wait()
        asks = any(isinstance(each, AskModel) for each in reached.work)
        over = self.budget.exceeded() if asks else self.limits.overtime(self.run.seconds)
        return Work(reached.work) if over is None else Finish(End.failed(over))

    @cached_property
    def budget(self) -> Budget:
        """What the run may use, and has used."""
        return Budget.of_run(self.run, self.limits, self.log)

    def earlier_output(self, tool: Block, input: JsonValue) -> OutputItem | None:
        """A successful output of the same tool for equal input, earlier in this thread.

        Outputs that earlier versions recorded have no key: they are found by the call that a model made.
        """
        sought, key = digest(input), _cache_key(tool, input)  # to Python, 1 and true are equal
        # What an answer of an earlier run made of a call's arguments is not loaded here.
        unknown = {item.body.call_id for item in self.earlier if isinstance(item.body, SuspensionItem)}

        def is_equal(call: ToolCall) -> bool:
            ran_with = input_of(tool, call.args, self.log.actions.get(call.id, ()))
            return call.tool == tool.name and call.id not in unknown and digest(ran_with) == sought

        wanted: set[str] = set()
        for item in self.earlier + self.items:
            body = item.body
            if isinstance(body, ResponseItem):
                wanted.update(call.id for call in body.calls if is_equal(call))
            elif isinstance(body, OutputItem) and body.outcome == "success":
                same = body.call_id in wanted if body.cache_key is None else body.cache_key == key
                if same:
                    return body
        return None


def cache_key_of(call: OpenCall) -> str | None:
    """What a cacheable tool finds the output of this call by, of a step and of a model's call alike."""
    block = call.block
    return _cache_key(block, call.input) if isinstance(block, Tool) and block.options.cacheable else None


def _cache_key(tool: Block, input: JsonValue) -> str:
    return digest([tool.name, input])


def decide(view: View) -> Step:
    """What has to happen next. Raises `RunError` where the code no longer fits what was recorded."""
    return view.decision.step


def _fails_run(state: ActionState) -> bool:
    ended = state.resolution
    return ended is not None and ended.status == "expired" and state.on_timeout == "fail_run"
