"""What becomes of the copies of runs in a fork."""

from __future__ import annotations

from typing import Final

from adjourn.schemas.records.items import EndItem, RunFailure

CUT: Final = EndItem(
    status="cancelled",
    error=RunFailure(type="Forked", message="its thread was forked here, before it had ended there"),
)
"""How a run ends in a fork whose copied part has no end."""
COPY_OF_FAILED: Final = RunFailure(type="Forked", message="this is a copy, to be read; the run that failed is another")
"""The error of the copy of a failed run, with that of the run as its data. Nothing retries it, for its waits, memos
and effects are the run's; its `end` item says what failed."""
