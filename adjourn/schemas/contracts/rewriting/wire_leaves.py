"""How the values that JSON has no type for look on the wire, and how they are read back.

Each reader takes the wire form or the Python value itself and hands pydantic something that its
own validator of the type takes. Readers are shared by live models and pinned schemas.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from pydantic_core import PydanticCustomError, PydanticSerializationError, ValidationError, to_jsonable_python

from adjourn.schemas.errors import MalformedJsonError
from adjourn.schemas.strict_json import JsonValue, canonical, dumps

Node = dict[str, Any]
Reader = Callable[[Any], Any]


def text_form(what: str, kinds: type | tuple[type, ...], pattern: str) -> Reader:
    """A reader of text in one form. Pydantic alone would also take numbers, or text that is a number."""
    matches = re.compile(pattern, re.ASCII).match

    def read(value: Any) -> Any:
        if isinstance(value, str):
            if matches(value) is None:
                raise PydanticCustomError("text_form", "Input should be {what}", {"what": what})
        elif not isinstance(value, kinds):
            raise PydanticCustomError("text_form", "Input should be {what}", {"what": what})
        return value

    return read


def read_decimal(value: Any) -> Any:
    """A number, or text that is one in JSON's or Python's plain notation."""
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value) is None:
            raise PydanticCustomError("decimal", "Input should be a decimal number")
    elif isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise PydanticCustomError("decimal", "Input should be a decimal number, or one as text")
    return value


def read_bytes(value: Any) -> Any:
    """Base64 in either alphabet, padded or not."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if not isinstance(value, str):
        raise PydanticCustomError("base64", "Input should be bytes as base64 text")
    plain = value.rstrip("=").translate(_STANDARD_ALPHABET)
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "Input should be base64 text") from None


