"""Strict JSON: what may come in, what is repaired on its way out, and how a value is digested.

Owns every step between bytes and JSON values. Answers and other input that somebody can correct
are refused with a reason (`parse`, `check`); tool outputs and messages, which must not fail a
run, are repaired in the one way that `clean` documents. Knows nothing about schemas, does no I/O.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NoReturn

from pydantic import JsonValue

from adjourn.schemas.errors import MalformedJsonError, TooLargeError

__all__ = [
    "MAX_DEPTH",
    "MAX_NUMBER_DIGITS",
    "MAX_PATH",
    "REPLACEMENT",
    "JsonValue",
    "canonical",
    "check",
    "clean",
    "clean_keys",
    "clean_strings",
    "clean_text",
    "digest",
    "dumps",
    "parse",
    "pointer",
    "short_pointer",
]

MAX_NUMBER_DIGITS = 300
"""Longest integer that is read or written: every one of them still fits a double (below 1.8e308)."""

MAX_DEPTH = 128
"""Deepest nesting that `clean` leaves in place. Pydantic's reader gives up at 200, and what is stored is read inside
the containers of its item: a value that could be written and never read again would end its thread for good."""

MAX_PATH = 256
"""Longest path an error carries, in characters: keys belong to whoever sent them."""

REPLACEMENT = "\ufffd"
_NUL = "\x00"
_BOM = "\ufeff"
_LARGEST_INT: int = 10**MAX_NUMBER_DIGITS
_SURROGATE = re.compile("[\ud800-\udfff]")
_RISKY_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
# The closing quote is optional so that an unterminated string costs one pass, not one per quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [{0x5B: 1, 0x7B: 1, 0x5D: -1, 0x7D: -1}.get(byte, 0) for byte in range(256)]


_Place = tuple["_Place | None", str | int]
"""Where a container stands: its parent's place, and its key there."""


class _Fault:
    """Stands in a parsed document where something is wrong, until the walk that finds its path."""

    __slots__ = ("key", "reason")

    def __init__(self, reason: str, key: str | None = None) -> None:
        self.reason = reason
        self.key = key


