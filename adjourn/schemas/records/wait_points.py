"""Wait points: named, typed contracts between a tool that stops and whoever answers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar, get_args

from adjourn.schemas.contracts.definition_checks import check_text
from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import AnswerPayloadError, DefinitionError, PayloadError
from adjourn.schemas.errors.base import shown
from adjourn.schemas.records.actions import OnTimeout

LONGEST_TIMEOUT: Final = timedelta(days=36_525)
"""A hundred years: every date that it leads to exists in Python and in Postgres."""

SuspendT = TypeVar("SuspendT")
ResumeT = TypeVar("ResumeT")


class Unset(Enum):
    """The type of an argument that was left out, where `None` may be a value."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class WaitPoint(Generic[SuspendT, ResumeT]):
    """A place where a tool may stop.

    `suspend` is the type of what is shown to whoever answers, `resume` the type of the answer.
    Unknown keys in an answer are refused unless the resume model allows extras. `timeout` counts
    from the suspend. `on_timeout` says what happens then: `"fail_run"` fails the run, `"error"` raises `Expired`, and
    `"default"` answers with `default`, a value of the resume type. With `default`, `on_timeout` may be left out.
    `answerers` are the identities that may
    answer; without them, whoever the channel lets in. An ask may say all four for itself. What is said here of a
    deadline holds for an ask that gives a `timeout` as well.

    `kind` is shown to clients with each action.

    `question` names the fields of the suspend data that make the question. An inline answer is given back only to
    the same question; fields that are not named may differ from pass to pass. By default all fields count.

    Raises `DefinitionError` if a type cannot make the round trip through JSON, and for an argument that could have no
    effect.
    """

    def __init__(
        self,
        name: str,
        *,
        suspend: type[SuspendT],
        resume: type[ResumeT],
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | Unset = UNSET,
        default: ResumeT | Unset = UNSET,
        kind: str | None = None,
        answerers: Sequence[str] | None = None,
        question: Sequence[str] | None = None,
    ) -> None:
        where = f"wait point {name!r}"
        if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
            raise DefinitionError(where, "its name is not legal", "use 1 to 64 letters, digits, _ or -")
        check_text(where, "kind", kind)
        if resume is None or resume is type(None):
            raise DefinitionError(where, "it has no resume schema", "give resume= the type of the answer")
        if suspend is None:
            raise DefinitionError(where, "it has no suspend schema", "give suspend= the type of what is asked")
        check_timeout(where, timeout)
        self.name = name
        self.suspend: Contract[SuspendT] = Contract.of(suspend)
        self.resume: Contract[ResumeT] = Contract.of(resume)
        self.timeout = timeout
        self.kind = kind
        self.answerers = checked_answerers(where, answerers)
        self.question = _question(where, question, self.suspend)
        self.on_timeout: OnTimeout
        self.default: Any
        self.on_timeout, self.default = _at_deadline(self.resume, on_timeout, default, where)

    def __repr__(self) -> str:
        return f"WaitPoint({self.name!r})"

    def with_terms(
        self, where: str, timeout: timedelta | None, on_timeout: Any, default: Any, answerers: Sequence[str] | None
    ) -> WaitPoint[SuspendT, ResumeT]:
        """This wait point for one ask, with what the ask says for itself. The rest stays as it was declared.

        Raises `DefinitionError` for a value that does not fit, and for an `on_timeout` or `default` without a timeout.
        """
        check_timeout(where, timeout)
        own = copy.copy(self)
        own.timeout = self.timeout if timeout is None else timeout
        own.answerers = self.answerers if answerers is None else checked_answerers(where, answerers)
        if on_timeout is not UNSET or default is not UNSET:
            if own.timeout is None:
                raise DefinitionError(where, "it says what happens at a deadline, and has none", "give it a timeout")
            keeps_default = self.on_timeout == "default" and default is UNSET and _is_word(on_timeout, "default")
            if not keeps_default:
                own.on_timeout, own.default = _at_deadline(self.resume, on_timeout, default, where)
        return own

    def question_in(self, payload: Any) -> Any:
        """The part of stored suspend data that makes the question."""
        if self.question is None or not isinstance(payload, dict):
            return payload
        return {name: payload[name] for name in self.question if name in payload}

    @property
    def parts(self) -> dict[str, Any]:
        """What a change of this wait point is told by: its schemas."""
        return {
            f"wait point {self.name} suspend": self.suspend.json_schema,
            f"wait point {self.name} resume": self.resume.json_schema,
        }


