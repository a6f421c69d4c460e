"""Mappings in a tool's output of which two keys are the same text in JSON: both entries are written.

The tool's work is done, so the output must not become an error, and no entry may be lost without a word. Keys that
are text keep their name. Another key that meets one of them gets `~2`, `~3`, … appended, as in `strict_json.clean`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from adjourn.schemas.interrupts import ensure_not_interrupted
from adjourn.schemas.strict_json import MAX_DEPTH


def no_form(value: Any) -> str:
    """Return the text that stands for a value without a JSON form."""
    return f"<{type(value).__name__}: no JSON form>"


def distinct_names(keys: Sequence[Any], texts: Sequence[str]) -> list[str]:
    """Return the name of each key in JSON, of which `texts` are the wanted ones. No two are the same."""
    taken = {text for key, text in zip(keys, texts, strict=True) if type(key) is str and key == text}
    names = []
    for key, text in zip(keys, texts, strict=True):
        name, copies = text, 1
        while name in taken and not (type(key) is str and key == text):
            copies += 1
            name = f"{text}~{copies}"
        taken.add(name)
        names.append(name)
    return names


def write_distinct(value: Any, write: Callable[[Any], Any]) -> Any:
    """Serialize a mapping; entry by entry if it would get shorter. Serializers of the user's own name its keys."""
    written = write(value)
    if not isinstance(written, dict) or not isinstance(value, Mapping) or len(written) >= len(value):
        return written
    entries = [(key, write(_only(value, key))) for key in value]
    if not all(isinstance(entry, dict) and len(entry) == 1 for _, entry in entries):
        return written  # a serializer of the user's own leaves entries out
    names = distinct_names([key for key, _ in entries], [next(iter(entry)) for _, entry in entries])
    return {name: next(iter(entry.values())) for name, (_, entry) in zip(names, entries, strict=True)}


def write_any(value: Any, write: Callable[[Any], Any]) -> Any:
    """Serialize a value whose type says nothing about it."""
    return write(distinct(value))


def distinct(value: Any, depth: int = 0) -> Any:
    """Return the value with keys renamed where two would be written as one; itself if there are none. Never raises."""
    if depth > MAX_DEPTH or type(value) in (str, int, float, bool, type(None)):
        return value
    try:
        return _distinct(value, depth)
    except BaseException as problem:  # whatever the value's own code raises: it is written as it is
        ensure_not_interrupted(problem)
        return value


def _distinct(value: Any, depth: int) -> Any:
    if isinstance(value, BaseModel):
        changed = _changed({**value.__dict__, **(value.__pydantic_extra__ or {})}, depth)
        return value.model_copy(update=changed) if changed else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]
        changed = _changed({name: getattr(value, name) for name in names}, depth)
        if not changed:
            return value
        twin = copy.copy(value)
        for name, part in changed.items():
            object.__setattr__(twin, name, part)
        return twin
    if isinstance(value, Mapping):
        return _distinct_mapping(value, depth)
    if isinstance(value, (list, tuple, deque)):
        parts = [distinct(each, depth + 1) for each in value]
        if all(one is other for one, other in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _distinct_mapping(value: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
    keys = list(value)
    changed = _changed(value, depth)
    names: list[Any] = keys
    if len(keys) > 1 and any(type(key) is not str for key in keys):
        texts = [_text(key) for key in keys]
        if len(set(texts)) < len(texts):
            names = distinct_names(keys, texts)
    if not changed and names is keys:
        return value
    return {name: changed.get(key, value[key]) for name, key in zip(names, keys, strict=True)}


def _changed(parts: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    found = {}
    for key, part in parts.items():
        other = distinct(part, depth + 1)
        if other is not part:
            found[key] = other
    return found


def _text(key: Any) -> str:
    """A key as pydantic writes it where no type says how."""
    if type(key) is str:
        return key
    try:
        text: str = next(iter(to_jsonable_python({key: None}, inf_nan_mode="constants")))
        return text
    except BaseException as problem:  # of a key of the user's own class
        ensure_not_interrupted(problem)
        return no_form(key)


def _only(value: Mapping[Any, Any], key: Any) -> Any:
    """A mapping of the same class with this entry alone."""
    if type(value) is dict or not isinstance(value, dict):
        return {key: value[key]}
    only = copy.copy(value)
    for other in list(only):
        if other is not key:
            del only[other]
    return only
