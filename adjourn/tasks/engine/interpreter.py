"""A walk through the tree of a run: what each block has come to, and what can be done where it goes on.

Reads what is recorded and nothing else; does no I/O and knows no clock. Two things in a walk are
the user's own code: the selectors of routers and the tools of agents that are functions of the
run. Each is asked once per pass (`CallbackCache`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from adjourn.schemas.errors import (
    BlockChangedError,
    LimitExceededError,
    RoundTripError,
    RouteUnavailableError,
    StoredValueError,
    TooLargeError,
    ToolChangedError,
)
from adjourn.schemas.records.items import ROOT, OutputItem, ResponseItem
from adjourn.schemas.records.messages import Outcome, ToolCall
from adjourn.schemas.records.runs import Run
from adjourn.schemas.strict_json import JsonValue, clean_text, digest
from adjourn.tasks.blocks.agents import FINAL_TOOL, Agent
from adjourn.tasks.blocks.block import Block, Composite
from adjourn.tasks.blocks.composites import Parallel, Router, Sequential
from adjourn.tasks.blocks.policies import approvals_of, input_of, is_approval
from adjourn.tasks.blocks.sub_agents import SubAgent
from adjourn.tasks.engine.activities import Activity, AskModel, BlockLocation, Choose, OpenCall, input_named
from adjourn.tasks.engine.budgets import Budget
from adjourn.tasks.engine.history import History

_MOST_LEVELS: Final = 100
"""Of blocks within blocks. Agents that have one another as tools have no last level, and Python's stack has one."""
_FIRST_SEQ: Final = 1
"""Of the message that began a run."""


@dataclass
class CallbackCache:
    """What user code has said in this pass over a run. One claim, one pass."""

    chosen: dict[str, str] = field(default_factory=dict)
    """By call id of the router."""
    tools: dict[str, Mapping[str, Block]] = field(default_factory=dict)
    """By call id of the agent."""
    tools_at: dict[tuple[str, ...], Mapping[str, Block]] = field(default_factory=dict)
    """By the path of the agent, for whoever has the origin of an action."""


@dataclass(frozen=True)
class Ended:
    """A block has come to this."""

    outcome: Outcome
    content: JsonValue


@dataclass(frozen=True)
class InProgress:
    """A block goes on with this work; with none, it waits."""

    work: tuple[Activity, ...]


Evaluation = Ended | InProgress


