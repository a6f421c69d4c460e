"""Where two JSON values differ, as a JSON pointer for people. Pure."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final

from adjourn.schemas.strict_json import digest, short_pointer

_ABSENT: Final = object()


def difference(before: Any, now: Any) -> str | None:
    """The JSON pointer of the first field that differs, in the order of the names; None if nothing does.

    Numbers are compared as JSON: 1 and true differ.
    """
    path = _path(before, now, ())
    return None if path is None else short_pointer(path)


def _path(before: Any, now: Any, path: tuple[str | int, ...]) -> tuple[str | int, ...] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            if name not in before or name not in now:
                return (*path, name)
            if (found := _path(before[name], now[name], (*path, name))) is not None:
                return found
        return None
    if isinstance(before, list) and isinstance(now, list):
        for at, (one, other) in enumerate(zip_longest(before, now, fillvalue=_ABSENT)):
            if one is _ABSENT or other is _ABSENT:
                return (*path, at)
            if (found := _path(one, other, (*path, at))) is not None:
                return found
        return None
    return None if digest(before) == digest(now) else path
