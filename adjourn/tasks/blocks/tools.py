"""Tools: what a model may call. This module turns functions into contracts; it runs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, Never, ParamSpec, Protocol, TypeVar, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, create_model

from adjourn.schemas.contracts.definition_checks import check_text
from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.contracts.values import Contract, fingerprint
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.actions import OnTimeout
from adjourn.schemas.records.entries import Resume
from adjourn.schemas.records.messages import ToolSpec
from adjourn.schemas.records.wait_points import UNSET, Unset, WaitPoint
from adjourn.schemas.strict_json import JsonValue
from adjourn.tasks.blocks.awaited_asks import awaited_ask
from adjourn.tasks.blocks.block import Block, refuse_options
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT, outcome_wait_point
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.blocks.tool_options import OPTION_NAMES, ToolOptions, check_versions, wait_points_by_name
from adjourn.tasks.context.facade import Context

P = ParamSpec("P")
R = TypeVar("R")
Options = ParamSpec("Options")

CLIENT_WAIT_POINT = "result"
"""The wait point of a client tool: its pending action is `tool.result`."""


@dataclass(frozen=True)
class Recovered(Generic[R]):
    """What `verify` returns when the body had done its work: the output it would have returned."""

    output: R


@dataclass(frozen=True, eq=False)
class Tool(Block, Generic[P, R]):
    """A function that a model may call, with its contract. Calling it calls the function itself.

    Make one with `tool` or `client_tool`.
    """

    name: str
    description: str
    input: Contract[Any]
    output: Contract[Any]
    wait_points: dict[str, WaitPoint[Any, Any]]
    function: Callable[P, R]
    takes_context: str | None
    """The name of the context parameter, if it has one."""
    takes_model: str | None
    """The name of the parameter that takes the whole input model; otherwise fields go as keywords."""
    options: ToolOptions
    single_parameter: str | None = None
    """The name of its parameter, where it takes one besides the context: what a step before came to is that one's."""
    fingerprint: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        parts: dict[str, Any] = {"input": self.input.json_schema, "output": self.output.json_schema}
        for point in self.wait_points.values():
            parts.update(point.parts)
        object.__setattr__(self, "fingerprint", {**fingerprint(parts), "version": self.options.version})

    @property
    def marks_start(self) -> bool:
        """Whether each pass is written down before it begins, so that one that died can be told."""
        return not self.options.repeatable or self.options.verify is not None

    @property
    def resolver(self) -> Resolver | None:
        """A function in this process that may answer its waits."""
        return self.options.resolver

    @property
    def step_contract(self) -> Contract[Any]:
        """Of what it is handed as a step: all of its input, or the value of its one parameter."""
        return (
            self.input
            if self.single_parameter is None
            else Contract.of(self.input.type.model_fields[self.single_parameter].annotation)
        )

    def step_input(self, value: JsonValue) -> JsonValue:
        """What it is called with as a step."""
        return super().step_input(value) if self.single_parameter is None else {self.single_parameter: value}

    @cached_property
    def spec(self) -> ToolSpec:
        """How a model is offered it."""
        return super().spec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def arguments(self, context: Context, value: Any) -> dict[str, Any]:
        """The keyword arguments of the function for one call."""
        given: dict[str, Any] = {}
        if self.takes_context:
            given[self.takes_context] = context
        if self.takes_model:
            given[self.takes_model] = value
        elif isinstance(value, _SignatureModel):
            given.update({name: getattr(value, name) for name in type(value).model_fields})
        return given


class _SignatureModel(BaseModel):
    """Base of the input models that are made from signatures."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _ToolDecorator(Protocol[Options]):
    """The type of `tool`: a decorator with or without options."""

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, *args: Options.args, **options: Options.kwargs) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def _taking(
    options: Callable[Options, ToolOptions],
) -> Callable[[Callable[..., Any]], _ToolDecorator[Options]]:
    """Give a decorator the signature of its options: they are declared once, in `ToolOptions`."""

    def with_signature(decorator: Any) -> Any:
        function = inspect.Parameter("function", inspect.Parameter.POSITIONAL_ONLY, default=None)
        parameters = inspect.signature(options).parameters.values()
        decorator.__signature__ = inspect.Signature([function, *parameters])
        return decorator

    return with_signature


@_taking(ToolOptions)
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, sync or async.

    The input schema comes from the signature, the output schema from the return annotation; the options `input` and
    `output` override them. `ToolOptions` lists the options and what each does.

    A worker that dies inside a body leaves it open whether the body did its work. By default it runs again; the
    options `verify` and `repeatable` change that.

    Raises `DefinitionError` for what cannot work.
    """
    unknown = {name: value for name, value in options.items() if name not in OPTION_NAMES}
    refuse_options("tool", unknown, f"the options of a tool are: {', '.join(OPTION_NAMES)}")
    given = ToolOptions(**options)
    return (lambda function: _make(function, given)) if function is None else _make(function, given)


