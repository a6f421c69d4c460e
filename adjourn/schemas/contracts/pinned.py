"""Answers held against the JSON Schema that an action was opened with, where no code is at hand.

Owns an evaluator of draft 2020-12 that agrees with the live models (`adjourn.schemas.contracts.rewriting.wire`): the
same exact types, the same readers of text forms, the same regular expressions. It may refuse what
a live model with its own validators would repair; it accepts nothing that the schema's own words
forbid. It never fetches a reference. Two things a schema cannot say are left to the live model:
what custom validators check, and what becomes of text that a model strips or folds before it
measures it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema import ValidationError as Invalid
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, ValidationError
from referencing import Registry

from adjourn.schemas.contracts.issues import bounded, shorten
from adjourn.schemas.contracts.rewriting.json_schema import LIMITS
from adjourn.schemas.contracts.rewriting.wire import wire_schema
from adjourn.schemas.contracts.rewriting.wire_leaves import LEAVES, has_repeats, same_json
from adjourn.schemas.errors import AnswerPayloadError, ValidationIssue
from adjourn.schemas.strict_json import JsonValue, dumps, short_pointer

_CACHED_SCHEMAS = 512
_CACHED_RULES = 2048

_READERS = {
    "date": "date",
    "time": "time",
    "date-time": "datetime",
    "duration": "timedelta",
    "decimal": "decimal",
    "complex": "complex",
    "uuid": "uuid",
    **{f"uuid{version}": "uuid" for version in range(1, 9)},
    "base64": "bytes",
}
"""Forms of text, by the name of the live reader that decides them."""

_BY_TYPE: dict[str, Any] = {
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "ipv4network": IPv4Network,
    "ipv6network": IPv6Network,
    "ipv4interface": IPv4Interface,
    "ipv6interface": IPv6Interface,
}
_PLAIN_LIMITS = frozenset({"max_digits", "decimal_places", "min_length", "max_length", "tz_constraint", "now_op"})

# jsonschema's own messages quote the value, which may be long, or a secret.
_MESSAGES = {
    "minimum": "should be at least {}",
    "maximum": "should be at most {}",
    "exclusiveMinimum": "should be above {}",
    "exclusiveMaximum": "should be below {}",
    "minLength": "should have at least {} characters",
    "maxLength": "should have at most {} characters",
    "minItems": "should have at least {} items",
    "maxItems": "should have at most {} items",
    "minProperties": "should have at least {} keys",
    "maxProperties": "should have at most {} keys",
    "anyOf": "fits none of the allowed forms",
    "oneOf": "does not fit exactly one of the allowed forms",
}


def validate_pinned(schema: dict[str, Any], data: JsonValue, where: str) -> None:
    """Hold an answer against a pinned schema. Raises `AnswerPayloadError` with a JSON pointer for every issue.

    A schema that cannot be applied (not a schema, a reference to elsewhere or to itself without
    end) refuses every answer: nothing is let through unchecked. Patterns run on pydantic's linear
    engine; one that only Python's can run is the developer's own, and can be slow by itself.
    """
    try:
        found = _compiled(dumps(schema)).iter_errors(data)
        issues = bounded(issue for error in found for issue in _told(error))
    except Exception as problem:  # referencing, jsonschema and RecursionError have no common base
        issues = [ValidationIssue("", f"the schema of this answer cannot be applied ({type(problem).__name__})")]
    if issues:
        raise AnswerPayloadError(where, issues)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _compiled(text: str) -> Any:
    schema = json.loads(text)
    # Without formats: jsonschema would hold every pattern against Python's engine, and models run them on pydantic's.
    _Evaluator.check_schema(schema, format_checker=FormatChecker(formats=()))
    # An empty registry of our own: the default one would fetch what a $ref names.
    return _Evaluator(schema, registry=Registry())


def _told(error: Invalid) -> Iterator[ValidationIssue]:
    """The issues behind an error. Of several forms, the one that was evidently meant is explained."""
    branches: dict[Any, list[Invalid]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    tag = error.schema.get("discriminator", {}).get("propertyName") if isinstance(error.schema, dict) else None
    meant = [each for each in branches.values() if not any(_is_elsewhere(inner, tag) for inner in each)]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from _told(inner)
    else:
        yield ValidationIssue(short_pointer(error.absolute_path), _message(error))


def _message(error: Invalid) -> str:
    keyword = error.validator
    if keyword is None:  # the schema `false`
        return "is not allowed"
    if keyword in _KEYWORDS:
        return shorten(error.message)
    return shorten(_MESSAGES.get(keyword, f"does not keep the schema's {keyword}").format(error.validator_value))


def _is_elsewhere(inner: Invalid, tag: str | None) -> bool:
    """Whether a branch fails at its root, by type or by tag: then it is not the one that was meant."""
    at = list(inner.relative_path)
    return (not at and inner.validator in ("type", "const", "enum")) or (tag is not None and at == [tag])


# --- keywords -----------------------------------------------------------------------------------


def _type(validator: Any, types: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    names = [types] if isinstance(types, str) else types
    if not any(validator.is_type(instance, name) for name in names):
        yield Invalid(f"should be of type {' or '.join(names)}")


def _required(validator: Any, required: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if validator.is_type(instance, "object"):
        for name in required:
            if name not in instance:
                yield Invalid("Field required", path=[name])


def _additional(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Invalid]:
    if not validator.is_type(instance, "object"):
        return
    patterns = [_rule("str", "pattern", pattern) for pattern in schema.get("patternProperties", ())]
    for name, value in instance.items():
        if name in schema.get("properties", ()) or any(_fits(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            yield Invalid("unknown key", path=[name])
        elif rule is not True:
            yield from validator.descend(value, rule, path=name)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if validator.is_type(instance, "object"):
        for pattern, rule in patterns.items():
            for name, value in instance.items():
                if _fits(_rule("str", "pattern", pattern), name):
                    yield from validator.descend(value, rule, path=name)


def _property_names(validator: Any, rule: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if validator.is_type(instance, "object"):
        for name in instance:
            yield from validator.descend(name, rule, path=name)


def _enum(_validator: Any, values: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if not any(same_json(value, instance) for value in values):
        yield Invalid(f"should be one of: {', '.join(dumps(value) for value in values)}")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Invalid]:
    yield from _enum(validator, [value], instance, schema)


def _unique_items(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if wanted and validator.is_type(instance, "array") and has_repeats(instance):
        yield Invalid("should not have the same item twice")


def _pattern(validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Invalid]:
    if validator.is_type(instance, "string") and not _fits(_rule("str", "pattern", pattern), instance):
        yield Invalid(f"should match {pattern}")


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[Invalid]:
    if validator.is_type(instance, "number"):
        kind = "int" if schema.get("type") == "integer" and type(step) is int else "float"
        if not _fits(_rule(kind, "multiple_of", step), instance):
            yield Invalid(f"should be a multiple of {step}")


def _text_form(validator: Any, name: Any, instance: Any, schema: Any) -> Iterator[Invalid]:
    if isinstance(instance, str) or (name == "decimal" and validator.is_type(instance, "number")):
        rule = _form(name, dumps(schema.get(LIMITS, {})))
        if rule is not None:
            try:
                rule(instance)
            except ValidationError as error:
                yield Invalid(error.errors(include_url=False, include_input=False)[0]["msg"])


# --- rules that pydantic's engine decides ---------------------------------------------------------


@lru_cache(maxsize=_CACHED_RULES, typed=True)
def _rule(kind: str, keyword: str, value: Any) -> Callable[[Any], Any]:
    core: Any = {"type": kind, keyword: value}
    try:
        return SchemaValidator(core).validate_python
    except SchemaError:
        if keyword != "pattern":
            raise
    core = {"type": "str", "pattern": re.compile(value)}  # what only Python's engine knows, such as lookaround
    return SchemaValidator(core).validate_python


@lru_cache(maxsize=_CACHED_RULES)
def _form(name: str, limits: str) -> Callable[[Any], Any] | None:
    """The live reader of a form of text with its limits, or None for a form that nobody checks."""
    if name in _BY_TYPE:
        wire = wire_schema(_BY_TYPE[name]).schema
    elif name == "uri":
        wire = {"type": "url", **json.loads(limits)}
    elif name in _READERS:
        kind = _READERS[name]
        bare: Any = LEAVES[kind]({"type": kind})
        read = SchemaValidator(bare).validate_python
        bounds = {key: value if key in _PLAIN_LIMITS else read(value) for key, value in json.loads(limits).items()}
        if name.startswith("uuid") and name != "uuid":
            bounds["version"] = int(name.removeprefix("uuid"))
        wire = LEAVES[kind]({"type": kind, **bounds})
    else:
        return None
    core: Any = wire
    return SchemaValidator(core).validate_python


def _fits(rule: Callable[[Any], Any], value: Any) -> bool:
    try:
        rule(value)
    except ValidationError:
        return False
    return True


_KEYWORDS: dict[str, Any] = {
    "type": _type,
    "required": _required,
    "additionalProperties": _additional,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "enum": _enum,
    "const": _const,
    "uniqueItems": _unique_items,
    "pattern": _pattern,
    "multipleOf": _multiple_of,
    "format": _text_form,
    "contentEncoding": _text_form,
}

_Evaluator: Any = extend(
    Draft202012Validator,
    validators=_KEYWORDS,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _checker, value: type(value) is int,
            "number": lambda _checker, value: type(value) in (int, float),
        }
    ),
)
