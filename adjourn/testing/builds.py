"""What a run is driven with in a test: an app, and the models that the test puts in the place of its own.

Changes neither the app nor its agents, so tests in several threads may each have models of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adjourn.schemas.errors import DefinitionError, ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.app import App
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.protocol import Model
from adjourn.tasks.models.resolve import resolve
from adjourn.worker.process.assembly import load_app


@dataclass(frozen=True)
class Build:
    """An app, itself or by its import path (`module:attribute`), and models by the names of their agents."""

    app: App | str
    models: Mapping[str, Model | str] = field(default_factory=dict)

    @property
    def has_processes(self) -> bool:
        """Whether each pass is a process of its own: one that is told where to import the app from."""
        return isinstance(self.app, str)

    def load(self) -> App:
        """The app as a fresh process would have it. Raises `ConfigurationError` for an import path that leads nowhere,
        and `DefinitionError` for a model of an agent that the app does not have.

        An agent that names a provider's model is not let out to it: what a test asks has to be in the test.
        """
        return _Rehearsed(load_app(self.app) if isinstance(self.app, str) else self.app, self.models)


class _Rehearsed(App):
    """The blocks of an app, with other models."""

    def __init__(self, app: App, models: Mapping[str, Model | str]) -> None:
        super().__init__(blocks=list(app.blocks.values()), resolver=app.resolver)
        known = _agents_of(app)
        unknown = [name for name in models if name not in known]
        # An agent that is left without a model says so itself, when it is asked.
        if unknown and not any(_has_no_model(agent, models) or agent.tools_vary for agent in known.values()):
            problem = f"a model is given for {unknown[0]!r}, and the agents are: {', '.join(known) or 'none'}"
            raise DefinitionError("models", problem, "give models by the names of agents of the app")
        self._given = models

    def model(self, agent: Agent) -> Model:
        given = self._given.get(agent.name)
        if given is not None:
            return resolve(given)
        return agent.model if not isinstance(agent.model, str) else _NoModel(agent.name, agent.model)


def _agents_of(app: App) -> dict[str, Agent]:
    """The agents of an app by name, those within other blocks too, as far as they are fixed."""
    found: dict[str, Agent] = {}
    seen: set[int] = set()
    blocks: list[Block] = [*app.blocks.values()]
    while blocks:
        block = blocks.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        if isinstance(block, Agent):
            found.setdefault(block.name, block)
        blocks += block.parts.values()
    return found


def _has_no_model(agent: Agent, models: Mapping[str, Model | str]) -> bool:
    return isinstance(agent.model, str) and agent.name not in models


class _NoModel:
    """Stands where a provider's model would be asked."""

    def __init__(self, agent: str, name: str) -> None:
        self._agent = agent
        self.name = name

    async def request(self, request: ModelRequest) -> ModelResponse:
        problem = f"a test does not ask a provider; start the run with models={{{self._agent!r}: ScriptedModel([…])}}"
        raise ModelRequestError(self.name, problem, retryable=False)
