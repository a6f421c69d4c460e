"""A safeguard: a piece of code without which a test has to fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Safeguard:
    """One rule of the code, the text that states it, and the tests that fail without it."""

    rule: str
    """The rule in a few words; unique."""
    file: str
    """The module, relative to the checkout."""
    text: str
    """The code that is taken out. It stands in the file exactly once."""
    instead: str
    """The code that takes its place."""
    tests: tuple[str, ...]
    """Node ids of pytest. At least one of them fails without the safeguard."""
