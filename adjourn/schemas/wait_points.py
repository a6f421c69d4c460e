"""Wait points: named, typed contracts between a tool that stops and whoever answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypeVar

from adjourn.schemas.actions import OnTimeout
from adjourn.schemas.errors import AnswerPayloadError, DefinitionError, PayloadError
from adjourn.schemas.tool_names import LEGAL_NAME
from adjourn.schemas.values import Contract

LONGEST_TIMEOUT: Final = timedelta(days=36_525)
"""A hundred years: every date that it leads to exists in Python and in Postgres."""

SuspendT = TypeVar("SuspendT")
ResumeT = TypeVar("ResumeT")


class WaitPoint(Generic[SuspendT, ResumeT]):
    """A place where a tool may stop.

    `suspend` is the type of what is shown to whoever answers, `resume` the type of the answer.
    Unknown keys in an answer are refused unless the resume model allows extras. `timeout` counts
    from the suspend; `on_timeout` is `"fail_run"`, `"error"` (raised or told as *expired*), or a
    value of the resume type, which then is the answer. `answerers` are the identities that may
    answer; without them, whoever the channel lets in.

    Raises `DefinitionError` if a type cannot make the round trip through JSON.
    """

    def __init__(
        self,
        name: str,
        *,
        suspend: type[SuspendT],
        resume: type[ResumeT],
        timeout: timedelta | None = None,
        on_timeout: Literal["fail_run", "error"] | ResumeT = "fail_run",
        kind: str | None = None,
        answerers: Sequence[str] | None = None,
        callback: str | None = None,
    ) -> None:
        where = f"wait point {name!r}"
        if not LEGAL_NAME.fullmatch(name):
            raise DefinitionError(where, "its name is not legal", "use 1 to 64 letters, digits, _ or -")
        if resume is None or resume is type(None):
            raise DefinitionError(where, "it has no resume schema", "give resume= the type of the answer")
        if suspend is None:
            raise DefinitionError(where, "it has no suspend schema", "give suspend= the type of what is asked")
        check_timeout(where, timeout)
        if isinstance(answerers, str):
            raise DefinitionError(where, f"its answerers are {answerers!r}, one text", "give a list of who may answer")
        self.name = name
        self.suspend: Contract[SuspendT] = Contract.of(suspend)
        self.resume: Contract[ResumeT] = Contract.of(resume)
        self.timeout = timeout
        self.kind = kind
        self.answerers = None if answerers is None else tuple(answerers)
        self.callback = callback
        self.on_timeout: OnTimeout
        self.default: Any = None
        if on_timeout == "fail_run" or on_timeout == "error":
            self.on_timeout = on_timeout
        else:
            self.on_timeout = "default"
            self.default = _default(self.resume, on_timeout, where)

    def __repr__(self) -> str:
        return f"WaitPoint({self.name!r})"

    @property
    def parts(self) -> dict[str, Any]:
        """What a change of this wait point is told by: its schemas."""
        return {
            f"wait point {self.name} suspend": self.suspend.json_schema,
            f"wait point {self.name} resume": self.resume.json_schema,
        }


def check_timeout(where: str, timeout: timedelta | None) -> None:
    """Raise `DefinitionError` unless `timeout` is a span of time, or none. A point in time would need a zone."""
    if timeout is not None and not (isinstance(timeout, timedelta) and timedelta(0) < timeout <= LONGEST_TIMEOUT):
        remedy = f"give a timedelta above zero and up to {LONGEST_TIMEOUT.days} days, or none"
        raise DefinitionError(where, f"its timeout is {timeout!r}", remedy)


def _default(contract: Contract[Any], value: Any, where: str) -> Any:
    try:
        return contract.dump_set(value, where, AnswerPayloadError)
    except PayloadError as error:
        raise DefinitionError(
            where, f"its default answer does not fit: {error}", "give a value of the resume type"
        ) from None