def write_bytes(value: Any) -> Any:
    """Standard base64 with padding. What is no bytes (an unchecked instance) passes, to be found out later."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, (bytes, bytearray)) else value


def read_array(value: Any) -> Any:
    """A list or tuple. A named tuple is an array on the wire, though pydantic would also take an object."""
    if not isinstance(value, (list, tuple)):
        raise PydanticCustomError("array", "Input should be a valid array")
    return value


def unique(value: Any) -> Any:
    """Refuse a list that says the same thing twice: as a set it would silently get shorter."""
    if isinstance(value, list) and has_repeats(value):
        raise PydanticCustomError("repeated", "Input should not have the same item twice")
    return value


def write_set(value: Any, write: Callable[[Any], Any]) -> Any:
    """A set as a list in one order: each process hashes text differently, and the digest of a question may not."""
    return sorted(write(value), key=repr)


def set_leaf(schema: Node) -> Node:
    """A set or frozen set: an array without repeats, written in one order."""
    written: Node = {"type": "function-wrap", "function": write_set, "when_used": "json"}
    return before(unique, {"serialization": written, **schema})


def has_repeats(items: list[Any]) -> bool:
    """Whether two items are the same JSON value. Linear, where comparing all pairs is an attack."""
    try:
        return len({canonical(item) for item in items}) < len(items)
    except MalformedJsonError:  # Python values: the set itself will tell
        return False


_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_STANDARD_ALPHABET = str.maketrans("-_", "+/")

read_date = text_form("a date (YYYY-MM-DD)", date, r"\d{4}-\d\d-\d\d\Z")
read_datetime = text_form("a date and time (ISO 8601)", datetime, r"\d{4}-\d\d-\d\d[Tt _]\d\d:?\d\d")
read_time = text_form("a time (ISO 8601)", time, r"\d\d:\d\d")
read_duration = text_form("a duration (ISO 8601)", timedelta, r"[+-]?P")
read_uuid = text_form("a UUID", UUID, r"")
read_complex = text_form("a complex number as text", complex, r"")


def before(function: Reader, schema: Node, shown: Node | None = None) -> Node:
    """`schema`, behind a function that turns the wire form into what `schema` reads.

    `shown` is what a JSON Schema says about the wire form, if that is not what `schema` says.
    """
    inner = {key: value for key, value in schema.items() if key != "ref"}
    new: Node = {"type": "function-before", "function": {"type": "no-info", "function": function}, "schema": inner}
    if "ref" in schema:
        new["ref"] = schema["ref"]
    if shown is not None:
        new["json_schema_input_schema"] = shown
    return new


_own_values: ContextVar[bool] = ContextVar("own_values", default=False)
"""True while a union looks for the member whose Python value it was given: no JSON form is read meanwhile."""


def own_values_first(union: Node) -> Node:
    """A union that was given a Python value: the text "red" is text, if text is a member, and no enum."""
    inner = {key: value for key, value in union.items() if key not in ("ref", "serialization")}

    def read(value: Any, handler: Callable[[Any], Any]) -> Any:
        outer = _own_values.set(True)
        try:
            return handler(value)
        except ValidationError:
            if outer.old_value is True:
                raise
        finally:
            _own_values.reset(outer)
        return handler(value)

    new: Node = {"type": "function-wrap", "function": {"type": "no-info", "function": read}, "schema": inner}
    return {**new, **{key: union[key] for key in ("ref", "serialization") if key in union}}


def not_first(schema: Node) -> Node:
    """A node behind a reader of the wire form that does not read it where a union looks for Python values."""
    reader: Reader = schema["function"]["function"]

    def read(value: Any) -> Any:
        found = reader(value)
        if _own_values.get() and type(value) in _JSON_TYPES:
            same = type(found) is type(value) if schema["schema"]["type"] in _MAYBE_JSON else False
            if not same:
                raise PydanticCustomError("wire_form", "Input should be a Python value")
        return found

    return {**schema, "function": {"type": "no-info", "function": read}}


def same_class(schema: Node) -> Node:
    """A node that may read a value as one of another class, and does not where a union looks for Python values."""
    inner = {key: value for key, value in schema.items() if key not in ("ref", "serialization")}

    def read(value: Any, handler: Callable[[Any], Any]) -> Any:
        found = handler(value)
        if _own_values.get() and type(found) is not type(value):
            raise PydanticCustomError("wire_form", "Input should be a Python value")
        return found

    new: Node = {"type": "function-wrap", "function": {"type": "no-info", "function": read}, "schema": inner}
    return {**new, **{key: schema[key] for key in ("ref", "serialization") if key in schema}}


def made_too(schema: Node) -> Node:
    """A node with code of the type's own, or such a value as that code makes: a tool returns what it has made.

    Its inner node is what the code returns in most types. Where it is not, a value counts that JSON does not have and
    that can be written.
    """
    inner = {key: value for key, value in schema.items() if key not in ("ref", "serialization")}
    is_written = "serialization" in schema

    def read(value: Any) -> Any:
        if type(value) in _JSON_TYPES:
            raise PydanticCustomError("wire_form", "Input should be a Python value")
        if not is_written:
            to_jsonable_python(value)
        return value

    made: Node = {"type": "function-plain", "function": {"type": "no-info", "function": read}}
    between = [schema["schema"]] if schema["type"] in ("function-before", "function-wrap", "json") else []
    new: Node = {"type": "union", "mode": "left_to_right", "choices": [inner, *between, made]}
    return {**new, **{key: schema[key] for key in ("ref", "serialization") if key in schema}}


_MAYBE_JSON = ("literal", "enum", *("int", "float", "bool"))


def _bytes_leaf(schema: Node) -> Node:
    written: Node = {"type": "function-plain", "function": write_bytes, "when_used": "json"}
    return before(read_bytes, {"serialization": written, **schema})


LEAVES: dict[str, Callable[[Node], Node]] = {
    "date": partial(before, read_date),
    "datetime": partial(before, read_datetime),
    "time": partial(before, read_time),
    "timedelta": partial(before, read_duration),
    "uuid": partial(before, read_uuid),
    "decimal": partial(before, read_decimal),
    "complex": partial(before, read_complex),
    "named-tuple": partial(before, read_array),
    "bytes": _bytes_leaf,
}
"""What stands before pydantic's own validator of a type, by the type's name in a core schema."""


# --- keys ---------------------------------------------------------------------------------------

KEY_FORMS = {
    "int": r"^(?:0|-?[1-9][0-9]*)$",
    "float": r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$",
    "bool": r"^(?:true|false)$",
}
"""The text of a key that is no text in Python: one form per value, as JSON writes it."""


def read_key(kind: str) -> Reader:
    """A reader of the keys of an object whose Python keys are `int`, `float` or `bool`."""
    form = re.compile(KEY_FORMS[kind][:-1] + r"\Z")

    def read(value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) and form.match(value) else value

    return read


# --- enums and literals -------------------------------------------------------------------------


def same_json(expected: Any, given: Any) -> bool:
    """Whether `given` is `expected`: `true` is not 1, `1.0` is not the integer 1, `1` is the number 1.0."""
    if type(given) is int and type(expected) is float:
        return expected == given
    return type(given) is type(expected) and (
        given == expected if _is_scalar(given) else dumps(given) == dumps(expected)
    )


class ExactlyOneOf:
    """Reads an enum or a literal: the wire form of exactly one of its values, of the right JSON type.

    Comparing as Python does would let `true` and `1.0` through for 1. With `keys`, reads the text
    that stands for a value as a key of an object. Raises `refusal(problem)` for a value that has
    no JSON form.
    """

    def __init__(self, values: list[Any], refusal: Callable[[str], Exception], *, keys: bool = False) -> None:
        self._members = values
        wires = [_wire_form(value, refusal) for value in values]
        self._texts = [_key_text(wire, refusal) if keys else dumps(wire) for wire in wires]
        self._found = dict(zip(self._texts, values, strict=True))
        self._keys = keys
        shown = ", ".join(dumps(wire) for wire in wires)
        self._message = f"Input should be one of: {shown}".replace("{", "(").replace("}", ")")

    @property
    def texts(self) -> list[str]:
        """The texts of the values, as keys of an object."""
        return self._texts

    def __call__(self, value: Any) -> Any:
        for text in self._texts_of(value):
            if text in self._found:
                return self._found[text]
        if any(type(value) is type(member) and value == member for member in self._members):
            return value
        if isinstance(value, Enum) and any(type(value) is type(member) for member in self._members):
            return value  # a combination of flags
        raise PydanticCustomError("one_of", self._message)

    def _texts_of(self, value: Any) -> list[str]:
        if isinstance(value, Enum) or type(value) not in _JSON_TYPES:
            return []
        if self._keys:
            return [value] if isinstance(value, str) else []
        try:
            return [dumps(value), dumps(float(value))] if type(value) is int else [dumps(value)]
        except (MalformedJsonError, OverflowError):
            return []


_JSON_TYPES = frozenset({str, int, float, bool, type(None), list, dict})


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, (list, dict))


def _wire_form(value: Any, refusal: Callable[[str], Exception]) -> JsonValue:
    try:
        wire: JsonValue = to_jsonable_python(value.value if isinstance(value, Enum) else value)
        dumps(wire)
    except (PydanticSerializationError, MalformedJsonError, ValueError) as error:
        raise refusal(f"its value {value!r} has no JSON form") from error
    return wire


def _key_text(wire: JsonValue, refusal: Callable[[str], Exception]) -> str:
    if isinstance(wire, str):
        return wire
    if wire is None:
        return "None"
    if not _is_scalar(wire):
        raise refusal("a key that is a container has no text form in JSON")
    return dumps(wire)