def client_tool(
    name: str,
    *,
    description: str,
    input: type,
    output: Any,
    version: str = "1",
    timeout: timedelta | None = None,
    on_timeout: OnTimeout | Unset = UNSET,
    default: Any = UNSET,
    answerers: Sequence[str] | None = None,
    resumes_from: Sequence[str] = (),
    **options: Never,
) -> Tool[Any, Any]:
    """A tool that the client runs: each call is a pending action `name.result`, and its answer is the output.

    A submit that does not fit `output` is refused and the call stays pending. `timeout` is the
    deadline of the wait; it, `on_timeout`, `default` and `answerers` are those of a `WaitPoint`. Raises
    `DefinitionError` for what cannot work, or would have no effect, as the options of `tool` that say how a body
    runs (`own_process`, `retries` and the like): no body of a client tool runs in a worker.
    """
    _check_name(name)
    where = f"tool {name!r}"
    refuse_options(f"client {where}", options, "a client tool has no body that a worker runs; drop it")
    check_text(where, "description", description)
    check_versions(where, version, resumes_from)
    asked: WaitPoint[Any, Any] = WaitPoint(CLIENT_WAIT_POINT, suspend=input, resume=output)
    point = asked.with_terms(where, timeout, on_timeout, default, answerers)

    def body(ctx: Context) -> Any:
        if isinstance(ctx.entry, Resume):
            return ctx.entry.resume
        ctx.suspend(point, ctx.input)

    return Tool(
        name=name,
        description=description,
        input=Contract.of(input),
        output=Contract.of(output),
        wait_points={point.name: point},
        function=body,
        takes_context="ctx",
        takes_model=None,
        options=ToolOptions(version=version, resumes_from=tuple(resumes_from)),
    )


def _make(function: Callable[..., Any], options: ToolOptions) -> Tool[..., Any]:
    name = options.name or str(getattr(function, "__name__", type(function).__name__))
    where = f"tool {name!r}"
    _check_function(function, where)
    _check_name(name)
    options.check(where)
    points = wait_points_by_name(options.wait_points, where)
    hints = _hints(function, where)
    parameters = list(inspect.signature(function).parameters.values())
    context = next((p.name for p in parameters if hints.get(p.name) is Context or p.name == "ctx"), None)
    rest = [p for p in parameters if p.name != context]
    if context is not None and (awaited := awaited_ask(function, context)) is not None:
        problem = f"it awaits {context}.{awaited}(...), which returns the answer itself"
        raise DefinitionError(where, problem, f"write {context}.{awaited}(...) without await, in an async def too")
    if options.input is None:
        input_type, takes_model = _signature_model(name, rest, hints, where), None
    else:
        if len(rest) > 1:
            raise DefinitionError(where, "with input= it takes more than one parameter", "take the model, or ctx.input")
        input_type, takes_model = options.input, (rest[0].name if rest else None)
    sole = rest[0].name if options.input is None and len(rest) == 1 else None
    output_type = hints.get("return", Any) if options.output is None else options.output
    output_type = type(None) if output_type is None else output_type
    if not options.repeatable and options.verify is None:
        points[OUTCOME_WAIT_POINT] = outcome_wait_point(output_type)
    return Tool(
        name=name,
        description=inspect.getdoc(function) or "" if options.description is None else options.description,
        input=Contract.of(input_type),
        output=Contract.of(output_type),
        wait_points=points,
        function=function,
        takes_context=context,
        takes_model=takes_model,
        options=options,
        single_parameter=sole,
    )


def _check_function(function: Callable[..., Any], where: str) -> None:
    """Refuse what cannot be called by the names of its parameters, or would do nothing when it is called."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise DefinitionError(where, f"a {type(function).__name__} is no function", "write a def that calls it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(where, "it is a generator, which does nothing when it is called", "return, do not yield")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise DefinitionError(
                where, f"parameter {parameter.name!r} has no name for a model", "use plain parameters"
            )


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
        raise DefinitionError(f"tool {name!r}", "its name is not legal", "use 1 to 64 letters, digits, _ or -")


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            where, f"an annotation cannot be resolved: {error}", "import the type at module level"
        ) from None


def _signature_model(
    name: str, parameters: Sequence[inspect.Parameter], hints: dict[str, Any], where: str
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name.startswith("_") or parameter.name == "model_config":
            raise DefinitionError(where, f"parameter {parameter.name!r} cannot be a field of a model", "rename it")
        if parameter.name not in hints:
            raise DefinitionError(where, f"parameter {parameter.name!r} has no type", "annotate it")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    try:
        return create_model(f"{name}_input", __base__=_SignatureModel, **fields)
    except Exception as error:  # pydantic has no common base for what it does not take
        problem = str(error).splitlines()[0]
        raise DefinitionError(
            where, f"its parameters make no model: {problem}", "use types that have a JSON form, or give input="
        ) from error
