"""Sub-agents: blocks that a model, or a step, hands a task to, as a run of its own. Definitions only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, Never

from pydantic import BaseModel, ConfigDict, Field, create_model

from adjourn.schemas.contracts.definition_checks import check_instance, check_text
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolSpec
from adjourn.schemas.strict_json import JsonValue, clean_text
from adjourn.tasks.blocks.block import Block, check_name, refuse_options
from adjourn.tasks.blocks.resolver import Resolver

TASK: Final = "task"
"""The argument that holds the input of the sub-agent, and the name of the wait for its run."""
KEY: Final = "key"

OnFailure = Literal["result", "end_parent"]

_KEY_HELP: Final = "Names the task. A call with the key of an earlier one gets that one's result."


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubAgent(Block):
    """An agent, or any other block, that is offered to an agent as a tool, or stands as a step.

    Each call starts a run of its own, on a thread of its own, which any worker executes; calls of one turn run
    in parallel. The run that calls is parked meanwhile. What the child comes to is the output of the call.

    A call names its task by a `key`. Another call of the same run with the same key and the same
    task is given the same result, and starts nothing; with another task it is an error that the model reads.

    The child uses what its parent may use: it has its share of the parent's `limits`, and what it used counts
    for the parent; with `limits` it has these instead. With `on_failure="end_parent"` a child that does
    not complete fails its parent; by default the model reads how it ended.

    Raises `DefinitionError`.
    """

    def __init__(
        self,
        agent: Block,
        *,
        name: str | None = None,
        description: str | None = None,
        limits: Limits | None = None,
        on_failure: OnFailure = "result",
        **options: Never,
    ) -> None:
        if not isinstance(agent, Block):
            raise DefinitionError("sub-agent", f"{agent!r} is no block", "give an Agent, or another block")
        self.name = agent.name if name is None else name
        check_name("sub-agent", self.name)
        check_text(f"sub-agent {self.name!r}", "description", description)
        check_instance(f"sub-agent {self.name!r}", "limits", limits, Limits)
        remedy = "a sub-agent has a run of its own; give the option to the tools of its agent"
        refuse_options(f"sub-agent {self.name!r}", options, remedy)
        if on_failure not in ("result", "end_parent"):
            raise DefinitionError(
                f"sub-agent {self.name!r}", f"on_failure is {on_failure!r}", "say result or end_parent"
            )
        self.agent = agent
        self.description = agent.description if description is None else description
        self.limits = limits
        self.on_failure = on_failure
        fields: dict[str, Any] = {
            TASK: (agent.step_contract.type, ...),
            KEY: (str | None, Field(default=None, description=_KEY_HELP)),
        }
        self.input = Contract.of(create_model(f"{self.name}_call", __base__=_Call, **fields))
        self.output = agent.output

    def __repr__(self) -> str:
        return f"SubAgent({self.agent!r})"

    @property
    def step_contract(self) -> Contract[Any]:
        return self.agent.step_contract

    def step_input(self, value: JsonValue) -> JsonValue:
        return {TASK: value}

    def key_of(self, call_id: str, input: JsonValue) -> str:
        """The key under which a call hands over its task: the model's, or one of its own."""
        key = input.get(KEY) if isinstance(input, dict) else None
        return clean_text(key) if key and isinstance(key, str) else call_id

    def task_of(self, input: JsonValue) -> JsonValue:
        """What a call hands over."""
        return input.get(TASK) if isinstance(input, dict) else None

    @property
    def parts(self) -> Mapping[str, Block]:
        """The child goes on the path of its call: below it stands what its agent is made of."""
        return self.agent.parts

    @property
    def resolver(self) -> Resolver | None:
        """Of its agent, if that has one."""
        resolver: Resolver | None = getattr(self.agent, "resolver", None)
        return resolver

    @cached_property
    def spec(self) -> ToolSpec:
        """How a model is offered it."""
        return super().spec