def pointer(path: Iterable[str | int]) -> str:
    """JSON pointer (RFC 6901) of a path; the empty string is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def short_pointer(path: Iterable[str | int]) -> str:
    """`pointer`, made printable and cut to `MAX_PATH` characters, for errors and receipts."""
    text = clean_text(pointer(path))
    return text if len(text) <= MAX_PATH else text[: MAX_PATH - 1] + "…"


# --- in ---------------------------------------------------------------------------------------


def parse(data: bytes | str, *, max_bytes: int, max_depth: int) -> JsonValue:
    """Read exactly one strict JSON document.

    Refused: more than `max_bytes` bytes (of UTF-8, before anything else is looked at), nesting
    beyond `max_depth` containers, bytes that are not UTF-8, a byte order mark, NUL and lone
    surrogates (escaped ones too), duplicate keys, NaN and infinities, numbers that overflow to
    infinity, integers of more than `MAX_NUMBER_DIGITS` digits, anything after the document.

    Raises `TooLargeError` for the size, else `MalformedJsonError`, whose path is known for
    everything but syntax.
    """
    raw = _sized(data, max_bytes)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJsonError(f"not UTF-8 at byte {error.start}") from None
    if text.startswith(_BOM):
        raise MalformedJsonError("starts with a byte order mark")
    _refuse_deep(raw, max_depth)

    faults: list[_Fault] = []
    value: JsonValue = _load(text, faults)
    if faults or _RISKY_ESCAPE.search(text):
        check(value, max_depth=max_depth)
    return value


def check(value: Any, *, max_depth: int) -> None:
    """Hold a Python value to the rules of `parse`, for answers that never were bytes.

    Only the exact types that JSON has are values: a `StrEnum` is not a `str` here, a tuple is not
    a list. Raises `MalformedJsonError` with the path of the first fault. Does not recurse.
    """
    if (fault := _fault(value)) is not None:
        _refuse(fault, None)
    todo: list[tuple[Any, _Place | None, int]] = [(value, None, 1)]
    while todo:
        item, place, depth = todo.pop()
        if type(item) is dict:
            children: Iterable[tuple[Any, Any]] = item.items()
        elif type(item) is list:
            children = enumerate(item)
        else:
            continue
        if depth > max_depth:
            _refuse(_Fault(f"nested deeper than {max_depth} levels"), place)
        for key, child in children:
            if type(item) is dict and (fault := _key_fault(key)) is not None:
                _refuse(fault, place)
            if type(child) is dict or type(child) is list:
                todo.append((child, (place, key), depth + 1))
            elif (fault := _fault(child)) is not None:
                _refuse(fault, (place, key))


def _sized(data: bytes | str, max_bytes: int) -> bytes:
    # A character is at least one byte: this refuses a huge text without copying it.
    if len(data) > max_bytes:
        raise TooLargeError("document", len(data), max_bytes)
    if isinstance(data, bytes):
        return data
    try:
        raw = data.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedJsonError(f"lone surrogate at character {error.start}") from None
    if len(raw) > max_bytes:
        raise TooLargeError("document", len(raw), max_bytes)
    return raw


def _refuse_deep(raw: bytes, max_depth: int) -> None:
    """Measure nesting before the parser sees it: Python's own recurses, and dies or raises by version."""
    if raw.count(b"[") + raw.count(b"{") <= max_depth:
        return
    brackets = _STRING.sub(b"", raw).translate(None, delete=_NOT_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth:
        raise MalformedJsonError(f"nested deeper than {max_depth} levels")


def _load(text: str, faults: list[_Fault]) -> Any:
    def fault(reason: str, key: str | None = None) -> _Fault:
        faults.append(_Fault(reason, key))
        return faults[-1]

    def pairs(items: list[tuple[str, Any]]) -> Any:
        found = dict(items)
        if len(found) == len(items):
            return found
        [(repeated, _)] = Counter(key for key, _ in items).most_common(1)
        return fault("duplicate key", repeated)

    def integer(digits: str) -> Any:
        if len(digits.lstrip("-")) > MAX_NUMBER_DIGITS:
            return fault(f"integer of more than {MAX_NUMBER_DIGITS} digits")
        return int(digits)

    def number(digits: str) -> Any:
        value = float(digits)
        return fault("number too large for a double") if math.isinf(value) else value

    try:
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=number,
            parse_constant=lambda name: fault(f"{name} is not JSON"),
        )
    except json.JSONDecodeError as error:
        raise MalformedJsonError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise MalformedJsonError("nested too deeply") from None


def _fault(item: Any) -> _Fault | None:
    """What is wrong with a scalar. Containers are in order here; their content is looked at elsewhere."""
    kind = type(item)
    if kind is str:
        return _text_fault(item)
    if kind is float:
        return None if math.isfinite(item) else _Fault("NaN or infinity is not JSON")
    if kind is int:
        return None if abs(item) < _LARGEST_INT else _Fault(f"integer of more than {MAX_NUMBER_DIGITS} digits")
    if item is None or kind in (bool, list, dict):
        return None
    return item if isinstance(item, _Fault) else _Fault(f"{kind.__name__} is not a JSON value")


def _key_fault(key: Any) -> _Fault | None:
    if type(key) is not str:
        return _Fault(f"a key is not text but {type(key).__name__}")
    fault = _text_fault(key)
    return None if fault is None else _Fault(f"{fault.reason} in a key", key)


def _text_fault(text: str) -> _Fault | None:
    if _NUL in text:
        return _Fault("NUL character")
    if not text.isascii() and _SURROGATE.search(text):
        return _Fault("lone surrogate")
    return None


