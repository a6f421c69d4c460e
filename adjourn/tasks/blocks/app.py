"""The registry: the blocks that runs can execute. A fresh process needs no more to go on with every parked run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjourn.schemas.contracts.definition_checks import check_function
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError, UnknownBlockError
from adjourn.schemas.records.actions import ActionState, Origin
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.block import Block, named
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT, outcome_wait_point
from adjourn.tasks.blocks.policies import APPROVAL_WAIT_POINT, RequireApproval, approval_wait_point, is_approval
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.blocks.sub_agents import SubAgent
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.models.protocol import Model
from adjourn.tasks.models.resolve import resolve

ToolsAt = Mapping[tuple[str, ...], Mapping[str, Block]]


class App:
    """Everything that runs of a deployment can execute, by name: agents, and blocks of other kinds.

    Sub-agents of these are among them. `resolver` may answer the waits of agents and tools that have no
    resolver of their own. `build` names this state of the code among those that are deployed side by side (a
    version, a commit); left out, workers name it by the code itself, or as their settings say. Raises
    `DefinitionError` for two blocks of one name, and for a `build` that is no text or empty.
    """

    def __init__(
        self,
        *,
        agents: Sequence[Agent] = (),
        blocks: Sequence[Block] = (),
        resolver: Resolver | None = None,
        build: str | None = None,
    ) -> None:
        check_function("app", "resolver", resolver)
        self.resolver = resolver
        if isinstance(agents, Block) or isinstance(blocks, Block):
            raise DefinitionError("app", "it is given one block, not a list", "give agents=[...] and blocks=[...]")
        if build is not None and not (isinstance(build, str) and build):
            raise DefinitionError("app", f"its build is {build!r}", "name it by a version or a commit, or leave it out")
        self.build = build
        for each in agents:
            if not isinstance(each, Agent):
                raise DefinitionError("app", f"{each!r} is no agent", "give other blocks as blocks=")
        self.blocks = named([*agents, *blocks], "app", "block")
        seen: set[int] = set()
        for block in tuple(self.blocks.values()):
            self._register_sub_agents(block, seen)

    def _register_sub_agents(self, block: Block, seen: set[int]) -> None:
        """A run of a sub-agent is started by its name, as every run is."""
        if id(block) in seen:
            return
        seen.add(id(block))
        if isinstance(block, SubAgent):
            agent = block.agent
            if self.blocks.setdefault(agent.name, agent) is not agent:
                raise DefinitionError("app", f"it has two blocks named {agent.name!r}, one a sub-agent", "rename one")
            self._register_sub_agents(agent, seen)
        for part in block.parts.values():
            self._register_sub_agents(part, seen)

    def block(self, name: str) -> Block:
        """The block of this name. Raises `UnknownBlockError`."""
        try:
            return self.blocks[name]
        except KeyError:
            raise UnknownBlockError(name, list(self.blocks)) from None

    def model(self, agent: Agent) -> Model:
        """The model of an agent; one per name and process. Raises `DefinitionError` and `ConfigurationError`."""
        return resolve(agent.model)

    def resolver_of(self, state: ActionState, tools_at: ToolsAt) -> Resolver | None:
        """Who may answer an action in process: its tool's resolver, else its nearest agent's, else the app's.

        What is called has no say in whether it may be: an approval is for whoever is around it. `tools_at` are the
        tools that agents have in this run, by the paths of the agents.
        """
        origin = state.action.origin
        outside = len(origin.block_path) - 1 if is_approval(state) else None
        for block in reversed(self._along(origin, tools_at)[:outside]):
            if isinstance(block, Tool | Agent | SubAgent) and block.resolver is not None:
                return block.resolver
        return self.resolver

    def resume_contract(self, origin: Origin, pinned: dict[str, Any]) -> Contract[Any] | None:
        """The live resume contract of an action that was opened with the schema `pinned`.

        None if a deploy has changed it since, or if this app does not have its code, or only in its run.
        """
        return next((each for each in self._resume_contracts(origin) if each.reads(pinned)), None)

    def wider_contract(self, origin: Origin, pinned: dict[str, Any]) -> Contract[Any] | None:
        """The live resume contract that reads every answer that fits the schema `pinned`, with the same meaning."""
        return next((each for each in self._resume_contracts(origin) if each.reads_all(pinned)), None)

    def _resume_contracts(self, origin: Origin) -> list[Contract[Any]]:
        block = self._along(origin, {})[-1]
        if isinstance(block, Tool) and origin.wait_point in block.wait_points:
            return [block.wait_points[origin.wait_point].resume]
        if isinstance(block, Tool) and origin.wait_point == OUTCOME_WAIT_POINT:
            return [outcome_wait_point(block.output.type).resume]
        if block is not None and origin.wait_point == APPROVAL_WAIT_POINT:
            return [approval_wait_point(RequireApproval(edit=edit), block.input.type).resume for edit in (False, True)]
        return []

    def lacks(self, origin: Origin) -> bool:
        """True if an action's tool is not in this app, and no run of it can have it: another build may."""
        along = self._along(origin, {})
        first_missing = next((at for at, block in enumerate(along) if block is None), None)
        if first_missing is None:
            return False
        above = along[first_missing - 1] if first_missing else None
        return not (isinstance(above, Agent) and above.tools_vary)

    def _along(self, origin: Origin, tools_at: ToolsAt) -> list[Block | None]:
        """The blocks on the way from the root to the tool; None for those that are neither fixed nor among these.

        The way begins in the root run, and `tools_at` knows the run that asks: there may be a gap before it.
        """
        path = origin.block_path
        along: list[Block | None] = [self.blocks.get(path[0])]
        for depth, name in enumerate(path[1:], 1):
            above = along[-1]
            tools = tools_at.get(path[:depth], {})
            along.append(tools.get(name) or (above.parts.get(name) if above is not None else None))
        return along
