"""The suspend schema of an action, as it is stored: without the titles that its keys already say.

An action keeps its schemas for as long as it exists, and every parked run has at least one. Pydantic gives each
property a title that is made from its name, and each definition one that repeats its key. A reader can derive both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
"""Keywords whose value maps names to schemas. In all others a key is a keyword."""
_VALUES: Final = frozenset({"default", "const", "enum", "examples", "required"})
"""Keywords whose value is data: nothing in it is a schema."""
_TITLE: Final = "title"


def compact(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without derived titles. It accepts exactly what the given one accepts."""
    return {key: _inside(key, value) for key, value in schema.items()}


def _inside(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _NAMED and isinstance(value, Mapping):
        return {name: _named(name, each) for name, each in value.items()}
    if isinstance(value, Mapping):
        return compact(value)
    if isinstance(value, list):
        return [_inside("", each) for each in value]
    return value


def _named(name: str, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    derived = (name, name.title().replace("_", " ").strip())
    return {key: value for key, value in compact(schema).items() if key != _TITLE or value not in derived}
