"""Whether the JSON Schema of a type says all that the type checks.

Where it does, an answer that fits the pinned schema fits the live model too, and a process without the app may accept
it. Where it does not (a custom validator, a default that a function makes, a limit that JSON Schema has no word for),
only a process with the app can. Conservative: what is not known here to be said by the schema counts as not said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

_NUMBER: Final = frozenset({"gt", "ge", "lt", "le", "multiple_of", "allow_inf_nan"})
_SIZE: Final = frozenset({"min_length", "max_length"})
_TIME: Final = frozenset(
    {"gt", "ge", "lt", "le", "now_op", "now_utc_offset", "tz_constraint", "microseconds_precision"}
)
_ERRORS: Final = frozenset({"custom_error_type", "custom_error_message", "custom_error_context"})
_CLASS: Final = frozenset({"cls", "config", "generic_origin", "frozen", "revalidate_instances", "cls_name", "slots"})
_FIELDS: Final = frozenset(
    {"fields", "computed_fields", "extra_behavior", "extras_schema", "config", "cls", "cls_name"}
)
_FIELD: Final = frozenset({"validation_alias", "serialization_alias", "serialization_exclude", "frozen"})

# Of each kind of core schema: the keys that its JSON Schema expresses, or that do not restrict what is read.
_SAID: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("any", "none", "bool", "complex"), frozenset()),
    "int": _NUMBER,
    "float": _NUMBER,
    "decimal": _NUMBER | {"max_digits", "decimal_places"},
    "str": _SIZE | {"pattern", "coerce_numbers_to_str"},
    "bytes": _SIZE,
    **dict.fromkeys(("date", "time", "datetime", "timedelta"), _TIME),
    "uuid": frozenset({"version"}),
    "literal": frozenset({"expected"}),
    "enum": frozenset({"cls", "members", "sub_type", "missing"}),
    "list": _SIZE | {"items_schema", "fail_fast"},
    "tuple": _SIZE | {"items_schema", "variadic_item_index", "fail_fast"},
    # A set may be shorter than the array that it is read from: `min_length` counts what is left.
    "set": frozenset({"items_schema", "max_length", "fail_fast"}),
    "frozenset": frozenset({"items_schema", "max_length", "fail_fast"}),
    "dict": _SIZE | {"keys_schema", "values_schema"},
    "nullable": frozenset(),
    "union": _ERRORS | {"choices", "mode", "auto_collapse"},
    "tagged-union": _ERRORS | {"choices", "discriminator", "from_attributes"},
    "default": frozenset({"default", "copy_default", "validate_default", "on_error"}),
    "model": _CLASS | {"root_model", "custom_init", "extra_behavior"},
    "model-fields": _FIELDS | {"model_name", "from_attributes"},
    "model-field": _FIELD,
    "dataclass": _CLASS | {"fields", "dataclass_name"},
    "dataclass-args": _FIELDS | {"dataclass_name", "collect_init_only"},
    "dataclass-field": _FIELD | {"name", "kw_only", "init"},
    "typed-dict": _FIELDS | {"total"},
    "typed-dict-field": _FIELD | {"required"},
    "definitions": frozenset({"definitions"}),
    "definition-ref": frozenset({"schema_ref"}),
}
_KEYS: Final = frozenset({"str", "int", "float", "bool", "enum", "literal"})
"""Kinds of keys of a mapping whose text the schema describes."""
_IGNORED: Final = frozenset({"type", "ref", "metadata", "serialization", "strict"})
_CHANGES_TEXT: Final = ("str_", "regex_engine")
"""How keys of a model's config begin that its JSON Schema does not show."""
_WORDS: Final = frozenset({"title", "description", "examples", "deprecated"})


def schema_decides(type_: Any) -> bool:
    """Return True if what fits the JSON Schema of `type_` always fits the type. False if that is not certain."""
    try:
        return _is_said(TypeAdapter(type_).core_schema)
    except Exception:  # a type that cannot be looked into, or a hook of its own that fails
        return False


def _is_said(node: Any) -> bool:
    kind = node["type"]
    said = _SAID.get(kind)
    if said is None or any(key not in said and key not in _IGNORED and key not in _PARTS for key in node if node[key]):
        return False
    if not _plain_words(node.get("metadata") or {}) or not _plain_rules(node, kind):
        return False
    return all(map(_is_said, _parts(node)))


_PARTS: Final = frozenset({"schema", "values_schema", "keys_schema", "items_schema", "extras_schema"})


def _parts(node: Any) -> Iterable[Any]:
    for key in _PARTS:
        part = node.get(key)
        if part is not None:
            yield from part if isinstance(part, list) else [part]
    fields = node.get("fields", ())
    yield from fields.values() if isinstance(fields, dict) else fields
    choices = node.get("choices", ())
    for choice in choices.values() if isinstance(choices, dict) else choices:
        yield choice[0] if isinstance(choice, tuple) else choice
    yield from node.get("definitions", ())


def _plain_rules(node: Any, kind: str) -> bool:
    """Whether the values of those keys are of a sort that the JSON Schema expresses."""
    config = node.get("config") or {}
    if any(key.startswith(_CHANGES_TEXT) and value not in (None, False) for key, value in config.items()):
        return False
    cls = node.get("cls")
    own = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    if kind != "enum" and not _is_words(own.get("json_schema_extra")):
        return False
    if kind in ("model", "dataclass") and (cls is None or cls.__new__ is not object.__new__):
        return False
    if not isinstance(node.get("pattern", ""), str) or not isinstance(node.get("discriminator", ""), str):
        return False
    if not isinstance(node.get("validation_alias", ""), str) or node.get("init") is False:
        return False
    if node.get("on_error", "raise") != "raise":
        return False
    keys = node.get("keys_schema")
    if keys is None or (keys["type"] == "any"):
        return True
    return keys["type"] in _KEYS and (keys["type"] not in ("int", "float") or not _NUMBER & keys.keys())


def _plain_words(metadata: Mapping[str, Any]) -> bool:
    """Whether nobody has written the JSON Schema by hand."""
    own = [
        each for key in ("pydantic_js_functions", "pydantic_js_annotation_functions") for each in metadata.get(key, ())
    ]
    if any(not _is_pydantics(getattr(each, "__func__", each)) for each in own):
        return False
    return _is_words(metadata.get("pydantic_js_updates")) and _is_words(metadata.get("pydantic_js_extra"))


def _is_pydantics(function: Any) -> bool:
    """Whether pydantic describes the type by itself. `WithJsonSchema` is pydantic's too, and says what a user wrote."""
    return function is _PYDANTICS_OWN or getattr(function, "__module__", "") == "pydantic._internal._generate_schema"


def _is_words(extra: Any) -> bool:
    return extra is None or (isinstance(extra, Mapping) and set(extra) <= _WORDS)


_PYDANTICS_OWN: Final = getattr(BaseModel.__get_pydantic_json_schema__, "__func__", None)
