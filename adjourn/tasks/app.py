"""The registry: agents and their tools. It is all that a fresh process needs to go on with every parked run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adjourn.schemas.actions import Origin
from adjourn.schemas.errors import DefinitionError, UnknownBlockError
from adjourn.schemas.limits import Limits
from adjourn.schemas.tool_names import LEGAL_NAME
from adjourn.schemas.values import Contract
from adjourn.tasks.models.protocol import Model
from adjourn.tasks.models.resolve import resolve
from adjourn.tasks.resolver import Resolver
from adjourn.tasks.tools import Tool


@dataclass(frozen=True, eq=False)
class Agent:
    """A model with instructions and tools.

    `model` is a provider's name for it (`"openai:gpt-5.4-mini"`) or a `Model`; it is looked up
    when it is first asked. `settings` go to the provider as they are (temperature and so on).
    `wait_for` may answer the waits of its tools in process, those that have no resolver of their own.
    Raises `DefinitionError` for an illegal name or two tools of one name.
    """

    name: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Tool[..., Any]] = ()
    limits: Limits = Limits()
    settings: dict[str, Any] = field(default_factory=dict)
    wait_for: Resolver | None = None
    by_name: dict[str, Tool[..., Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        where = f"agent {self.name!r}"
        if not LEGAL_NAME.fullmatch(self.name):
            raise DefinitionError(where, "its name is not legal", "use 1 to 64 letters, digits, _ or -")
        named: dict[str, Tool[..., Any]] = {}
        for each in self.tools:
            if not isinstance(each, Tool):
                raise DefinitionError(where, f"{each!r} is no tool", "decorate the function with @tool")
            if each.name in named:
                raise DefinitionError(where, f"it has two tools named {each.name!r}", "rename one with tool(name=…)")
            named[each.name] = each
        object.__setattr__(self, "by_name", named)


class App:
    """Every agent of a deployment, by name.

    `wait_for` may answer the waits of agents and tools that have no resolver of their own.
    """

    def __init__(self, *, agents: Sequence[Agent], wait_for: Resolver | None = None) -> None:
        self.wait_for = wait_for
        self.agents: dict[str, Agent] = {}
        for each in agents:
            if each.name in self.agents:
                raise DefinitionError("app", f"it has two agents named {each.name!r}", "rename one")
            self.agents[each.name] = each
        self._models: dict[str, Model] = {}

    def agent(self, name: str) -> Agent:
        """The agent of this name. Raises `UnknownBlockError`."""
        try:
            return self.agents[name]
        except KeyError:
            raise UnknownBlockError(name, list(self.agents)) from None

    def model(self, agent: Agent) -> Model:
        """The model of an agent, looked up once per process."""
        if agent.name not in self._models:
            self._models[agent.name] = resolve(agent.model)
        return self._models[agent.name]

    def resolver(self, origin: Origin) -> Resolver | None:
        """Who may answer an action in process: its tool's resolver, else its agent's, else the app's."""
        agent = self.agents.get(origin.block_path[0])
        tool = agent.by_name.get(origin.tool) if agent else None
        return (tool and tool.wait_for) or (agent and agent.wait_for) or self.wait_for

    def resume_contract(self, origin: Origin) -> Contract[Any] | None:
        """The live resume contract of an action, or None if this app does not have its code."""
        agent = self.agents.get(origin.block_path[0])
        tool = agent.by_name.get(origin.tool) if agent else None
        point = tool.wait_points.get(origin.wait_point) if tool else None
        return point.resume if point else None
