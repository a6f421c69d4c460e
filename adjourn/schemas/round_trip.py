"""Where two values differ that should be the same, down to their classes.

Owns the comparison behind the promise that values come back as they went. `==` is not enough: a
`StrEnum` equals its text, `True` equals 1, an instance equals one of its parent class.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, time
from typing import Any

from pydantic import BaseModel

from adjourn.schemas.strict_json import clean_keys, clean_text

Path = tuple[str | int, ...]
Difference = tuple[Path, str]


def difference(went: Any, came: Any, path: Path = ()) -> Difference | None:
    """The deepest place, in order, where `came` is not what `went`, and what happened there.

    Text may differ by what `clean` replaces. Private attributes of models count as pydantic's own
    `==` counts them.
    """
    if type(went) is not type(came):
        return path, f"went as {_kind(went)}, comes back as {_kind(came)}"
    if isinstance(went, BaseModel):
        return _of_parts(_model_parts(went), _model_parts(came), path)
    if dataclasses.is_dataclass(went):
        return _of_parts(_dataclass_parts(went), _dataclass_parts(came), path)
    if isinstance(went, Mapping):
        return _of_mappings(went, came, path)
    if isinstance(went, Set):
        return _of_sets(went, came, path)
    if isinstance(went, str):
        return None if went == came or clean_text(went) == came else (path, "does not come back equal")
    if isinstance(went, Sequence) and not isinstance(went, (bytes, bytearray)):
        return _of_sequences(went, came, path)
    return None if _equal(went, came) else (path, "does not come back equal")


def _kind(value: Any) -> str:
    return type(value).__qualname__


def _of_parts(went: dict[str, Any], came: dict[str, Any], path: Path) -> Difference | None:
    for name, value in went.items():
        if name not in came:
            return (*path, name), "does not come back"
        if (found := difference(value, came[name], (*path, name))) is not None:
            return found
    for name in came.keys() - went.keys():
        return (*path, name), "comes back though it was not there"
    return None


def _of_mappings(went: Mapping[Any, Any], came: Mapping[Any, Any], path: Path) -> Difference | None:
    names = clean_keys(went)
    twins = {key: key for key in came}
    for key, value in went.items():
        at = (*path, str(key))
        if names[key] not in twins:
            return at, f"its key went as {_kind(key)} and does not come back"
        if type(twins[names[key]]) is not type(key):
            return at, f"its key went as {_kind(key)}, comes back as {_kind(twins[names[key]])}"
        if (found := difference(value, came[names[key]], at)) is not None:
            return found
    return (path, "comes back with more keys") if len(came) > len(went) else None


def _of_sets(went: Set[Any], came: Set[Any], path: Path) -> Difference | None:
    twins = {item: item for item in came}
    for item in went:
        at = clean_text(item) if type(item) is str else item
        if at not in twins:
            return path, f"an item ({_kind(item)}) does not come back"
        if (found := difference(item, twins[at], path)) is not None:
            return found
    return (path, "comes back with more items") if len(came) > len(went) else None


def _of_sequences(went: Sequence[Any], came: Sequence[Any], path: Path) -> Difference | None:
    if len(went) != len(came):
        return path, f"went with {len(went)} items, comes back with {len(came)}"
    for at, (one, other) in enumerate(zip(went, came, strict=True)):
        if (found := difference(one, other, (*path, at))) is not None:
            return found
    return None


def _model_parts(value: BaseModel) -> dict[str, Any]:
    fields = {name: value.__dict__[name] for name in type(value).model_fields if name in value.__dict__}
    return {**fields, **(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}


def _dataclass_parts(value: Any) -> dict[str, Any]:
    declared = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if hasattr(value, each.name)}
    return {**declared, **getattr(value, "__dict__", {})}


def _equal(went: Any, came: Any) -> bool:
    try:
        if isinstance(went, (datetime, time)) and went.utcoffset() != came.utcoffset():
            return False
        if isinstance(went, float) and math.isnan(went):
            return math.isnan(came)
        return bool(went == came)
    except Exception:  # a comparison of the user's own: what cannot be told equal is not
        return False
