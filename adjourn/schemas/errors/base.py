"""The root of the error tree, and how its messages repeat what a caller gave."""

from __future__ import annotations

from typing import Final


class AdjournError(Exception):
    """Base of all errors of this package."""


_SHOWN: Final = 100
"""Characters of what a caller gave that a message repeats."""


def shown(given: object) -> str:
    """In one short line, whatever it is."""
    try:
        said = repr(given[:_SHOWN] if isinstance(given, str | bytes) else given)
    except Exception:  # of code of its own
        said = f"a {type(given).__name__} that cannot be shown"
    return said if len(said) <= 2 * _SHOWN else f"{said[:_SHOWN]}…"


def shown_id(given: object) -> str:
    """As it is, if it is one."""
    return given if isinstance(given, str) and given.isprintable() and len(given) <= _SHOWN else shown(given)
