"""What every block has: a name, a contract in and out, and how a model or a step before hands it its input.

A block is a definition. It runs nothing and holds no state; what a run has done of it is in the run's items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ConfigDict, create_model

from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.messages import ToolSpec
from adjourn.schemas.strict_json import JsonValue

INPUT_KEY: Final = "input"
"""The one argument of a block whose input is no object: a model's arguments always are one."""


class Block:
    """Base of all blocks: agents, tools (which are handlers), sequences, parallel steps and routers."""

    name: str
    description: str
    input: Contract[Any]
    """Of what it is called with."""
    output: Contract[Any]
    """Of what it comes to."""

    @property
    def step_contract(self) -> Contract[Any]:
        """Of what it is handed as a step: the output of the step before, or the input of the run."""
        return self.input

    def step_input(self, value: JsonValue) -> JsonValue:
        """What it is called with when it is handed `value` as a step: nothing of it, if it takes nothing."""
        return value if takes_input(self.input) else {}

    def called(self, args: dict[str, Any]) -> JsonValue:
        """What it is called with when a model calls it with `args`."""
        return argument_value(self.input, args)

    def args_of(self, value: JsonValue) -> dict[str, Any]:
        """The arguments with which a model calls it with `value`: the reverse of `called`."""
        return value if isinstance(value, dict) and _is_object(self.input) else {INPUT_KEY: value}

    @property
    def parts(self) -> Mapping[str, Block]:
        """The blocks that it is made of, by name, as far as they are fixed."""
        return {}

    @property
    def spec(self) -> ToolSpec:
        """How a model is offered it."""
        return ToolSpec(name=self.name, description=self.description, input_schema=arguments_schema(self.input))


class Composite(Block):
    """Base of the blocks that have no body of their own: what they do is done by others."""


def check_name(what: str, name: str) -> None:
    """Raise `DefinitionError` unless `name` can name a block."""
    if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
        raise DefinitionError(f"{what} {name!r}", "its name is not legal", "use 1 to 64 letters, digits, _ or -")


def refuse_options(where: str, options: Mapping[str, object], remedy: str) -> None:
    """Raise `DefinitionError` if any option is left that the definition does not take, such as one of `tool`."""
    if options:
        raise DefinitionError(where, f"it has no option {next(iter(options))!r}", remedy)


def named(blocks: Iterable[Block] | Mapping[str, Block], where: str, what: str) -> dict[str, Block]:
    """Blocks by name: their own, or the one that the mapping gives them. Raises `DefinitionError`."""
    if not isinstance(blocks, Iterable):
        raise DefinitionError(where, f"{blocks!r} is not a list", f"give a list of each {what}")
    pairs = blocks.items() if isinstance(blocks, Mapping) else [(getattr(each, "name", ""), each) for each in blocks]
    found: dict[str, Block] = {}
    for name, each in pairs:
        if not isinstance(each, Block):
            raise DefinitionError(where, f"{each!r} is no {what}", "decorate the function with @tool or @handler")
        check_name(f"{where}: {what}", name)
        if name in found:
            raise DefinitionError(where, f"it has two {what}s named {name!r}", "rename one")
        found[name] = each
    return found


def first_input(blocks: Iterable[Block]) -> Contract[Any]:
    """What the first of some blocks on one input takes that takes anything."""
    taken = [each.step_contract for each in blocks]
    return next(filter(takes_input, taken), taken[0])


def takes_input(contract: Contract[Any]) -> bool:
    """Whether there is anything to say in a value of this contract: a function without parameters takes `{}`."""
    schema = contract.json_schema
    return not _is_object(contract) or bool(schema.get("properties")) or schema.get("additionalProperties") is not False


def arguments_schema(contract: Contract[Any]) -> dict[str, Any]:
    """The schema of the arguments with which a model gives a value of this contract: always an object."""
    if _is_object(contract):
        return dict(contract.json_schema)
    value = dict(contract.json_schema)
    # References in the schema are to definitions at its root.
    shared: dict[str, Any] = {key: value.pop(key) for key in ("$defs", "$schema") if key in value}
    wrapped = {"type": "object", "properties": {INPUT_KEY: value}, "required": [INPUT_KEY]}
    return {**shared, **wrapped, "additionalProperties": False}


def arguments_type(contract: Contract[Any]) -> Any:
    """The type of the arguments with which a model gives a value of this contract, as `arguments_schema` says."""
    if _is_object(contract):
        return contract.type
    fields: dict[str, Any] = {INPUT_KEY: (contract.type, ...)}
    return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


def argument_value(contract: Contract[Any], args: dict[str, Any]) -> JsonValue:
    """The value that a model gave with these arguments; nobody has checked it yet."""
    return args if _is_object(contract) else args.get(INPUT_KEY)


def _is_object(contract: Contract[Any]) -> bool:
    return contract.json_schema.get("type") == "object"
