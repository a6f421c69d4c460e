"""Text of models, users and tools in one line, without anything that a terminal would act on."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


SHORT: Final = 120
"""Characters of a text that a line of a table or timeline shows."""


def one_line(text: str, limit: int | None = None) -> str:
    """`text` without anything that a terminal would act on, in one line, cut to `limit` characters."""
    shown = _CONTROL.sub(lambda match: _NAMED.get(match[0], f"\\u{ord(match[0]):04x}"), text)
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def as_json(value: Any) -> str:
    """A value as compact JSON, for a line of text."""
    return one_line(json.dumps(value, ensure_ascii=False))
