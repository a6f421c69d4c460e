"""Contracts: a Python type as what goes over the wire, and back.

Owns validation of answers and inputs, the proof that a value survives JSON, and the check at
definition time that a type can. A value is read in one way everywhere (`adjourn.schemas.contracts.rewriting.wire`):

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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any, Generic, NoReturn, TypeVar, cast, overload

from pydantic import ValidationError
from pydantic_core import CoreConfig, SchemaError, SchemaSerializer, SchemaValidator

from adjourn.schemas.contracts.compatible import incompatibilities
from adjourn.schemas.contracts.distinct_keys import no_form
from adjourn.schemas.contracts.fingerprints import changes, fingerprint
from adjourn.schemas.contracts.issues import bounded, shorten
from adjourn.schemas.contracts.outputs import plain
from adjourn.schemas.contracts.pinned import validate_pinned
from adjourn.schemas.contracts.rewriting.json_schema import json_schema
from adjourn.schemas.contracts.rewriting.schema_decides import schema_decides
from adjourn.schemas.contracts.rewriting.tags import MARK
from adjourn.schemas.contracts.rewriting.wire import Reading, no_json_form, wire_schema
from adjourn.schemas.contracts.round_trip import changed, difference, parts_of, place_of, shrunk, unwritten
from adjourn.schemas.contracts.unset import Path, blamed, filled, gaps, without
from adjourn.schemas.errors import (
    AnswerPayloadError,
    MalformedJsonError,
    PayloadError,
    RoundTripError,
    ToolInputError,
    ValidationIssue,
)
from adjourn.schemas.interrupts import ensure_not_interrupted
from adjourn.schemas.strict_json import MAX_DEPTH, JsonValue, check, clean, clean_strings, copied, short_pointer

__all__ = ["Contract", "JsonValue", "changes", "ensure_round_trip", "fingerprint", "validate_pinned"]

T = TypeVar("T")

_CACHED_TYPES = 2048
_WRITTEN_AS_THEY_ARE: CoreConfig = {"ser_json_inf_nan": "constants"}
"""NaN and infinities, which pydantic would write as null in some places: here they are refused, or replaced."""


_WAY_OF_WRITING: Any = {"mode": "json", "by_alias": True, "round_trip": True, "warnings": False}
_UNWRITABLE = "\x00unwritable"
"""Stands for a part that cannot be written, while its path is looked for. No text of a value holds a NUL by then."""


class Contract(Generic[T]):
    """One type: a model, dataclass, typed dict, builtin, generic or union.

    `type` is the type, `json_schema` the JSON Schema (draft 2020-12) of what is read, `output_schema`
    of what is written. Raises `DefinitionError`, naming the field, for a type without a JSON form.
    Immutable, and safe to share between threads. What is read shares nothing that can be changed with the
    JSON that it was read from: that is the log's, or a sibling's, and a body may do with its own as it likes.
    """

    def __init__(self, type_: Any) -> None:
        self.type = type_
        wire = wire_schema(type_)
        self.json_schema: dict[str, JsonValue] = json_schema(type_, wire.schema, wire.paths)
        self.output_schema: dict[str, JsonValue] = json_schema(type_, wire.schema, wire.paths, written=True)
        self.makes_values = wire.makes_values
        """True if a field has a default that a function makes: each reading of the same JSON may give another value."""
        self._has_unions = wire.has_unions
        self._reads_clock = wire.reads_clock
        self._writes_apart = wire.writes_apart
        core: Any = wire.schema
        try:
            # Validators that models carry ready-made follow the models' own rules: not ours.
            self._validator = SchemaValidator(core, _use_prebuilt=False)
            self._serializer = SchemaSerializer(core, _WRITTEN_AS_THEY_ARE, _use_prebuilt=False)
        except SchemaError as error:
            raise no_json_form(type_, "", f"pydantic cannot build it ({str(error).splitlines()[0]})") from error
        self._variants: dict[str, SchemaValidator] = {}

    def __repr__(self) -> str:
        return f"Contract({self.type!r})"

    @cached_property
    def schema_decides(self) -> bool:
        """True if whatever fits `json_schema` fits the type: no code of the type's own has to be asked."""
        return schema_decides(self.type)

    def reads(self, pinned: dict[str, JsonValue]) -> bool:
        """True if `pinned` is the JSON Schema of this contract, as far as an answer can tell (see `fingerprint`)."""
        own = self.json_schema
        return own == pinned or fingerprint({"": own}) == fingerprint({"": pinned})

    def reads_all(self, pinned: dict[str, JsonValue]) -> bool:
        """True if this type reads every value that fits `pinned`, with the same meaning, as far as schemas tell."""
        return not incompatibilities(pinned, self.json_schema)

    def is_stable(self, data: JsonValue) -> bool:
        """True if `data` is read as the same value each time. Raises `RoundTripError`.

        A function that makes a default may return another value on every pass.
        """
        return not self.makes_values or difference(self.load(data), self.load(data)) is None

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
        with _named(where, AnswerPayloadError):
            return self._read(copied(data))

    def validate_input(self, args: JsonValue, where: str) -> T:
        """The typed arguments of a tool call. Raises `ToolInputError`.

        As strict as an answer, though models err: a refused call goes back to the model with what
        was wrong, and a guess at what it meant would run a tool with what nobody said.
        """
        with _named(where, ToolInputError):
            return self._read(copied(args))

    def filled(self, data: JsonValue, where: str) -> tuple[JsonValue, tuple[str, ...]]:
        """The input `data` with its defaults, as a body gets it, and the names of the fields that cannot be shown.

        A default cannot be shown if its type does not read back what it writes: it stays out. The same holds for a
        default inside a field; the field is then as it was given. Raises `ToolInputError`.
        """
        held = self.validate_input(data, where)
        try:
            wire = clean_strings(self._written(held))
            self._prove(held, wire)
            if not unwritten(held, wire):
                return cast(JsonValue, wire), ()
        except _Unfit:
            pass
        return self._filled_in_part(held, data)

    def _filled_in_part(self, held: T, given: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
        """As `filled`, field by field."""
        if not isinstance(given, dict):
            return given, ("input",) if isinstance(given, list) else ()
        shown, hidden = dict(given), list[str]()
        for name, part in parts_of(held):
            alone = self._field_alone(held, name)
            key = next(iter(alone), name)
            if alone and not self._faults(held, {**shown, **alone}):
                shown.update(alone)
                whole = not unwritten(part, alone[key])
            else:
                whole = key in given and not isinstance(given[key], dict | list)
            if not whole:
                hidden.append(str(name))
        return shown, tuple(hidden)

    def _field_alone(self, held: T, name: str) -> dict[str, Any]:
        """One field of a value as it is written; nothing if it cannot be."""
        try:
            written = clean_strings(self._serializer.to_python(held, **_WAY_OF_WRITING, include={name}))
            return written if isinstance(written, dict) and len(written) == 1 else {}
        except BaseException as problem:  # a serializer of the user's own
            ensure_not_interrupted(problem)
            return {}

    def load(self, data: JsonValue, where: str = "a stored value") -> T:
        """A value from JSON that was accepted or written before. Raises `RoundTripError` if the code cannot read it.

        Dates are not compared with the clock again.
        """
        validate = (self._variant("stored") if self._reads_clock else self._validator).validate_python
        own = copied(data)
        with _named(where, RoundTripError):
            return cast(T, _validated(lambda: validate(own, by_alias=True, by_name=True)))

    def canonical(self, data: JsonValue, where: str) -> tuple[T, JsonValue]:
        """Validate an answer; return its typed value and the JSON to store, which is read as that value ever after.

        Defaults that a function makes are filled in. Other fields that the answer left out stay out.
        Raises `AnswerPayloadError`.
        """
        value = self.validate_answer(data, where)
        return value, (self._completed(value, copied(data)) if self.makes_values else copied(data))

    def dump(self, value: T, where: str, error: type[PayloadError]) -> JsonValue:
        """The full JSON form of a value, proven to come back equal and of the same classes.

        A plain dict may stand for a model. NUL and lone surrogates in text are replaced as `clean`
        does; NaN and infinities do not come back. Raises `error` if the value is not of the type,
        `RoundTripError` if it is but would not come back, each naming the path.
        """
        with _named(where, error):
            return self._proven(value)[1]

    def dump_unset(self, value: T, where: str, error: type[PayloadError]) -> tuple[JsonValue, tuple[Path, ...]]:
        """What `dump` returns, and the paths of the fields in it that nobody set.

        Without these (`unset.without`) it is read as the same value, its `model_fields_set` included. A field that
        nobody set and that would not come back if it were left out (a tag, a default that a function makes, a
        default that was changed in place) is not among the paths.
        """
        with _named(where, error):
            held, full = self._proven(value)
            return full, tuple(self._unset(held, full))

    def dump_again(self, value: T) -> JsonValue | None:
        """The JSON of a value that was dumped before, to compare with what was stored then. None if it has none.

        Dates are not compared with the clock again, and validators of an instance do not run.
        """
        try:
            given = clean_strings(value)
            held = self._variant("stored").validate_python(given, by_alias=True, by_name=True)
            return cast(JsonValue, clean_strings(self._serializer.to_python(held, **_WAY_OF_WRITING)))
        except BaseException as problem:  # as in _validated: the value may have any type, and the code is the user's
            ensure_not_interrupted(problem)
            return None

    def dump_set(self, value: T, where: str, error: type[PayloadError]) -> JsonValue:
        """`dump` without the fields that nobody set, so that unset and null stay apart."""
        full, paths = self.dump_unset(value, where, error)
        return cast(JsonValue, without(full, paths))

    def write(self, value: T, where: str, error: type[PayloadError]) -> JsonValue:
        """The JSON of what a tool returned. It is written, not proven: the work is done, and nobody reads it back.

        What its type allows and JSON does not is replaced as `clean` does, and a part without a JSON form as
        `distinct_keys` says. Raises `error` if the value is not of the type.
        """
        given = clean_strings(value, cut=True)
        with _named(where, error):
            held = self._returned(given)
            if held is not given and (lost := shrunk(given, held)) is not None:
                raise _Unfit([ValidationIssue(short_pointer(lost[0]), lost[1])])
        try:
            written = self._writer.to_python(held, **_WAY_OF_WRITING, fallback=no_form)
        except BaseException as problem:  # a serializer of the user's own
            ensure_not_interrupted(problem)
            written = plain(held)
        return clean(written)

    def _proven(self, value: T) -> tuple[T, JsonValue]:
        given = clean_strings(value)
        held = self._held(given)
        if held is not given and (found := changed(given, held)) is not None:
            raise _Changed([ValidationIssue(short_pointer(found[0]), found[1])])
        wire = clean_strings(self._written(held))
        try:
            check(wire, max_depth=MAX_DEPTH)
        except MalformedJsonError as problem:
            self._blame(held, [ValidationIssue(problem.path, problem.reason)])
        self._prove(held, wire)
        return held, cast(JsonValue, wire)

    def _held(self, given: Any) -> T:
        """The value that was given: a mapping becomes the model that it stands for."""
        held = self._read(given, by_name=True)
        if held is given or not self._has_unions:
            return held
        # A union that reads JSON takes "red" for an enum; who gave it in Python gave text.
        validate = self._variant("given").validate_python
        return cast(T, _validated(lambda: validate(given, by_alias=True, by_name=True)))

    @cached_property
    def _writer(self) -> SchemaSerializer:
        """What writes outputs: all of a value, where proven JSON leaves out what the class makes itself."""
        if not self._writes_apart:
            return self._serializer
        core: Any = wire_schema(self.type, "output").schema
        return SchemaSerializer(core, _WRITTEN_AS_THEY_ARE, _use_prebuilt=False)

    def _returned(self, given: Any) -> T:
        """What a tool returned, if it is of its type."""
        try:
            return self._held(given)
        except _Unfit as unfit:
            refused = unfit
        try:
            return cast(T, self._variant("returned").validate_python(given, by_alias=True, by_name=True))
        except BaseException as problem:  # as in _validated
            ensure_not_interrupted(problem)
        raise refused

    def _variant(self, reading: Reading) -> SchemaValidator:
        """The validator of another reading, made when it is first needed."""
        found = self._variants.get(reading)
        if found is None:
            core: Any = wire_schema(self.type, reading).schema
            found = self._variants[reading] = SchemaValidator(core, _use_prebuilt=False)
        return found

    def _written(self, held: T) -> Any:
        try:
            return self._serializer.to_python(held, **_WAY_OF_WRITING)
        except BaseException as problem:
            ensure_not_interrupted(problem)
            path, reason = self._unwritable(held), shorten(f"cannot be written as JSON: {problem}")
        self._blame(held, [ValidationIssue(short_pointer(path), reason)])

    def _unwritable(self, held: T) -> Path:
        """The path of the first part of a value that cannot be written."""
        found: list[Any] = []

        def kept(part: Any) -> str:
            found.append(part)
            return _UNWRITABLE

        try:
            written = self._serializer.to_python(held, **_WAY_OF_WRITING, fallback=kept)
        except BaseException as problem:  # a serializer of the user's own, or a value without end
            ensure_not_interrupted(problem)
            return self._failing(held)
        return place_of(written, _UNWRITABLE) or ()

    def _failing(self, held: Any) -> Path:
        """The path of the part whose own serializer raises, as far as models, mappings and lists lead to it."""
        path: Path = ()
        part = held
        while len(path) < MAX_DEPTH:
            step = next((step for step, _ in parts_of(part) if not self._writes_only(held, (*path, step))), None)
            if step is None:
                break
            path, part = (*path, step), dict(parts_of(part))[step]
        return path

    def _writes_only(self, held: Any, path: Path) -> bool:
        chosen: Any = True
        for step in reversed(path):
            chosen = {step: chosen}
        try:
            self._serializer.to_python(held, **_WAY_OF_WRITING, include=chosen)
        except BaseException as problem:  # as above
            ensure_not_interrupted(problem)
            return False
        return True

    def _prove(self, held: T, wire: Any) -> None:
        """That `wire` comes back as `held`."""
        try:
            back = self._read(wire, by_name=True)
        except _Unfit as unfit:
            self._blame(held, unfit.issues)
        if (found := difference(held, back)) is not None:
            path, what = found
            raise _Changed([ValidationIssue(short_pointer(path), what)])

    def _unset(self, held: T, full: JsonValue) -> list[Path]:
        sparse = clean_strings(self._serializer.to_python(held, **_WAY_OF_WRITING, exclude_unset=True))
        paths, kept = gaps(full, sparse), list[Path]()
        while paths and (faults := self._faults(held, without(full, paths))):
            blame = blamed(paths, faults)
            kept += blame
            paths = [path for path in paths if path not in blame]
        # A fault may name an object of which one field matters, say its tag.
        for path in kept:
            if not self._faults(held, without(full, [*paths, path])):
                paths.append(path)
        return paths

    def _faults(self, value: T, data: Any) -> list[Path]:
        """Where `data` is not read as `value` on every pass."""
        try:
            back = self._variant("made").validate_python(data, by_alias=True, by_name=True)
        except ValidationError as invalid:
            return [_path(each["loc"]) for each in invalid.errors(include_url=False, include_input=False)]
        except BaseException as problem:  # as in _validated
            ensure_not_interrupted(problem)
            return [()]
        found = difference(value, back)
        return [] if found is None else [found[0]]

    def _completed(self, value: T, data: JsonValue) -> JsonValue:
        faults = self._faults(value, data)
        if not faults:
            return data
        try:
            full = self._written(value)
        except _Unfit:
            return data
        for found in (filled(data, full, faults), full):
            if found is not None and not self._faults(value, found):
                return cast(JsonValue, found)
        return data

    def _blame(self, held: T, issues: Sequence[ValidationIssue]) -> NoReturn:
        """Raise `_Unfit` if an instance, trusted so far, breaks its own type; else `_Changed`: it is the round trip."""
        strict = self._variant("revalidate")
        _validated(lambda: strict.validate_python(held, by_alias=True, by_name=True))
        raise _Changed(issues)

    def _read(self, data: Any, *, by_name: bool = False) -> T:
        validate = self._validator.validate_python
        return cast(T, _validated(lambda: validate(data, by_alias=True, by_name=by_name)))


class _Unfit(Exception):
    """A value is not of its type. Whoever knows what the value was makes an error of it."""

    def __init__(self, issues: Sequence[ValidationIssue]) -> None:
        super().__init__(issues)
        self.issues = tuple(issues)


class _Changed(_Unfit):
    """A value is of its type, and would not come back from JSON as it went."""


@contextmanager
def _named(where: str, error: type[PayloadError]) -> Iterator[None]:
    """Inside, what does not fit is raised as `error`, and what would not come back as `RoundTripError`, of `where`."""
    try:
        yield
    except _Changed as changed:
        raise RoundTripError(where, changed.issues) from None
    except _Unfit as unfit:
        raise error(where, unfit.issues) from None


def ensure_round_trip(type_: Any) -> None:
    """Raise `DefinitionError`, naming the field, if values of `type_` have no JSON form."""
    Contract.of(type_)


@lru_cache(maxsize=_CACHED_TYPES)
def _contract(type_: Any, _text: str) -> Contract[Any]:
    return Contract(type_)


def _validated(validate: Callable[[], Any]) -> Any:
    """What `validate` returns. Raises `_Unfit`."""
    try:
        return validate()
    except ValidationError as invalid:
        issues = _issues(invalid)
    except BaseException as problem:  # a default factory, a __post_init__: whatever it is, it is not the worker's end
        ensure_not_interrupted(problem)
        issues = [ValidationIssue("", f"a validator failed ({type(problem).__name__})")]
    # Outside the handlers: the pydantic error holds the whole input and must not travel along.
    raise _Unfit(issues)


def _issues(invalid: ValidationError) -> list[ValidationIssue]:
    found = invalid.errors(include_url=False, include_context=False, include_input=False)
    # Of a type that is read as an instance or from its wire form, an outsider can only meet the second.
    told = [each for each in found if each["type"] != "is_instance_of"] or found
    return bounded(ValidationIssue(_pointer(each["loc"]), _message(each)) for each in told)


def _pointer(location: tuple[int | str, ...]) -> str:
    return short_pointer(_path(location))


def _path(location: tuple[int | str, ...]) -> Path:
    path = tuple(part for part in location if not (isinstance(part, str) and part.startswith(MARK)))
    return path[:-1] if path and path[-1] == "[key]" else path


def _message(error: Any) -> str:
    return _TOLD.get(error["type"]) or shorten(error["msg"])


# Where pydantic speaks of Python to somebody who sent JSON.
_TOLD = {
    "extra_forbidden": "unknown key",
    "unexpected_keyword_argument": "unknown key",
    **dict.fromkeys(("model_type", "dataclass_type", "dict_type"), "Input should be an object"),
}
