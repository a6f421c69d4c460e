"""`python -m tests.report [FILE ...] [--check]`: what was tried, how often and with what result, into the documents.

Takes the summaries that the commands wrote with `--json`, those in docs/results if none are named, and writes what
follows from them between the markers in docs/guarantees.md and docs/results.md. No figure there is typed by hand;
`--check` only says, by the exit code, whether what stands there is what the summaries say.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.summary import ROOT, Summary, Table

RESULTS: Final = ROOT / "docs" / "results"
GUARANTEES: Final = ROOT / "docs" / "guarantees.md"
DETAILS: Final = ROOT / "docs" / "results.md"
RECOVERY: Final = "Recovery times"
NOTHING: Final = "Nothing yet."
MINUTE: Final = 60


def overview(summaries: Sequence[Summary]) -> str:
    """One line for each thing that was tried."""
    head = ("what was tried", "how often", "result", "time")
    rows = [(s.title, s.counted, f"**{s.result}**", _time(s.seconds)) for s in summaries if s.kind != RECOVERY]
    return _markdown(head, rows) if rows else NOTHING


def recovery(summaries: Sequence[Summary]) -> str:
    """The recovery times, and on what they were measured."""
    measured = [s for s in summaries if s.kind == RECOVERY]
    blocks = [f"{_markdown_of(table)}\n\n{_where(s)}" for s in measured for table in s.tables]
    return "\n\n".join(blocks) or NOTHING


def details(summaries: Sequence[Summary]) -> str:
    """Everything that the summaries say."""
    return "\n\n".join(_section(summary) for summary in summaries) or NOTHING


BLOCKS: Final[dict[Path, dict[str, Callable[[Sequence[Summary]], str]]]] = {
    GUARANTEES: {"tried": overview, "recovery": recovery},
    DETAILS: {"details": details},
}
"""The documents, and what stands between which markers of them."""


def filled(text: str, name: str, content: str) -> str:
    """A document with new content between its markers of this name. Raises `ValueError` if it has none."""
    begin, end = f"<!-- {name}: written by tests.report -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"no markers for {name!r}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def documents(summaries: Sequence[Summary]) -> dict[Path, str]:
    """The documents as they should be."""
    made = {}
    for document, blocks in BLOCKS.items():
        text = document.read_text()
        for name, block in blocks.items():
            text = filled(text, name, block(summaries))
        made[document] = text
    return made


def read(files: Sequence[Path]) -> list[Summary]:
    """The summaries, in the order of their titles."""
    found = [Summary.model_validate_json(file.read_text()) for file in files]
    return sorted(found, key=lambda summary: (summary.kind, summary.choice, summary.at))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.report", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="default: docs/results/*.json")
    parser.add_argument("--check", action="store_true", help="change nothing; the exit code is 1 if something would")
    options = parser.parse_args(arguments)
    summaries = read(options.files or sorted(RESULTS.glob("*.json")))
    changed = {document: text for document, text in documents(summaries).items() if document.read_text() != text}
    for summary in summaries:
        print(summary.verdict)
    for document, text in changed.items():
        print(f"{document.relative_to(ROOT)} {'is not what the summaries say' if options.check else 'written'}")
        if not options.check:
            document.write_text(text)
    return 1 if options.check and changed else 0


def _section(summary: Summary) -> str:
    parts = [
        f"## {summary.title}",
        f"`{summary.command}`",
        f"{summary.counted}: **{summary.result}**.",
        _where(summary),
    ]
    if summary.findings:
        parts.append("\n".join(f"- {finding}" for finding in summary.findings))
    for table in summary.tables:
        parts += [f"{table.name}:", _markdown_of(table)]
    return "\n\n".join(parts)


def _where(summary: Summary) -> str:
    return (
        f"On {summary.at:%Y-%m-%d}, at commit {summary.commit}, in {_time(summary.seconds)} on {summary.cores} cores,"
        f" with a load of {summary.load:g} at the end."
    )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} min"


def _markdown_of(table: Table) -> str:
    return _markdown(table.head, table.rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with columns of numbers to the right."""
    numbers = [all(_is_number(row[column]) for row in rows) for column in range(len(head))]
    rule = ["---:" if number else "---" for number in numbers]
    lines = [head, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"-|[\d,.]+( s| min)?( \(.*\))?", cell) is not None


if __name__ == "__main__":
    sys.exit(main())
