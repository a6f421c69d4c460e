"""Contracts: a Python type as what goes over the wire, and back.

Owns validation of answers and inputs, the proof that a value survives JSON, and the check at
definition time that a type can. A value is read in one way everywhere (`adjourn.schemas.wire`):

- JSON types are exact. `"yes"` is no bool, 3 no text, `true`, `"3"` and `3.0` no integer; an
  integer is a number. `false`, `0`, `""`, `[]` and `null` are values; missing is not null.
- Dates, times, durations, UUIDs, decimals and enums are their ISO or plain text (a decimal also a
  number), bytes are base64.
- Unknown keys are refused at every level, unless a model says `extra="allow"`.
- A key has one name: its alias where there is one. Only our own stored JSON is also read by name.
- A set that names the same item twice is refused.
- A model's validators run, its own `__init__` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar, cast, overload

from pydantic import ValidationError
from pydantic_core import CoreConfig, SchemaError, SchemaSerializer, SchemaValidator

from adjourn.schemas.errors import (
    AnswerPayloadError,
    MalformedJsonError,
    PayloadError,
    RoundTripError,
    ToolInputError,
    ValidationIssue,
)
from adjourn.schemas.fingerprints import changes, fingerprint
from adjourn.schemas.issues import bounded, shorten
from adjourn.schemas.json_schema import json_schema
from adjourn.schemas.pinned import validate_pinned
from adjourn.schemas.round_trip import difference
from adjourn.schemas.strict_json import MAX_DEPTH, JsonValue, check, clean, clean_strings, copied, short_pointer
from adjourn.schemas.wire import MARK, no_json_form, wire_schema

__all__ = ["Contract", "JsonValue", "changes", "ensure_round_trip", "fingerprint", "validate_pinned"]

T = TypeVar("T")

_CACHED_TYPES = 2048
_WRITTEN_AS_THEY_ARE: CoreConfig = {"ser_json_inf_nan": "constants"}
"""NaN and infinities, which pydantic would write as null in some places: here they are refused, or replaced."""


class Contract(Generic[T]):
    """One type: a model, dataclass, typed dict, builtin, generic or union.

    `type` is the type, `json_schema` the JSON Schema (draft 2020-12) of what is read, `output_schema`
    of what is written. Raises `DefinitionError`, naming the field, for a type without a JSON form.
    Immutable, and safe to share between threads. What is read shares nothing that can be changed with the
    JSON that it was read from: that is the log's, or a sibling's, and a body may do with its own as it likes.
    """

    def __init__(self, type_: Any) -> None:
        self.type = type_
        wire, paths = wire_schema(type_)
        self.json_schema: dict[str, JsonValue] = json_schema(type_, wire, paths)
        self.output_schema: dict[str, JsonValue] = json_schema(type_, wire, paths, written=True)
        core: Any = wire
        try:
            # Validators that models carry ready-made follow the models' own rules: not ours.
            self._validator = SchemaValidator(core, _use_prebuilt=False)
            self._serializer = SchemaSerializer(core, _WRITTEN_AS_THEY_ARE, _use_prebuilt=False)
        except SchemaError as error:
            raise no_json_form(type_, "", f"pydantic cannot build it ({str(error).splitlines()[0]})") from error

    def __repr__(self) -> str:
        return f"Contract({self.type!r})"

    @overload
    @staticmethod
    def of(type_: type[T]) -> Contract[T]: ...
    @overload
    @staticmethod
    def of(type_: Any) -> Contract[Any]: ...
    @staticmethod
    def of(type_: Any) -> Contract[Any]:
        """The contract of a type, made once. Raises `DefinitionError` as the constructor does."""
        try:
            # With its text, because `int | str == str | int`, and their schemas are not the same.
            return _contract(type_, repr(type_))
        except TypeError:  # unhashable metadata
            return Contract(type_)

    def validate_answer(self, data: JsonValue, where: str) -> T:
        """The typed value of an answer. Raises `AnswerPayloadError` with a JSON pointer for every issue."""
        return self._read(copied(data), where, AnswerPayloadError)

    def validate_input(self, args: JsonValue, where: str) -> T:
        """The typed arguments of a tool call. Raises `ToolInputError`.

        As strict as an answer, though models err: a refused call goes back to the model with what
        was wrong, and a guess at what it meant would run a tool with what nobody said.
        """
        return self._read(copied(args), where, ToolInputError)

    def load(self, data: JsonValue, where: str = "a stored value") -> T:
        """A value from JSON that `dump` wrote. Raises `RoundTripError` if the code no longer reads it."""
        return self._read(copied(data), where, RoundTripError, by_name=True)

    def dump(self, value: T, where: str, error: type[PayloadError]) -> JsonValue:
        """The JSON form of a value, proven to come back equal and of the same classes.

        A plain dict may stand for a model. NUL and lone surrogates in text are replaced as `clean`
        does; NaN and infinities do not come back. Raises `error` if the value is not of the type,
        `RoundTripError` if it is but would not come back, each naming the path.
        """
        held = self._read(clean_strings(value), where, error, by_name=True)
        wire = clean_strings(self._written(held, where, error))
        try:
            check(wire, max_depth=MAX_DEPTH)
        except MalformedJsonError as problem:
            self._blame(held, where, error, [ValidationIssue(problem.path, problem.reason)])
        self._prove(held, wire, where, error)
        return cast(JsonValue, wire)

    def dump_repaired(self, value: T, where: str, error: type[PayloadError]) -> JsonValue:
        """`dump` for what a tool says to its model: what its type allows and JSON does not is replaced as `clean` does.

        All else has to come back as `dump` says, and raises what `dump` raises.
        """
        held = self._read(clean_strings(value, cut=True), where, error, by_name=True)
        wire = clean_strings(self._written(held, where, error), cut=True)
        self._prove(held, wire, where, error)
        return clean(wire)

    def _written(self, held: T, where: str, error: type[PayloadError]) -> Any:
        try:
            return self._serializer.to_python(held, mode="json", by_alias=True, round_trip=True, warnings=False)
        except Exception as problem:
            self._blame(held, where, error, [ValidationIssue("", shorten(f"cannot be written as JSON: {problem}"))])

    def _prove(self, held: T, wire: Any, where: str, error: type[PayloadError]) -> None:
        """That `wire` comes back as `held`."""
        try:
            back = self._read(wire, where, RoundTripError, by_name=True)
        except RoundTripError as problem:
            self._blame(held, where, error, problem.issues)
        if (found := difference(held, back)) is not None:
            path, what = found
            raise RoundTripError(where, [ValidationIssue(short_pointer(path), what)])

    def _blame(self, held: T, where: str, error: type[PayloadError], issues: Any) -> NoReturn:
        """Raise `error` if an instance, trusted so far, breaks its own type; else it is the round trip."""
        wire, _ = wire_schema(self.type, revalidate=True)
        core: Any = wire
        strict = SchemaValidator(core, _use_prebuilt=False)
        _validated(lambda: strict.validate_python(held, by_alias=True, by_name=True), where, error)
        raise RoundTripError(where, issues)

    def _read(self, data: Any, where: str, error: type[PayloadError], *, by_name: bool = False) -> T:
        validate = self._validator.validate_python
        return cast(T, _validated(lambda: validate(data, by_alias=True, by_name=by_name), where, error))


def ensure_round_trip(type_: Any) -> None:
    """Raise `DefinitionError`, naming the field, if values of `type_` have no JSON form."""
    Contract.of(type_)


@lru_cache(maxsize=_CACHED_TYPES)
def _contract(type_: Any, _text: str) -> Contract[Any]:
    return Contract(type_)


def _validated(validate: Callable[[], Any], where: str, error: type[PayloadError]) -> Any:
    try:
        return validate()
    except ValidationError as invalid:
        issues = _issues(invalid)
    except Exception as problem:  # a default factory, a __post_init__: whatever it is, it is not the worker's end
        issues = [ValidationIssue("", f"a validator failed ({type(problem).__name__})")]
    # Outside the handlers: the pydantic error holds the whole input and must not travel along.
    raise error(where, issues)


def _issues(invalid: ValidationError) -> list[ValidationIssue]:
    found = invalid.errors(include_url=False, include_context=False, include_input=False)
    # Of a type that is read as an instance or from its wire form, an outsider can only meet the second.
    told = [each for each in found if each["type"] != "is_instance_of"] or found
    return bounded(ValidationIssue(_pointer(each["loc"]), _message(each)) for each in told)


def _pointer(location: tuple[int | str, ...]) -> str:
    path = [part for part in location if not (isinstance(part, str) and part.startswith(MARK))]
    if path and path[-1] == "[key]":
        path.pop()
    return short_pointer(path)


def _message(error: Any) -> str:
    return _TOLD.get(error["type"]) or shorten(error["msg"])


# Where pydantic speaks of Python to somebody who sent JSON.
_TOLD = {
    "extra_forbidden": "unknown key",
    "unexpected_keyword_argument": "unknown key",
    **dict.fromkeys(("model_type", "dataclass_type", "dict_type"), "Input should be an object"),
}
