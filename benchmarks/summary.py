"""What one command tried, how often and with what result: a file that `python -m tests.report` makes tables of.

Every command that tries or measures something ends with `conclude`, so that all of them end alike: with a plain
verdict, the exit code, and the summary for whoever asked for it. Owns no judgement: a command says what it found.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from adjourn.schemas.records.record import Record

ROOT: Final = Path(__file__).parents[1]
FINDINGS_SHOWN: Final = 20
CODE: Final = ("adjourn", "benchmarks", "tests", "pyproject.toml")
"""What has to be as the commit says, for a summary to be of that commit."""


class Table(Record):
    """A table of what was counted or measured, besides the line that each summary is."""

    name: str
    """What goes before it, as a sentence."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Summary(Record):
    """What was tried, how often, with what result."""

    kind: str
    """What is tried; two summaries of one kind and `choice` are of the same thing at other times."""
    choice: str = ""
    """Which variant: a broker, what strikes."""
    command: str
    """Says it again."""
    counts: dict[str, int]
    """How often: what the counting unit is, and its number."""
    findings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What was asked for and not done. Nothing was found there, and nothing was shown either."""
    must_find: bool = False
    """Whether a safeguard was left out, so that something has to be found."""
    tables: tuple[Table, ...] = ()
    seconds: float
    at: datetime
    commit: str
    """With `-dirty` if the tree was not what the commit says."""
    cores: int
    load: float
    """On the average of the last minute, at the end."""

    @property
    def passed(self) -> bool:
        """Whether everything was tried and came out as it has to."""
        return bool(self.findings) if self.must_find else not (self.findings or self.missing)

    @property
    def result(self) -> str:
        """In a few words."""
        if self.must_find:
            return "noticed" if self.findings else "not noticed"
        if self.findings:
            return f"{len(self.findings):,} findings"
        return f"not complete: {'; '.join(self.missing)}" if self.missing else "no finding"

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.choice}" if self.choice else self.kind

    @property
    def counted(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.counts.items())

    @property
    def verdict(self) -> str:
        """One line: what came of it."""
        word = "PASSED" if self.passed else "FAILED"
        return f"{word}: {self.title}: {self.counted}: {self.result}, in {self.seconds:,.0f} s"


class Stopwatch:
    """Begins with the command, and knows what to write down about its circumstances."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def summary(
        self,
        command: str,
        kind: str,
        counts: dict[str, int],
        *,
        choice: str = "",
        must_find: bool = False,
        findings: Sequence[str] = (),
        missing: Sequence[str] = (),
        tables: Sequence[Table] = (),
    ) -> Summary:
        """What was tried until now."""
        return Summary(
            kind=kind,
            choice=choice,
            command=command,
            counts=counts,
            must_find=must_find,
            findings=tuple(findings),
            missing=tuple(missing),
            tables=tuple(tables),
            seconds=round(self.seconds, 1),
            at=datetime.now(UTC).replace(microsecond=0),
            commit=_commit(),
            cores=os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 1),
        )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option that all commands have alike."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there, for `tests.report`")


def command_line(module: str, arguments: Sequence[str] | None) -> str:
    """How to say it again: without the file that the summary goes to."""
    said = list(sys.argv[1:] if arguments is None else arguments)
    while "--json" in said:
        at = said.index("--json")
        del said[at : at + 2]
    return shlex.join(["python", "-m", module, *(word for word in said if not word.startswith("--json="))])


def conclude(summary: Summary, file: Path | None) -> int:
    """Say how it ended, and write it down. Returns the exit code: 0 if it came out as it has to."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(summary.model_dump_json(indent=1) + "\n")
    for what, lines in (("found", summary.findings), ("not done", summary.missing)):
        for line in lines[:FINDINGS_SHOWN]:
            print(f"{what}: {line}")
        if len(lines) > FINDINGS_SHOWN:
            print(f"{what}: and {len(lines) - FINDINGS_SHOWN} more")
    print(summary.verdict, flush=True)
    return 0 if summary.passed else 1


def _commit() -> str:
    """Of the tree that this runs from; outside of a checkout the version."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return version("adjourn")
    return f"{name}-dirty" if changed else name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
