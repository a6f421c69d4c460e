"""Where two values differ that should be the same, down to their classes.

Owns the comparison behind the promise that values come back as they went. `==` is not enough: a
`StrEnum` equals its text, `True` equals 1, an instance equals one of its parent class.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, time, timezone
from typing import Any

from pydantic import BaseModel

from adjourn.schemas.interrupts import ensure_not_interrupted
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
    if isinstance(went, deque) and went.maxlen != came.maxlen:
        return path, f"has maxlen={went.maxlen}, which JSON does not keep"
    if isinstance(went, defaultdict) and went.default_factory is not came.default_factory:
        return path, "has a default_factory that its type does not name, and JSON does not keep it"
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
    if isinstance(went, (datetime, time)) and went.fold and went.utcoffset() is None and not came.fold:
        return path, "has fold=1 and no zone, and comes back with fold=0; give it a zone"
    return None if _equal(went, came) else (path, "does not come back equal")


def changed(given: Any, held: Any, path: Path = (), *, by_model: bool = False) -> Difference | None:
    """The place where reading a value that somebody gave in Python changed it, and what happened there.

    A mapping may stand for a model or dataclass, and the JSON form for the value that it is the form of.
    With `by_model` the value stands in such a mapping: the model's validators may change it.
    """
    if held is given:
        return None
    if isinstance(given, Mapping) and (isinstance(held, BaseModel) or dataclasses.is_dataclass(held)):
        parts = _model_parts(held) if isinstance(held, BaseModel) else _dataclass_parts(held)
        return _first(
            changed(value, parts[key], (*path, key), by_model=True) for key, value in given.items() if key in parts
        )
    if isinstance(given, BaseModel) and type(given) is _generic_of(held):  # pydantic reads `M(...)` as `M[int]`
        return None
    if isinstance(given, Mapping) and isinstance(held, Mapping):
        if len(given) != len(held):
            return path, f"went with {len(given)} keys, is read as {len(held)}"
        return _first(
            changed(value, held[key], (*path, str(key)), by_model=by_model)
            for key, value in given.items()
            if key in held
        )
    if type(given) in (list, tuple) and isinstance(held, (list, tuple)):
        if len(given) != len(held):
            return path, f"went with {len(given)} items, is read as {len(held)}"
        pairs = enumerate(zip(given, held, strict=True))
        return _first(changed(one, other, (*path, at), by_model=by_model) for at, (one, other) in pairs)
    if by_model or (type(held) is not type(given) and type(given) in _JSON_FORMS):
        return None
    if type(held) is not type(given):
        return path, f"went as {_kind(given)}, is read as {_kind(held)}"
    return difference(given, held, path)


def shrunk(given: Any, held: Any, path: Path = ()) -> Difference | None:
    """The place where reading a value made two entries of a mapping, or two items of a set, into one."""
    if held is given:
        return None
    if isinstance(given, Mapping) and isinstance(held, Mapping):
        if len(held) < len(given):
            return path, f"has {len(given)} keys, of which two are read as one: it has {len(held)} then"
        return _first(shrunk(value, held[key], (*path, str(key))) for key, value in given.items() if key in held)
    if isinstance(given, Set) and isinstance(held, Set):
        return (path, "has two items that are read as one") if len(held) < len(given) else None
    if isinstance(given, Mapping):
        parts = dict(parts_of(held))
        return _first(shrunk(value, parts[key], (*path, key)) for key, value in given.items() if key in parts)
    if isinstance(given, (list, tuple)) and isinstance(held, (list, tuple)) and len(given) == len(held):
        pairs = enumerate(zip(given, held, strict=True))
        return _first(shrunk(one, other, (*path, at)) for at, (one, other) in pairs)
    return None


def _generic_of(value: Any) -> Any:
    return getattr(type(value), "__pydantic_generic_metadata__", {}).get("origin")


_JSON_FORMS = (str, int, float, list)


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """The parts that a value is made of, each with the step that leads to it."""
    if isinstance(value, BaseModel):
        return list(_model_parts(value).items())
    if dataclasses.is_dataclass(value):
        return list(_dataclass_parts(value).items())
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    return []


def unwritten(value: Any, written: Any) -> bool:
    """True if a model or dataclass in a value has a field that is not in what was written of it."""
    parts = parts_of(value)
    if not parts:
        return False
    if not isinstance(written, dict | list):
        return False  # it has a form of its own
    if len(written) < len(parts):
        return True
    inner = written.values() if isinstance(written, dict) else written
    return any(unwritten(part, each) for (_, part), each in zip(parts, inner, strict=False))


def place_of(document: Any, mark: str, path: Path = ()) -> Path | None:
    """The path of the first text in a JSON document that is `mark`."""
    if document == mark:
        return path
    if isinstance(document, dict):
        steps: Any = document.items()
    elif isinstance(document, list):
        steps = enumerate(document)
    else:
        return None
    return next((found for key, part in steps if (found := place_of(part, mark, (*path, key))) is not None), None)


def _first(found: Iterator[Difference | None]) -> Difference | None:
    return next((each for each in found if each is not None), None)


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
    twins = {_at_offset(key): key for key in came}
    for key, value in went.items():
        at, name = (*path, str(key)), _at_offset(names[key])
        if name not in twins:
            return at, f"its key went as {_kind(key)} and does not come back"
        if type(twins[name]) is not type(key):
            return at, f"its key went as {_kind(key)}, comes back as {_kind(twins[name])}"
        if type(key) is not str and (found := difference(key, twins[name], at)) is not None:
            return at, f"its key {found[1]}"
        if (found := difference(value, came[twins[name]], at)) is not None:
            return found
    return (path, "comes back with other keys") if len(came) != len(went) else None


def _of_sets(went: Set[Any], came: Set[Any], path: Path) -> Difference | None:
    twins = {_at_offset(item): item for item in came}
    for item in went:
        at = clean_text(item) if type(item) is str else _at_offset(item)
        if at not in twins:
            return path, f"an item ({_kind(item)}) does not come back"
        if (found := difference(item, twins[at], path)) is not None:
            return found
    return (path, "comes back with other items") if len(came) != len(went) else None


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
        if isinstance(went, (datetime, time)):
            return _same_time(went, came)
        if isinstance(went, float) and math.isnan(went):
            return math.isnan(came)
        return bool(went == came)
    except BaseException as error:  # a comparison of the user's own: what cannot be told equal is not
        ensure_not_interrupted(error)
        return False


def _same_time(went: Any, came: Any) -> bool:
    """The same wall clock at the same offset.

    `==` of two zones is false in an hour that a zone repeats or skips.
    """
    if (went.tzinfo is None) != (came.tzinfo is None) or went.utcoffset() != came.utcoffset():
        return False
    return bool(went.replace(tzinfo=None, fold=0) == came.replace(tzinfo=None, fold=0))


def _at_offset(item: Any) -> Any:
    """A key or item of a set to look for: a time of a zone as the same time at a fixed offset."""
    if isinstance(item, datetime) and (offset := item.utcoffset()) is not None:
        return item.replace(tzinfo=timezone(offset), fold=0)
    return item
