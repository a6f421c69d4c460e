"""Agents: a model with instructions, tools, a form of output and limits. Definitions only: no model is asked here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from adjourn.schemas.contracts.definition_checks import (
    check_flag,
    check_function,
    check_instance,
    check_text,
    functions_of,
)
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import (
    BlockChangedError,
    DefinitionError,
    PayloadError,
    PromptError,
    ToolOutputError,
    ToolResolverError,
)
from adjourn.schemas.records.items import CorrectionItem, ItemBody, OutputItem, ResponseItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall, ToolSpec
from adjourn.schemas.records.runs import Run
from adjourn.schemas.strict_json import JsonValue, clean_text, dumps
from adjourn.tasks.blocks.block import Block, Composite, argument_value, arguments_schema, check_name, named
from adjourn.tasks.blocks.policies import Policy, check_names
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.blocks.user_code import describe_briefly, discard
from adjourn.tasks.models.finish_reasons import cut_off
from adjourn.tasks.models.protocol import Model

ToolsOfRun = Callable[[Run], Sequence[Block]]
"""Given the run, the tools that its agent has. Asked once per pass; a tool that waits has to be among them."""

FINAL_TOOL: Final = "final_result"
"""What an agent with a form of output calls to end: a tool that takes that form, and has no body."""
_FINAL_DESCRIPTION: Final = "Give the final result. This ends the work."


class Agent(Composite):
    """A model with instructions and tools.

    `model` is a provider's name for it (`"openai:gpt-5.4-mini"`) or a `Model`; it is looked up
    when it is first asked. `model_settings` go to the provider as they are (temperature and so on).
    `tools` are blocks, or a function of the run that returns them. `limits` hold for a run of this
    agent, or for its part of one, if it is a part.

    `input_type` is the type of its input, and `prompt` makes of it the text that the model is given; by default the
    input is text, and given unchanged. `output_type` is the type of its final output, by default text.

    With `stream`, viewers of its thread see its responses while they come, if its model can say them
    so; each costs a few Redis commands more.

    `policies` are asked before each call of a tool and may deny it or demand an approval.
    `resolver` may answer the waits of its tools in process, those that have no resolver of their own.

    Raises `DefinitionError` for an illegal name, what is no model, two tools of one name, an approval demanded for
    what is none of its tools, or a type without JSON form.
    """

    def __init__(
        self,
        name: str,
        model: str | Model,
        *,
        instructions: str = "",
        tools: Sequence[Block] | ToolsOfRun = (),
        limits: Limits = Limits(),
        model_settings: Mapping[str, Any] | None = None,
        resolver: Resolver | None = None,
        description: str = "",
        input_type: Any = str,
        prompt: Callable[[Any], str] | None = None,
        output_type: Any = str,
        policies: Sequence[Policy] = (),
        stream: bool = False,
    ) -> None:
        check_name("agent", name)
        if not isinstance(model, str) and not _is_model(model):
            remedy = "give provider:name, or a Model, which has a name and async def request()"
            raise DefinitionError(f"agent {name!r}", f"its model is {model!r}", remedy)
        if not isinstance(instructions, str):
            raise DefinitionError(f"agent {name!r}", f"its instructions are {instructions!r}", "give text")
        where = f"agent {name!r}"
        check_text(where, "description", description)
        check_flag(where, "stream", stream)
        check_function(where, "prompt", prompt)
        check_function(where, "resolver", resolver)
        if not isinstance(limits, Limits):
            raise DefinitionError(where, f"limits is {limits!r}", "give Limits(...)")
        check_instance(where, "model_settings", model_settings, Mapping)
        self.name = name
        self.model = model
        self.instructions = instructions
        self.limits = limits
        self.model_settings = dict(model_settings or {})
        self.resolver = resolver
        self.description = description
        self.input = Contract.of(input_type)
        self.output = Contract.of(output_type)
        self.policies = functions_of(where, "policies", policies)
        self.stream = stream
        self._prompt = prompt
        self._says_text = output_type is str
        self._tools = tools
        # A tool can be called, and is not a function of the run.
        self.by_name: Mapping[str, Block] = (
            {} if callable(tools) and not isinstance(tools, Block) else self._named(tools)
        )

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    @property
    def parts(self) -> Mapping[str, Block]:
        return self.by_name

    @property
    def tools_vary(self) -> bool:
        """True if each run may have other tools: `tools` is a function of the run."""
        return callable(self._tools)

    def tools_of(self, run: Run) -> Mapping[str, Block]:
        """The tools that it has in this run. Raises `ToolResolverError`."""
        if not callable(self._tools):
            return self.by_name
        try:
            given: Any = self._tools(run)
            discard(given)
            return self._named(given)
        except BaseException as error:  # of the user's code, as of a body
            raise ToolResolverError(self.name, describe_briefly(error)) from error

    def specs(self, tools: Mapping[str, Block]) -> tuple[ToolSpec, ...]:
        """How its model is offered these tools, and the end."""
        offered = tuple(tool.spec for tool in tools.values())
        if self._says_text:
            return offered
        form = arguments_schema(self.output)
        return (*offered, ToolSpec(name=FINAL_TOOL, description=_FINAL_DESCRIPTION, input_schema=form))

    def prompt_for(self, value: JsonValue) -> str:
        """What its model is told of an input that fits. Raises `PromptError`."""
        if self._prompt is not None:
            try:
                prompt: object = self._prompt(self.input.load(value))
                if not isinstance(prompt, str):
                    discard(prompt)
                    raise TypeError(f"prompt returned {type(prompt).__name__}, not text")
                return clean_text(prompt)
            except BaseException as error:  # of the user's code, as of a body
                raise PromptError(self.name, describe_briefly(error)) from error
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def recorded(self, response: ResponseItem, prompt: str | None) -> ResponseItem:
        """A response as it is recorded, with what this agent was `told` first, if that is not its message as it is.

        Where the form of the output has defaults that a function makes, they are written into the text:
        it is read on every later pass, and each would make others.
        """
        if prompt is not None and self._prompt is not None:
            response = response.model_copy(update={"prompt": prompt})
        if response.calls or self._says_text or not self.output.makes_values:
            return response
        try:
            _, final = self.output.canonical(json.loads(response.text), FINAL_TOOL)
        except BaseException:  # of a validator of the user's too
            return response  # `output_items` says what is wrong with it
        return response.model_copy(update={"text": dumps(final)})

    def output_items(self, response: ResponseItem) -> list[ItemBody]:
        """What is to be recorded beside a response of this agent because of the form of its output."""
        if self._says_text:
            return []
        if not response.calls:
            problem = cut_off(response.finish_reason) or self._text_problem(response.text)
            return [] if problem is None else [CorrectionItem(call_id=response.call_id, text=problem)]
        return [self._final(call) for call in response.calls if self.is_final_call(call) and call.fault is None]

    def is_final_call(self, call: ToolCall) -> bool:
        """Whether this call gives its output, if it is recorded as a success."""
        return call.tool == FINAL_TOOL and call.misnamed is None and not self._says_text

    def final_output(self, text: str) -> JsonValue:
        """The output that a response without calls is, to which `output_items` had no objection when it came.

        Raises `BlockChangedError` if the form of the output was another one then.
        """
        if self._says_text:
            return text
        if self._text_problem(text) is not None:
            raise BlockChangedError(self.name, "its last word does not have the form of its output")
        return self._dumped(json.loads(text))

    def _text_problem(self, text: str) -> str | None:
        try:
            self._dumped(json.loads(text))
        except (ValueError, RecursionError):
            return f"Give the final result by calling {FINAL_TOOL}; text is not read."
        except PayloadError as error:
            return f"{error}. Give the final result by calling {FINAL_TOOL}."
        except BaseException as error:  # of a validator or a serializer of the user's
            return f"The final result could not be read: {describe_briefly(error)}. Give it by calling {FINAL_TOOL}."
        return None

    def _final(self, call: ToolCall) -> OutputItem:
        try:
            content = self._dumped(argument_value(self.output, call.args))
        except PayloadError as error:
            return OutputItem(call_id=call.id, tool=FINAL_TOOL, outcome="error", content=str(error))
        except BaseException as error:  # of a validator or a serializer of the user's
            return OutputItem(call_id=call.id, tool=FINAL_TOOL, outcome="error", content=describe_briefly(error))
        return OutputItem(call_id=call.id, tool=FINAL_TOOL, outcome="success", content=content)

    def _dumped(self, value: JsonValue) -> JsonValue:
        return self.output.write(self.output.validate_answer(value, FINAL_TOOL), FINAL_TOOL, ToolOutputError)

    def _named(self, tools: Sequence[Block]) -> dict[str, Block]:
        where = f"agent {self.name!r}"
        found = named(tools, where, "tool")
        if FINAL_TOOL in found and not self._says_text:
            raise DefinitionError(where, f"{FINAL_TOOL!r} is how it gives its output", "rename the tool")
        check_names(self.policies, found, where)
        return found


def _is_model(model: object) -> bool:
    return isinstance(getattr(model, "name", None), str) and callable(getattr(model, "request", None))
