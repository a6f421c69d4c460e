"""Names that every model provider accepts."""

from __future__ import annotations

import re
from typing import Final

LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


def legal_name(name: str) -> str:
    """`name` with every illegal character replaced by `_`, cut to the longest legal length, never empty."""
    return _ILLEGAL.sub("_", name)[:_LONGEST] or "unnamed"
