"""How a tool's output is written when a part of it has no JSON form.

The tool's work is done, so the output must not become an error. Owns the one documented replacement:
a part that cannot be written becomes the text that `distinct_keys.no_form` returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from adjourn.schemas.contracts.distinct_keys import distinct, distinct_names, no_form
from adjourn.schemas.interrupts import ensure_not_interrupted
from adjourn.schemas.strict_json import MAX_DEPTH, REPLACEMENT


def uninitialised(value: Any, names: Sequence[str], write: Any) -> Any:
    """Serialize a dataclass with the fields that its `__init__` does not take, which pydantic leaves out."""
    written = write(value)
    if isinstance(written, dict):
        for name in names:
            if name not in written and hasattr(value, name):
                written[name] = _inferred(getattr(value, name))
    return written


def _inferred(value: Any) -> Any:
    try:
        return to_jsonable_python(distinct(value), bytes_mode="base64", inf_nan_mode="constants", fallback=no_form)
    except BaseException as problem:  # of a serializer of the user's own
        ensure_not_interrupted(problem)
        return plain(value)


def plain(value: Any, depth: int = 0) -> Any:
    """Write a value part by part, without the serializers of its models. Never raises."""
    if depth > MAX_DEPTH:
        return REPLACEMENT
    try:
        if isinstance(value, BaseModel):
            fields = [(name, each) for name, each in type(value).model_fields.items() if not each.exclude]
            held = value.__dict__
            parts = {each.serialization_alias or name: held[name] for name, each in fields if name in held}
            return _object({**parts, **(value.__pydantic_extra__ or {})}, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in dataclasses.fields(value)]
            return _object({name: getattr(value, name) for name in names if hasattr(value, name)}, depth)
        if isinstance(value, Mapping):
            return _object(value, depth)
        if isinstance(value, Set) or (isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))):
            return [plain(each, depth + 1) for each in value]
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants", fallback=no_form)
    except BaseException as problem:  # whatever the value's own code raises
        ensure_not_interrupted(problem)
        return no_form(value)


def _object(parts: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    keys = list(parts)
    names = distinct_names(keys, [_key(key) for key in keys])
    return {name: plain(parts[key], depth + 1) for name, key in zip(names, keys, strict=True)}


def _key(key: Any) -> str:
    written = plain(key)
    return written if isinstance(written, str) else str(written)
