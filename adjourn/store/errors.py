"""What a store raises, beside the public errors."""

from __future__ import annotations


class ContradictedError(Exception):
    """What a run has stored contradicts itself, so that nothing can be recorded of it: its `seq` is not its last
    item, or a counter is at its end. The row was changed by something else than Adjourn."""
