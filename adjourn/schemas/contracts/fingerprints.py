"""Fingerprints of contracts: digests that tell if the code still has the contract that a parked call was opened with.

Names of definitions, words for people (titles, descriptions, examples), unknown keywords and an order without a
meaning do not count: correcting a docstring or renaming a class must not fail the runs that are parked.
`adjourn.schemas.contracts.compatible` decides what a difference means for the values that were recorded.

Digests of older builds have no prefix. They are compared with what those builds would have computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from adjourn.schemas.contracts.rewriting.json_schema import LIMITS
from adjourn.schemas.strict_json import JsonValue, digest, dumps

PREFIX: Final = "2:"
"""Before a digest of the present form. A change of `_canonical` needs another one."""

_DEFINITIONS: Final = "#/$defs/"
_NAMED_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ONE_SCHEMA: Final = frozenset(
    {"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains"}
)
_UNORDERED: Final = frozenset({"required", "enum", "type"})
_OTHER: Final = frozenset(
    {
        *("$ref", "const", "default", "format", "pattern", "contentEncoding", "contentMediaType", "contentSchema"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties"),
        *("dependentRequired", "unevaluatedItems", "unevaluatedProperties", "discriminator", LIMITS),
    }
)
_KEYWORDS: Final = _NAMED_SCHEMAS | _SCHEMA_LISTS | _ONE_SCHEMA | _UNORDERED | _OTHER | {"$defs"}
"""All that says which values fit and what they are read as. Everything else is an annotation."""


def fingerprint(parts: Mapping[str, JsonValue]) -> dict[str, str]:
    """A digest for each named part of a contract: a JSON Schema, or any other JSON value."""
    return {name: PREFIX + digest(_canonical(part)) for name, part in parts.items()}


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


def same_part(recorded: str | None, schema: JsonValue) -> bool:
    """True if a recorded digest, of this build or an older one, is the digest of `schema`."""
    if recorded is None or recorded.startswith(PREFIX):
        return recorded == fingerprint({"": schema})[""]
    return recorded == older_fingerprint({"": schema})[""]


def bare(schema: Any) -> Any:
    """Return the schema without annotations. References and the order of its keys stay as they are."""
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key not in _KEYWORDS:
            continue
        if (key in _NAMED_SCHEMAS or key == "$defs") and isinstance(value, dict):
            kept[key] = {name: bare(each) for name, each in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            kept[key] = [bare(each) for each in value]
        else:
            kept[key] = bare(value) if key in _ONE_SCHEMA else value
    return kept


def json_types(schema: Any) -> frozenset[str] | None:
    """Return the JSON types of the values that may fit a schema without `$ref`; None if they are not known."""
    if not isinstance(schema, dict):
        return None
    said = schema.get("type")
    names = [said] if isinstance(said, str) else said
    if isinstance(names, list):
        found = {"number" if name == "integer" else str(name) for name in names}
        return frozenset(found)
    return None


def unordered(value: Any) -> Any:
    """A default without the order of its lists: some of them were sets, which every process lists differently."""
    if isinstance(value, list):
        return sorted(map(unordered, value), key=repr)
    if isinstance(value, dict):
        return {key: unordered(value[key]) for key in sorted(value)}
    return value


# --- the present form -----------------------------------------------------------------------------


def _canonical(part: Any) -> Any:
    """A schema in which a definition is known by what it says, not by its name."""
    if not isinstance(part, dict):
        return part
    schema = bare(part)
    definitions = schema.pop("$defs", {})
    labels = dict.fromkeys(definitions, "")
    # Each round makes definitions differ that differ one reference further away. A recursive one never ends in itself.
    for _ in definitions:
        labels = {name: digest(_shape(each, labels, definitions)) for name, each in definitions.items()}
    top = schema
    while isinstance(name := top.get("$ref"), str) and len(top) == 1 and name.removeprefix(_DEFINITIONS) in definitions:
        top = definitions[name.removeprefix(_DEFINITIONS)]
    return _shape(top, labels, definitions)


def _shape(schema: Any, labels: Mapping[str, str], definitions: Mapping[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            shape[key] = labels.get(str(value).removeprefix(_DEFINITIONS), value)
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            shape[key] = {name: _shape(each, labels, definitions) for name, each in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            shape[key] = [_shape(each, labels, definitions) for each in value]
            if key == "oneOf" or (key == "anyOf" and _apart(value, definitions)):
                shape[key].sort(key=dumps)
        elif key in _ONE_SCHEMA:
            shape[key] = _shape(value, labels, definitions)
        elif key in _UNORDERED and isinstance(value, list):
            shape[key] = sorted(value, key=dumps)
        elif key == "discriminator" and isinstance(value, dict):
            shape[key] = _discriminator(value, labels)
        elif key == "default":
            shape[key] = value if schema.get("type") == "array" and not schema.get("uniqueItems") else unordered(value)
        else:
            shape[key] = value
    return shape


def _apart(members: list[Any], definitions: Mapping[str, Any]) -> bool:
    """True if no value can fit two of these: only then has their order no meaning."""
    seen: set[str] = set()
    for each in members:
        types = json_types(_followed(each, definitions))
        if types is None or seen & types:
            return False
        seen |= types
    return True


def _followed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    for _ in range(len(definitions) + 1):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        schema = definitions.get(schema["$ref"].removeprefix(_DEFINITIONS))
    return schema


def _discriminator(value: dict[str, Any], labels: Mapping[str, str]) -> Any:
    mapping = {
        tag: labels.get(str(ref).removeprefix(_DEFINITIONS), ref) for tag, ref in value.get("mapping", {}).items()
    }
    return {**value, "mapping": mapping}


# --- the form of older builds: it stays as it is ----------------------------------------------------

_WORDS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains"})


def older_fingerprint(parts: Mapping[str, JsonValue]) -> dict[str, str]:
    """The digests that builds before the prefix stored."""
    return {name: digest(_older_shape(part) if isinstance(part, dict) else part) for name, part in parts.items()}


def _older_shape(schema: Any) -> Any:
    """A JSON Schema without its words, and without an order where order means nothing."""
    if not isinstance(schema, dict):
        return schema
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _WORDS:
            continue
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            shape[key] = {name: _older_shape(each) for name, each in value.items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            shape[key] = [_older_shape(each) for each in value]
        elif key in _SCHEMAS:
            shape[key] = _older_shape(value)
        elif key == "required" and isinstance(value, list):
            shape[key] = sorted(value)
        elif key == "default":
            shape[key] = unordered(value)
        else:
            shape[key] = value
    return shape