def _refuse(fault: _Fault, place: _Place | None) -> NoReturn:
    path: list[str | int] = [] if fault.key is None else [fault.key]
    while place is not None:
        place, key = place
        path.append(key)
    raise MalformedJsonError(fault.reason, short_pointer(reversed(path)))


# --- out --------------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """Replace NUL and every lone surrogate by U+FFFD; surrogates that form a pair become their character.

    The six characters backslash, u, 0, 0, 0, 0 are ordinary text and stay as they are.
    """
    if not text.isascii() and _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace(_NUL, REPLACEMENT)


def clean(value: Any) -> JsonValue:
    """Repair a JSON value so that every store and every reader takes it. Never raises for JSON values.

    - NUL and lone surrogates, in strings and in keys, become U+FFFD.
    - A key that thereby meets another key gets `~2`, `~3`, … appended; keys that were clean keep
      their name, so nothing is lost.
    - NaN, infinities and integers of more than `MAX_NUMBER_DIGITS` digits become null.
    - A container nested deeper than `MAX_DEPTH` becomes the string U+FFFD.
    """
    cleaned: JsonValue = _clean(value, 0, numbers=True, cut=True)
    return cleaned


def clean_strings(value: Any, *, cut: bool = False) -> Any:
    """The part of `clean` that concerns text, and with `cut` also depth. All else passes, for `check` to refuse."""
    return _clean(value, 0, numbers=False, cut=cut)


def clean_keys(keys: Iterable[Any]) -> dict[Any, Any]:
    """What `clean` calls each key, in order, collisions resolved. Keys that are no text stay as they are."""
    originals = list(keys)
    wanted = {key: clean_text(key) if type(key) is str else key for key in originals}
    taken = {key for key in originals if wanted[key] == key}
    named: dict[Any, Any] = {}
    for key in originals:
        name, copies = wanted[key], 1
        while name != key and name in taken:
            copies += 1
            name = f"{wanted[key]}~{copies}"
        taken.add(name)
        named[key] = name
    return named


def _clean(value: Any, depth: int, *, numbers: bool, cut: bool) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind in (dict, list):
        if depth >= MAX_DEPTH:
            return REPLACEMENT if cut else value
        if kind is list:
            return [_clean(item, depth + 1, numbers=numbers, cut=cut) for item in value]
        names = clean_keys(value)
        return {names[key]: _clean(item, depth + 1, numbers=numbers, cut=cut) for key, item in value.items()}
    if numbers and kind in (int, float) and _fault(value) is not None:
        return None
    return value


# --- text and digests -------------------------------------------------------------------------

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def copied(value: Any) -> Any:
    """JSON that is equal to `value` and shares nothing with it that can be changed."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value


def dumps(value: JsonValue) -> str:
    """Compact JSON text in the order of the keys; always encodable as UTF-8.

    Raises `MalformedJsonError` for what is not a JSON value (`clean` it first if it must not fail).
    """
    return _encoded(_compact, value)[0]


def canonical(value: JsonValue) -> bytes:
    """One form per value: keys sorted, no spaces, UTF-8, and whole floats written as integers.

    `1`, `1.0` and `1e0` are one number, as for a store that normalises numbers, so a value
    has the same digest before and after such a store. Raises `MalformedJsonError` as `dumps` does.
    """
    return _encoded(_sorted, _whole_numbers(value))[1]


def digest(value: JsonValue) -> str:
    """SHA-256 of `canonical`, 64 hexadecimal characters."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _encoded(encoder: json.JSONEncoder, value: JsonValue) -> tuple[str, bytes]:
    try:
        text = encoder.encode(value)
        return text, text.encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedJsonError("lone surrogate") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedJsonError(f"not a JSON value ({error})") from None


def _whole_numbers(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind is list:
        return [_whole_numbers(item) for item in value]
    if kind is dict:
        return {key: _whole_numbers(item) for key, item in value.items()}
    return value
