"""Which fields of a value nobody set: they are left out of its JSON, so that unset and null stay apart.

Owns the comparison of a value's full JSON with its JSON without unset fields, and the edits by path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Path = tuple[str | int, ...]
"""Keys and indexes from the top of a JSON document."""


def gaps(full: Any, sparse: Any, path: Path = ()) -> list[Path]:
    """Return the paths of the keys that `full` has and `sparse` does not."""
    if isinstance(full, dict) and isinstance(sparse, dict):
        return [
            gap
            for key, value in full.items()
            for gap in (gaps(value, sparse[key], (*path, key)) if key in sparse else [(*path, key)])
        ]
    if isinstance(full, list) and isinstance(sparse, list) and len(full) == len(sparse):
        pairs = zip(full, sparse, strict=True)
        return [gap for at, (one, other) in enumerate(pairs) for gap in gaps(one, other, (*path, at))]
    return []


def without(document: Any, paths: Iterable[Sequence[str | int]]) -> Any:
    """Return a copy of `document` without the keys at `paths`. A path that leads nowhere changes nothing."""
    return _without(document, [tuple(path) for path in paths])


def _without(document: Any, paths: list[Path]) -> Any:
    if not paths:
        return document
    dropped = {path[0] for path in paths if len(path) == 1}
    deeper: dict[str | int, list[Path]] = {}
    for path in paths:
        if len(path) > 1:
            deeper.setdefault(path[0], []).append(path[1:])
    if isinstance(document, dict):
        kept = {key: value for key, value in document.items() if key not in dropped}
        return {key: _without(value, deeper.get(key, [])) for key, value in kept.items()}
    if isinstance(document, list):
        return [_without(value, deeper.get(at, [])) for at, value in enumerate(document)]
    return document


def blamed(paths: list[Path], faults: Iterable[Path]) -> list[Path]:
    """Return those of `paths` that may be why a document without them does not come back.

    They are the ones at, above or below a fault; else its siblings; else all.
    """
    found = list(faults)
    near = [path for path in paths if any(_in_line(path, fault) for fault in found)]
    beside = [path for path in paths if any(path[:-1] == fault[:-1] for fault in found)]
    return near or beside or paths


def _in_line(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def filled(document: Any, source: Any, paths: Iterable[Path]) -> Any | None:
    """Return a copy of `document` with the values that `source` has at `paths`; None if one cannot be filled in."""
    for path in paths:
        if not path:
            return None
        document = _filled(document, source, path)
        if document is None:
            return None
    return document


def _filled(document: Any, source: Any, path: Path) -> Any | None:
    key, rest = path[0], path[1:]
    try:
        value = source[key]
        if rest:
            value = _filled(document[key], value, rest)
    except (KeyError, IndexError, TypeError):
        return None
    if value is None and rest:
        return None
    if isinstance(document, dict):
        return {**document, key: value}
    if isinstance(document, list) and isinstance(key, int):
        return [*document[:key], value, *document[key + 1 :]]
    return None
