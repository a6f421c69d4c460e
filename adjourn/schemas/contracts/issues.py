"""How much an error may say: issues are stored, sent back and logged, and quote what others wrote."""

from __future__ import annotations

from collections.abc import Iterable

from adjourn.schemas.errors import ValidationIssue
from adjourn.schemas.strict_json import clean_text

MAX_ISSUES = 20
"""How many issues an error names; the rest is counted."""

MAX_MESSAGE = 200
"""Longest message of an issue, in characters: some quote what a validator was given."""


def shorten(message: str) -> str:
    """A message cut to `MAX_MESSAGE` characters, fit to be stored."""
    text = clean_text(message)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def bounded(issues: Iterable[ValidationIssue]) -> list[ValidationIssue]:
    """The issues, each once, cut to `MAX_ISSUES` and a line that counts the others."""
    told = list(dict.fromkeys(issues))
    if len(told) > MAX_ISSUES:
        told[MAX_ISSUES:] = [ValidationIssue("", f"and {len(told) - MAX_ISSUES} more")]
    return told
