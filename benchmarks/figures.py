"""Numbers out of measurements, and numbers as text. Measures nothing itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing: their median and their extremes."""

    median: float
    low: float
    high: float
    repetitions: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises `ValueError` if there are none."""
        if not values:
            raise ValueError("no measurements")
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        return f"{short(self.median)} [{short(self.low)}..{short(self.high)}]"

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed.

    Raises `ValueError` if there are none.
    """
    if not values:
        raise ValueError("no measurements")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours over theirs, repetition by repetition.

    The two of one repetition ran right after one another, so whatever else the machine did weighs
    on both; a ratio of two medians would not have that.
    """
    return Spread.of([mine / other for mine, other in zip(ours, theirs, strict=True)])


def short(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need; the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    lines = []
    for line in (header, tuple("-" * width for width in widths), *rows):
        others = (text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))
        lines.append("  ".join((line[0].ljust(widths[0]), *others)).rstrip())
    return "\n".join(lines)