class Interpreter:
    """One walk. Raises `RunError` where the code no longer fits what was recorded."""

    def __init__(self, run: Run, log: History, said: CallbackCache) -> None:
        self._run = run
        self._log = log
        self._said = said
        self.closing: list[OutputItem] = []
        """Of calls of a model whose block has come to its end without anybody having written it down."""
        self.active_agents: set[str] = set()
        """The calls of agents within the run, and of what may come to be some, that have not come to their end."""
        self.pending_starts: list[OpenCall] = []
        """Calls of sub-agents that have no run yet, those too that wait for an approval."""

    def through(self, root: Block) -> Evaluation:
        """Walk from the block that the run executes."""
        place = BlockLocation(ROOT, self._run.path or (root.name,), f"{self._run.id}:{_FIRST_SEQ}")
        return self._step(root, place, self._log.input)

    def _step(self, block: Block, place: BlockLocation, value: JsonValue, of_step: str | None = None) -> Evaluation:
        """A block that is handed a value, by the run or by the block that it is a step of.

        `of_step` is the step that the value is the output of. That one never runs again, so a value that this block
        cannot read fails the run, and is kept for a retry.
        """
        handed = block.step_input(value)
        if isinstance(block, Composite):
            return self._composite(block, place, handed, of_step)
        args = handed if isinstance(handed, dict) else {}
        call = ToolCall(id=place.call_id, tool=place.path[-1], args=args)
        return self._body(call, place, block, handed, of_step=of_step)

    def _composite(
        self, block: Composite, place: BlockLocation, value: JsonValue, of_step: str | None = None
    ) -> Evaluation:
        self._ensure_same_kind(block, place)
        if (levels := len(place.path)) > _MOST_LEVELS:
            return Ended("error", str(TooLargeError("the tree of blocks", levels, _MOST_LEVELS, "levels")))
        try:
            block.input.load(value, place.path[-1])
        except RoundTripError as error:
            if of_step is not None or self._has_begun(place.call_id):
                # It read its input once, or a step was done for it. To end it now would drop what is recorded.
                where = f"{place.path[-1]} ({place.call_id})"
                raise StoredValueError(where, input_named(of_step), error.issues) from None
            return Ended("error", clean_text(str(error)))
        match block:
            case Agent():
                reached = self._agent(block, place, value)
                if isinstance(reached, InProgress):
                    self.active_agents.add(place.call_id)
                return reached
            case Sequential():
                return self._sequence(block, place, value, of_step)
            case Parallel():
                return self._parallel(block, place, value, of_step)
            case Router():
                return self._router(block, place, value, of_step)
        raise TypeError(f"{block!r} is no block that can be walked")

    def _body(
        self,
        call: ToolCall,
        place: BlockLocation,
        block: Block | None,
        input: JsonValue,
        agent: Agent | None = None,
        siblings: tuple[str, ...] = (),
        of_step: str | None = None,
    ) -> Evaluation:
        """A call with a body, or one that comes to an error without one."""
        recorded = self._log.outputs.get(call.id)
        if recorded is not None:
            return Ended(recorded.outcome, recorded.content)
        self._ensure_same_kind(block, place)
        open_call = OpenCall(
            call=call,
            place=place,
            block=block,
            input=input,
            agent=agent,
            siblings=siblings,
            actions=tuple(self._log.actions.get(call.id, ())),
            memos=dict(self._log.memos.get(call.id, {})),
            died=call.id in self._log.started,
            of_step=of_step,
        )
        if isinstance(block, Composite) and call.fault is None:
            self.active_agents.add(call.id)
        elif isinstance(block, SubAgent) and not any(state.child for state in open_call.actions):
            self.pending_starts.append(open_call)
        return InProgress(() if open_call.waits or self._is_in_other_hands(open_call) else (open_call,))

    def _is_in_other_hands(self, call: OpenCall) -> bool:
        """Whether another call of the same turn has handed over the same task, and waits for the run that has it."""
        if not isinstance(call.block, SubAgent):
            return False
        block = call.block
        twin = self._log.tasks.get((call.place.caller, block.agent.name, block.key_of(call.call.id, call.input)))
        if twin is None or twin.child is None or twin.resolution is not None:
            return False
        return twin.action.origin.tool_call_id != call.call.id and twin.child.digest == digest(
            block.task_of(call.input)
        )

    def _ensure_same_kind(self, block: Block | None, place: BlockLocation) -> None:
        """What is recorded of a block tells what it was. Another one in its place would not look there, and an
        answer that was accepted would be lost without a word."""
        log, call_id, name = self._log, place.call_id, place.path[-1]
        was: str
        kinds: tuple[type[Block], ...]
        if call_id in log.turns:
            was, kinds = "an agent", (Agent,)
        elif call_id in log.routes:
            was, kinds = "a router", (Router,)
        elif call_id in log.steps:
            was, kinds = "made of steps", (Sequential, Parallel)
        elif isinstance(block, Composite) and self._has_run_a_body(call_id):
            was, kinds = "a tool", ()
        else:
            return
        if block is None:
            raise ToolChangedError(name, ["there is no such tool any more"])
        if not isinstance(block, kinds):
            raise BlockChangedError(name, f"it was {was} and is a {type(block).__name__} now")

    def _has_begun(self, call_id: str) -> bool:
        """True if something inside the block is recorded."""
        log = self._log
        return call_id in log.turns or call_id in log.routes or call_id in log.steps or call_id in log.started

    def _has_run_a_body(self, call_id: str) -> bool:
        log = self._log
        ended = call_id in log.outputs and call_id != ROOT  # of the root there is one, whatever it is
        return ended or call_id in log.memos or not all(map(is_approval, log.actions.get(call_id, ())))

    # --- blocks made of blocks -------------------------------------------------------------

    def _sequence(self, block: Sequential, place: BlockLocation, value: JsonValue, of_step: str | None) -> Evaluation:
        begun = self._begun(block.name, place, block.steps)
        for name, ran in zip(block.steps, begun, strict=False):
            if name != ran:
                # Each was handed what stood before it then: in another order that would be another's output.
                raise BlockChangedError(block.name, f"step {name!r} stands where {ran!r} has run")
        for number, (name, step) in enumerate(block.steps.items(), 1):
            reached = self._step(step, place.step(name), value, of_step)
            if isinstance(reached, Ended) and reached.outcome == "success":
                value, of_step = reached.content, name
                continue
            if number < len(begun):
                raise BlockChangedError(block.name, f"step {name!r} goes on, and {begun[number]!r} after it has run")
            return reached
        return Ended("success", value)

    def _parallel(self, block: Parallel, place: BlockLocation, value: JsonValue, of_step: str | None) -> Evaluation:
        self._begun(block.name, place, block.branches)
        reached = {name: self._step(each, place.step(name), value, of_step) for name, each in block.branches.items()}
        if any(isinstance(each, InProgress) for each in reached.values()):
            return _together(reached.values())
        ended = {name: each for name, each in reached.items() if isinstance(each, Ended)}
        failing = next((each for each in ended.values() if each.outcome != "success"), None)
        return failing or Ended("success", {name: each.content for name, each in ended.items()})

    def _router(self, block: Router, place: BlockLocation, value: JsonValue, of_step: str | None) -> Evaluation:
        taken = self._log.routes.get(place.call_id)
        if taken is None:
            self.active_agents.add(place.call_id)
            return InProgress((Choose(block, place, value),))
        route = block.routes.get(taken)
        if route is None:
            raise RouteUnavailableError(block.name, taken, None, [*block.routes])
        reached = self._step(route, place.step(taken), value, of_step)
        if isinstance(reached, InProgress):
            self._ensure_same_route(block, place, value, taken)
        return reached

    def _ensure_same_route(self, block: Router, place: BlockLocation, value: JsonValue, taken: str) -> None:
        chosen = self._said.chosen
        if place.call_id not in chosen:
            chosen[place.call_id] = block.choose(value)
        if chosen[place.call_id] != taken:
            raise RouteUnavailableError(block.name, taken, chosen[place.call_id])

    def _begun(self, block: str, place: BlockLocation, steps: Mapping[str, Block]) -> list[str]:
        """The names of the steps of which anything is recorded, in the order in which they began."""
        begun = list(self._log.steps.get(place.call_id, ()))
        if gone := [name for name in begun if name not in steps]:
            raise BlockChangedError(block, f"it has no step {gone[0]!r} any more")
        return begun

    # --- agents ------------------------------------------------------------------------------

    def _agent(self, agent: Agent, place: BlockLocation, value: JsonValue) -> Evaluation:
        turns = self._log.turns.get(place.call_id)
        seq, response = turns[-1] if turns else (0, None)
        if not isinstance(response, ResponseItem):
            return self._ask(agent, place, value)
        if not response.calls:
            return Ended("success", agent.final_output(response.text))
        place = replace(
            place,
            message_id=f"{self._run.id}:{seq}",
            caller=place.call_id,
            limits=None if place.call_id == ROOT else agent.limits,
        )
        reached = [self._called(agent, place, call) for call in response.calls]
        if any(isinstance(each, InProgress) for each in reached):
            return _together(reached)
        final = [each for call, each in zip(response.calls, reached, strict=True) if agent.is_final_call(call)]
        given = next((each for each in final if isinstance(each, Ended) and each.outcome == "success"), None)
        if given is None and self._gave_a_form(agent, place, response):
            raise BlockChangedError(agent.name, "it has given its output in a form, and gives text now")
        return given or self._ask(agent, place, value)

    def _gave_a_form(self, agent: Agent, place: BlockLocation, response: ResponseItem) -> bool:
        """Whether a response has ended the work of an agent that would not end so any more."""
        outputs = (self._log.outputs.get(call.id) for call in response.calls if call.tool == FINAL_TOOL)
        given = any(output is not None and output.outcome == "success" for output in outputs)
        return given and FINAL_TOOL not in self._tools(agent, place)

    def _ask(self, agent: Agent, place: BlockLocation, value: JsonValue) -> Evaluation:
        if place.call_id != ROOT and (over := self._over_own_limits(agent, place)) is not None:
            return Ended("error", str(over))
        return InProgress((AskModel(agent, place, value, self._tools(agent, place)),))

    def _over_own_limits(self, agent: Agent, place: BlockLocation) -> LimitExceededError | None:
        """Of an agent that is a part of a run, by its part alone, and its children."""
        return Budget.of_agent(agent.limits, place.call_id, self._run, self._log).exceeded()

    def _called(self, agent: Agent, place: BlockLocation, call: ToolCall) -> Evaluation:
        """A call that an agent's model made."""
        tools = self._tools(agent, place)
        block = None if call.misnamed is not None else tools.get(call.tool)
        at = replace(place, call_id=call.id, path=(*place.path, call.tool))
        actions = self._log.actions.get(call.id, ())
        value = call.args if block is None else input_of(block, call.args, actions)
        let_in = not agent.policies or call.id in self._log.started
        if not isinstance(block, Composite) or call.fault is not None or not let_in or call.id in self._log.outputs:
            return self._body(call, at, block, value, agent, tuple(tools))
        reached = self._composite(block, at, value)
        if isinstance(reached, Ended):
            self.closing.append(
                OutputItem(
                    call_id=call.id,
                    tool=call.tool,
                    outcome=reached.outcome,
                    content=reached.content,
                    approvals=approvals_of(block, actions),
                )
            )
        return reached

    def _tools(self, agent: Agent, place: BlockLocation) -> Mapping[str, Block]:
        known = self._said.tools
        if place.call_id not in known:
            known[place.call_id] = self._said.tools_at[place.path] = agent.tools_of(self._run)
        return known[place.call_id]


def _together(reached: Iterable[Evaluation]) -> InProgress:
    return InProgress(tuple(activity for each in reached if isinstance(each, InProgress) for activity in each.work))