def _question(where: str, question: Sequence[str] | None, suspend: Contract[Any]) -> tuple[str, ...] | None:
    if question is None:
        return None
    if isinstance(question, str):
        raise DefinitionError(where, f"its question is {question!r}, one text", "give a list of names of fields")
    names = tuple(question)
    if not _may_be_object(suspend.json_schema, suspend.json_schema):
        problem = "it has a question, and its suspend data has no fields"
        raise DefinitionError(where, problem, "leave question= out: all of the data makes the question")
    fields = _fields(suspend.json_schema)
    if unknown := [name for name in names if not isinstance(name, str) or (fields is not None and name not in fields)]:
        problem = (
            f"its question names {unknown[0]!r}, and its suspend data has: {', '.join(fields or ()) or 'no fields'}"
        )
        raise DefinitionError(where, problem, "name fields of the suspend type, as they are written in JSON")
    if not names:
        raise DefinitionError(where, "its question names no field", "name one, or leave question= out")
    return names


def _fields(schema: Any) -> list[str] | None:
    """The names of the fields of an object; None for a type whose keys are not fixed."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return list(schema["properties"]) if "properties" in schema else None


def _may_be_object(schema: Any, root: Any) -> bool:
    """True if a value that fits the schema may be an object."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _may_be_object(root.get("$defs", {}).get(reference.rpartition("/")[2], {}), root)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return any(_may_be_object(each, root) for each in schema[union])
    if "enum" in schema or "const" in schema:
        return False
    return bool(schema.get("type", "object") == "object")


def check_timeout(where: str, timeout: timedelta | None) -> None:
    """Raise `DefinitionError` unless `timeout` is a span of time, or none. A point in time would need a zone."""
    if timeout is not None and not (isinstance(timeout, timedelta) and timedelta(0) < timeout <= LONGEST_TIMEOUT):
        remedy = f"give a timedelta above zero and up to {LONGEST_TIMEOUT.days} days, or none"
        raise DefinitionError(where, f"its timeout is {timeout!r}", remedy)


def checked_answerers(where: str, answerers: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return who may answer, each once it is known to be a text. Raises `DefinitionError`."""
    if answerers is None:
        return None
    if isinstance(answerers, str):
        raise DefinitionError(where, f"its answerers are {answerers!r}, one text", "give a list of who may answer")
    names = tuple(answerers)
    if not names:
        raise DefinitionError(
            where, "its answerers are an empty list, so nobody may answer", "name them, or leave it out"
        )
    if other := [each for each in names if not isinstance(each, str)]:
        raise DefinitionError(
            where, f"{other[0]!r} among its answerers is not text", "give the names of who may answer"
        )
    return names


def _at_deadline(contract: Contract[Any], on_timeout: Any, default: Any, where: str) -> tuple[OnTimeout, Any]:
    """What happens at the deadline, and the default answer as JSON."""
    if on_timeout is not UNSET and not any(_is_word(on_timeout, word) for word in get_args(OnTimeout)):
        problem = f"its on_timeout is {shown(on_timeout)}"
        raise DefinitionError(
            where, problem, "give 'fail_run', 'error' or 'default'; a default answer goes to default="
        )
    if default is not UNSET:
        if on_timeout is not UNSET and on_timeout != "default":
            raise DefinitionError(where, f"it has a default and on_timeout={on_timeout!r}", "give one of the two")
        return "default", _default(contract, default, where)
    if on_timeout is UNSET:
        return "fail_run", None
    if on_timeout == "default":
        raise DefinitionError(where, "on_timeout is 'default', and it has no default", "give default= the answer")
    return on_timeout, None


def _is_word(on_timeout: Any, word: str) -> bool:
    """Compare as text: a value of the resume type may compare itself in its own way."""
    return isinstance(on_timeout, str) and on_timeout == word


def _default(contract: Contract[Any], value: Any, where: str) -> Any:
    try:
        return contract.dump_set(value, where, AnswerPayloadError)
    except PayloadError as error:
        raise DefinitionError(
            where, f"its default answer does not fit: {error}", "give a value of the resume type"
        ) from None
