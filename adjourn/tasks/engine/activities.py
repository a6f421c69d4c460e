"""What can be done next in a run, and where in its tree of blocks. Records only; nothing here decides or runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import ROOT
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.strict_json import JsonValue
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.composites import Router
from adjourn.tasks.engine.history import step_id


@dataclass(frozen=True)
class BlockLocation:
    """Where in the tree of a run something happens."""

    call_id: str
    path: tuple[str, ...]
    """Names from the root block down."""
    message_id: str
    """`run_id:seq` of the item that asked for it: a response, or the message that began the run."""
    caller: str = ROOT
    """The call of the nearest agent above it."""
    limits: Limits | None = None
    """Those of that agent, if it is a part of the run and not the root."""

    def step(self, name: str) -> BlockLocation:
        return replace(self, call_id=step_id(self.call_id, name), path=(*self.path, name))


@dataclass(frozen=True)
class OpenCall:
    """A call that has no output yet, and whose body can run."""

    call: ToolCall
    place: BlockLocation
    block: Block | None
    """What is called; None if there is nothing of that name."""
    input: JsonValue
    """What it is called with; nobody has checked it yet."""
    agent: Agent | None
    """Whose model made the call; None for a step."""
    siblings: tuple[str, ...]
    """The names that could have been called."""
    actions: tuple[ActionState, ...]
    memos: dict[str, Any]
    """Results of `run_once`; grows as the body runs, so that a retry of the body sees them."""
    died: bool
    """Whether its last pass left a start behind and nothing after it."""
    of_step: str | None = None
    """The step of a sequence that its input is the output of."""

    @property
    def waits(self) -> bool:
        """Whether one of its waits is still pending: its body does not run before all have ended."""
        return any(state.resolution is None for state in self.actions)


def input_named(of_step: str | None) -> str:
    """The input of a block, as an error names it."""
    return "the input" if of_step is None else f"the output of step {of_step!r}"


@dataclass(frozen=True)
class AskModel:
    """The turn of an agent's model."""

    agent: Agent
    place: BlockLocation
    value: JsonValue
    """The input of the agent."""
    tools: Mapping[str, Block]


@dataclass(frozen=True)
class Choose:
    """A router has to choose its route."""

    router: Router
    place: BlockLocation
    value: JsonValue


Activity = OpenCall | AskModel | Choose
