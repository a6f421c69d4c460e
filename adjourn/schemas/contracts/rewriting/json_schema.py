"""JSON Schema (draft 2020-12) of a rewritten type, saying all that the live type checks and no more.

Owns the differences to pydantic's own generator: objects are closed unless extras are allowed,
keys that are not text show their text form, a tag is required, and limits that the draft cannot
express on text (a date not before another, the length of bytes) are kept under `LIMITS`.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from adjourn.schemas.contracts.rewriting.tags import DISCRIMINATOR, TAGS
from adjourn.schemas.contracts.rewriting.wire import no_json_form
from adjourn.schemas.contracts.rewriting.wire_leaves import Node
from adjourn.schemas.strict_json import JsonValue, clean

LIMITS = "x-limits"
"""Our keyword, ignored by other readers: limits on a value whose wire form is text, in wire form."""

_LIMIT_KEYS = (
    *("gt", "ge", "lt", "le", "multiple_of", "max_digits", "decimal_places"),
    *("min_length", "max_length", "tz_constraint", "now_op", "allowed_schemes"),
)
_EXACT_ON_TEXT = ("multipleOf",)


def json_schema(type_: Any, wire: Node, paths: dict[int, str], *, written: bool = False) -> dict[str, JsonValue]:
    """The schema of what is read, or of what is `written`. Raises `DefinitionError` naming the field."""
    generator = _WireJsonSchema(by_alias=True)
    generator.whole, generator.paths = type_, paths
    core: Any = wire
    schema = generator.generate(core, mode="serialization" if written else "validation")
    return cast("dict[str, JsonValue]", clean(schema))


class _WireJsonSchema(GenerateJsonSchema):
    whole: Any
    paths: dict[int, str]
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base class

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
        # Not pydantic's own error: a union would silently leave out the member that has no form.
        kind = schema.get("cls", schema["type"])
        raise no_json_form(
            self.whole, self.paths.get(id(schema), ""), f"{getattr(kind, '__name__', kind)} has no JSON form"
        )

    def encode_default(self, dft: Any) -> Any:
        try:
            return to_jsonable_python(dft, bytes_mode="base64", by_alias=True)
        except (ValueError, TypeError) as error:
            raise PydanticSerializationError(f"no JSON form of a default: {error}") from error

    # --- objects ---

    def model_schema(self, schema: Any) -> Any:
        shown = super().model_schema(schema)
        fields = schema["schema"]
        while "fields" not in fields and "schema" in fields:
            fields = fields["schema"]
        if fields["type"] == "model-fields" and not schema.get("root_model"):
            if fields.get("extra_behavior") == "forbid":
                shown["additionalProperties"] = False
            elif "extras_schema" in fields:
                shown["additionalProperties"] = self.generate_inner(fields["extras_schema"])
            else:
                shown.setdefault("additionalProperties", True)
        return shown

    def dataclass_schema(self, schema: Any) -> Any:
        shown = super().dataclass_schema(schema)
        fields = schema["schema"]
        while fields["type"] != "dataclass-args" and "schema" in fields:
            fields = fields["schema"]
        shown["additionalProperties"] = fields.get("extra_behavior") == "allow"
        return shown

    # --- objects by key ---

    def dict_schema(self, schema: Any) -> Any:
        return _closed(super().dict_schema(schema))

    def frozendict_schema(self, schema: Any) -> Any:
        return _closed(super().frozendict_schema(schema))

    def ordered_dict_schema(self, schema: Any) -> Any:
        return _closed(super().ordered_dict_schema(schema))

    def counter_schema(self, schema: Any) -> Any:
        return _closed(super().counter_schema(schema))

    # --- tags ---

    def tagged_union_schema(self, schema: Any) -> Any:
        kept = schema["metadata"]
        choices = dict(zip(kept[TAGS], schema["choices"].values(), strict=True))
        original: Any = {**schema, "choices": choices, "discriminator": kept[DISCRIMINATOR]}
        shown = super().tagged_union_schema(original)
        tag = shown.get("discriminator", {}).get("propertyName")
        if tag is None:
            # Which member is meant is decided by code: any that fits may be it.
            return {"anyOf": shown.pop("oneOf"), **shown}
        return {**shown, "type": "object", "required": [tag]}

    # --- values that are text on the wire ---

    def date_schema(self, schema: Any) -> Any:
        return {"type": "string", "format": "date", **_limits(schema)}

    def time_schema(self, schema: Any) -> Any:
        return {"type": "string", "format": "time", **_limits(schema)}

    def datetime_schema(self, schema: Any) -> Any:
        return {"type": "string", "format": "date-time", **_limits(schema)}

    def timedelta_schema(self, schema: Any) -> Any:
        return {"type": "string", "format": "duration", **_limits(schema)}

    def bytes_schema(self, schema: Any) -> Any:
        return {"type": "string", "contentEncoding": "base64", **_limits(schema)}

    def complex_schema(self, schema: Any) -> Any:
        return {"type": "string", "format": "complex"}

    def url_schema(self, schema: Any) -> Any:
        return {**super().url_schema(schema), **_limits(schema)}

    def decimal_schema(self, schema: Any) -> Any:
        text = {"type": "string", "format": "decimal", **_limits(schema)}
        if self.mode == "serialization":
            return text
        number, _ = super().decimal_schema(schema)["anyOf"]
        return {"anyOf": [{**_without(number, _EXACT_ON_TEXT), **text, "type": "number"}, text]}


def _closed(shown: dict[str, Any]) -> dict[str, Any]:
    if "patternProperties" in shown:
        shown.setdefault("additionalProperties", False)
    return shown


def _without(shown: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key not in keys}


def _limits(schema: Node) -> dict[str, Any]:
    limits = {key: to_jsonable_python(schema[key]) for key in _LIMIT_KEYS if key in schema}
    return {LIMITS: limits} if limits else {}
