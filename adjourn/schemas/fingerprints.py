"""Fingerprints of contracts: whether what a parked call was opened with is still what the code says.

Owns what counts as a change. Words for people (titles, descriptions, examples) do not: correcting
a docstring must not fail the runs that are parked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adjourn.schemas.strict_json import JsonValue, digest

_WORDS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains"})


def fingerprint(parts: Mapping[str, JsonValue]) -> dict[str, str]:
    """A digest for each named part of a contract: a JSON Schema, or any other JSON value."""
    return {name: digest(_shape(part) if isinstance(part, dict) else part) for name, part in parts.items()}


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What is different between two fingerprints, in words, in the order of the names. Empty if nothing is."""
    found = []
    for name in sorted({*old, *new}):
        if name not in new:
            found.append(f"{name} was removed")
        elif name not in old:
            found.append(f"{name} was added")
        elif old[name] != new[name]:
            found.append(f"{name} changed")
    return found


def _shape(schema: Any) -> Any:
    """A JSON Schema without its words, and without an order where order means nothing."""
    if not isinstance(schema, dict):
        return schema
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _WORDS:
            continue
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            shape[key] = {name: _shape(each) for name, each in value.items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            shape[key] = [_shape(each) for each in value]
        elif key in _SCHEMAS:
            shape[key] = _shape(value)
        elif key == "required" and isinstance(value, list):
            shape[key] = sorted(value)
        elif key == "default":
            shape[key] = _unordered(value)
        else:
            shape[key] = value
    return shape


def _unordered(value: Any) -> Any:
    """A default without the order of its lists: some of them were sets, which every process lists differently."""
    if isinstance(value, list):
        return sorted(map(_unordered, value), key=repr)
    if isinstance(value, dict):
        return {key: _unordered(value[key]) for key in sorted(value)}
    return value
