"""The version of what is stored, and the ledger of what each version changed.

A worker reads every version in the ledger and writes the newest.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

STATE_VERSION: Final = 1

LEDGER: Final = MappingProxyType(
    {
        1: "The first version.",
    }
)
