"""The options of a tool: each is declared here once, with its type, its default and what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, get_args

from adjourn.schemas.contracts.definition_checks import check_count, check_flag, check_function, check_text, names_of
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.wait_points import WaitPoint, check_timeout
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT
from adjourn.tasks.blocks.policies import APPROVAL_WAIT_POINT
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.context.facade import Context

ReenterOn = Literal["cancelled", "failed", "expired"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOptions:
    """What `@tool(...)` takes. All options may be left out."""

    name: str | None = None
    """What the model calls the tool. By default the name of the function."""
    description: str | None = None
    """What the model reads about the tool. By default the docstring of the function."""
    input: type | None = None
    """The type of the input. By default it is made from the signature. With `input=Model` the function takes the model
    as its one parameter besides the context, or only the context (`ctx.input`)."""
    output: Any = None
    """The type of the output. By default the return annotation."""
    wait_points: Sequence[WaitPoint[Any, Any]] = ()
    """Where the tool may stop."""
    version: str = "1"
    """A text that you change when waiting calls must not resume in the new code."""
    resumes_from: Sequence[str] = ()
    """Earlier versions whose open waits this version takes over."""
    cacheable: bool = False
    """Reuse a result for equal input within the thread. A cacheable tool cannot have wait points."""
    exclusive: bool = False
    """Never run beside another call."""
    retries: int = 0
    """How often the body is tried again after an exception, before the model reads it. A suspend is not counted."""
    timeout: timedelta | None = None
    """How long one pass of the body may run. Waiting is not counted."""
    reenter_on: Sequence[ReenterOn] = ()
    """Which refusals re-enter an entry-style body as a `RefusedEntry`, instead of closing the call."""
    repeatable: bool = True
    """False if the body must not run again after a worker died inside it. Then, without `verify`, an operator is asked
    by a pending action `tool.outcome`."""
    verify: Callable[[Context], Any] | None = None
    """Called, sync or async, after a worker died inside the body. It returns `Recovered(output)` if the work was done,
    or None to run the body again."""
    resolver: Resolver | None = None
    """A function in this process that may answer the waits of the tool."""
    own_process: bool = False
    """Run each pass of the body in a new process. It is killed, with all that it started, when the run is cancelled or
    the `timeout` is over."""

    def check(self, where: str) -> None:
        """Raise `DefinitionError` for an option of the wrong type, and for options that cannot work together."""
        check_text(where, "description", self.description)
        check_versions(where, self.version, self.resumes_from)
        for flag in ("cacheable", "exclusive", "repeatable", "own_process"):
            check_flag(where, flag, getattr(self, flag))
        check_count(where, "retries", self.retries)
        check_timeout(where, self.timeout)
        names_of(where, "reenter_on", self.reenter_on, get_args(ReenterOn))
        check_function(where, "verify", self.verify)
        check_function(where, "resolver", self.resolver)
        points = wait_points_by_name(self.wait_points, where)
        if self.cacheable and points:
            raise DefinitionError(
                where, "it is cacheable and has wait points", "a cached result would skip the wait; drop one"
            )
        if OUTCOME_WAIT_POINT in points and not self.repeatable:
            raise DefinitionError(
                where, f"{OUTCOME_WAIT_POINT!r} is where an operator is asked", "rename the wait point"
            )
        if self.retries and not self.repeatable:
            raise DefinitionError(where, "it is not repeatable and has retries", "drop one")


OPTION_NAMES: Final = tuple(each.name for each in fields(ToolOptions))


def check_versions(where: str, version: object, resumes_from: Any) -> None:
    """Raise `DefinitionError` unless both are text, and a list of texts."""
    if not isinstance(version, str):
        raise DefinitionError(where, f"its version is {version!r}, which is not text", "give text, as version='2'")
    names_of(where, "resumes_from", resumes_from)


def wait_points_by_name(points: Sequence[WaitPoint[Any, Any]], where: str) -> dict[str, WaitPoint[Any, Any]]:
    """Return the wait points by name. Raises `DefinitionError` for names that clash."""
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
