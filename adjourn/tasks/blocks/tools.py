"""Tools: what a model may call. This module turns functions into contracts; it runs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Generic, Literal, Never, ParamSpec, TypeVar, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, create_model

from adjourn.schemas.contracts.definition_checks import check_count, check_flag, check_function, check_text, names_of
from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.contracts.values import Contract, fingerprint
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.entries import Resume
from adjourn.schemas.records.messages import ToolSpec
from adjourn.schemas.records.wait_points import UNSET, WaitPoint, check_timeout
from adjourn.schemas.strict_json import JsonValue
from adjourn.tasks.blocks.block import Block, refuse_options
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT, outcome_wait_point
from adjourn.tasks.blocks.policies import APPROVAL_WAIT_POINT
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.context.facade import Context

P = ParamSpec("P")
R = TypeVar("R")

CLIENT_WAIT_POINT = "result"
"""The wait point of a client tool: its pending action is `tool.result`."""

Refusal = Literal["cancelled", "failed", "expired"]


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
    version: str
    function: Callable[P, R]
    takes_context: str | None
    """The name of the context parameter, if it has one."""
    takes_model: str | None
    """The name of the parameter that takes the whole input model; otherwise fields go as keywords."""
    cacheable: bool = False
    exclusive: bool = False
    retries: int = 0
    timeout: timedelta | None = None
    reenter_on: frozenset[str] = frozenset()
    resumes_from: frozenset[str] = frozenset()
    repeatable: bool = True
    verify: Callable[[Context], Any] | None = None
    resolver: Resolver | None = None
    own_process: bool = False
    sole: str | None = None
    """The name of its parameter, where it takes one besides the context: what a step before came to is that one's."""
    fingerprint: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        parts: dict[str, Any] = {"input": self.input.json_schema, "output": self.output.json_schema}
        for point in self.wait_points.values():
            parts.update(point.parts)
        object.__setattr__(self, "fingerprint", {**fingerprint(parts), "version": self.version})

    @property
    def marks_start(self) -> bool:
        """Whether each pass is written down before it begins, so that one that died can be told."""
        return not self.repeatable or self.verify is not None

    @property
    def takes(self) -> Contract[Any]:
        """Of what it is handed as a step: all of its input, or the value of its one parameter."""
        return self.input if self.sole is None else Contract.of(self.input.type.model_fields[self.sole].annotation)

    def handed(self, value: JsonValue) -> JsonValue:
        """What it is called with as a step."""
        return super().handed(value) if self.sole is None else {self.sole: value}

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


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    input: type | None = None,
    output: Any = None,
    wait_points: Sequence[WaitPoint[Any, Any]] = (),
    version: str = "1",
    cacheable: bool = False,
    exclusive: bool = False,
    retries: int = 0,
    timeout: timedelta | None = None,
    reenter_on: Sequence[Refusal] = (),
    resumes_from: Sequence[str] = (),
    repeatable: bool = True,
    verify: Callable[[Context], Any] | None = None,
    resolver: Resolver | None = None,
    own_process: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, sync or async.

    The input schema comes from the signature, the output schema from the return annotation;
    `input` and `output` override them. With `input=Model` the function takes the model as its
    one parameter besides the context, or only the context (`ctx.input`).

    `wait_points` lists where it may stop. `cacheable` reuses a result for equal input within the
    thread and cannot go with wait points. `exclusive` never runs beside another call. `retries`
    is how often an exception is tried again before the model reads it; a suspend is none.
    `timeout` limits one pass of the body, never the waiting. `reenter_on` names the refusals
    (`cancelled`, `failed`, `expired`) that re-enter an entry-style body as a `RefusedEntry`
    instead of closing the call. `resumes_from` lists earlier `version`s whose open waits this
    version can take over. `resolver` may answer its waits in process (see `Resolver`).
    `own_process` runs each pass of the body in a new process, which is killed, with all that it started, when the
    run is cancelled or the `timeout` is over.

    A worker that dies inside a body leaves it open whether the body did its work. By default it
    runs again. With `verify`, sync or async, that is asked first: it returns `Done(output)`, or
    None for *run it again*. With `repeatable=False` (and no `verify`) it is never run again: an
    operator is asked, by a pending action `tool.outcome`.

    Raises `DefinitionError` for what cannot work.
    """
    unknown = {name: value for name, value in options.items() if name not in _OPTIONS}
    refuse_options("tool", unknown, f"the options of a tool are: {', '.join(_OPTIONS)}")
    if function is not None:
        return _make(function, **options)
    return lambda function: _make(function, **options)


tool = tool
"""A handler is a tool that no model has to call: the same function with a context, as a step or on its own."""


def client_tool(
    name: str,
    *,
    description: str,
    input: type,
    output: Any,
    version: str = "1",
    timeout: timedelta | None = None,
    on_timeout: Any = UNSET,
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
    _check_versions(where, version, resumes_from)
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
        version=version,
        function=body,
        takes_context="ctx",
        takes_model=None,
        resumes_from=frozenset(resumes_from),
    )


def _make(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input: type | None = None,
    output: Any = None,
    wait_points: Sequence[WaitPoint[Any, Any]] = (),
    version: str = "1",
    cacheable: bool = False,
    exclusive: bool = False,
    retries: int = 0,
    timeout: timedelta | None = None,
    reenter_on: Sequence[Refusal] = (),
    resumes_from: Sequence[str] = (),
    repeatable: bool = True,
    verify: Callable[[Context], Any] | None = None,
    resolver: Resolver | None = None,
    own_process: bool = False,
) -> Tool[..., Any]:
    name = name or str(getattr(function, "__name__", type(function).__name__))
    where = f"tool {name!r}"
    _check_function(function, where)
    _check_name(name)
    points = _by_name(wait_points, where)
    if cacheable and points:
        raise DefinitionError(
            where, "it is cacheable and has wait points", "a cached result would skip the wait; drop one"
        )
    flags = {"cacheable": cacheable, "exclusive": exclusive, "repeatable": repeatable, "own_process": own_process}
    _check_options(where, description=description, flags=flags, retries=retries, timeout=timeout)
    _check_versions(where, version, resumes_from)
    check_function(where, "verify", verify)
    check_function(where, "resolver", resolver)
    refusals = names_of(where, "reenter_on", reenter_on, get_args(Refusal))
    if OUTCOME_WAIT_POINT in points and not repeatable:
        raise DefinitionError(where, f"{OUTCOME_WAIT_POINT!r} is where an operator is asked", "rename the wait point")
    if retries and not repeatable:
        raise DefinitionError(where, "it is not repeatable and has retries", "drop one")
    hints = _hints(function, where)
    parameters = list(inspect.signature(function).parameters.values())
    context = next((p.name for p in parameters if hints.get(p.name) is Context or p.name == "ctx"), None)
    rest = [p for p in parameters if p.name != context]
    if input is None:
        input_type, takes_model = _signature_model(name, rest, hints, where), None
    else:
        if len(rest) > 1:
            raise DefinitionError(where, "with input= it takes more than one parameter", "take the model, or ctx.input")
        input_type, takes_model = input, (rest[0].name if rest else None)
    sole = rest[0].name if input is None and len(rest) == 1 else None
    output_type = hints.get("return", Any) if output is None else output
    output_type = type(None) if output_type is None else output_type
    if not repeatable and verify is None:
        points[OUTCOME_WAIT_POINT] = outcome_wait_point(output_type)
    return Tool(
        name=name,
        description=inspect.getdoc(function) or "" if description is None else description,
        input=Contract.of(input_type),
        output=Contract.of(output_type),
        wait_points=points,
        version=version,
        function=function,
        takes_context=context,
        takes_model=takes_model,
        cacheable=cacheable,
        exclusive=exclusive,
        retries=retries,
        timeout=timeout,
        reenter_on=frozenset(refusals),
        resumes_from=frozenset(resumes_from),
        repeatable=repeatable,
        verify=verify,
        resolver=resolver,
        own_process=own_process,
        sole=sole,
    )


_OPTIONS: Final = tuple(inspect.signature(_make).parameters)[1:]


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


def _check_options(where: str, *, description: object, flags: Mapping[str, object], retries: int, timeout: Any) -> None:
    check_text(where, "description", description)
    for what, given in flags.items():
        check_flag(where, what, given)
    check_count(where, "retries", retries)
    check_timeout(where, timeout)


def _check_versions(where: str, version: object, resumes_from: Any) -> None:
    if not isinstance(version, str):
        raise DefinitionError(where, f"its version is {version!r}, which is not text", "give text, as version='2'")
    names_of(where, "resumes_from", resumes_from)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
        raise DefinitionError(f"tool {name!r}", "its name is not legal", "use 1 to 64 letters, digits, _ or -")


def _by_name(points: Sequence[WaitPoint[Any, Any]], where: str) -> dict[str, WaitPoint[Any, Any]]:
    named: dict[str, WaitPoint[Any, Any]] = {}
    if isinstance(points, WaitPoint):
        raise DefinitionError(where, "wait_points is a wait point, which is not a list", "give wait_points=[...]")
    for point in points:
        if not isinstance(point, WaitPoint):
            raise DefinitionError(
                where, f"{point!r} is no wait point", "make one with WaitPoint(name, suspend=, resume=)"
            )
        if point.name == APPROVAL_WAIT_POINT or (point.name == point.kind == OUTCOME_WAIT_POINT):
            raise DefinitionError(where, f"{point.name!r} is where others are asked about its calls", "rename it")
        if point.name in named:
            raise DefinitionError(where, f"it has two wait points named {point.name!r}", "rename one")
        named[point.name] = point
    return named


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
