"""The documents say what the summaries say, and a summary says how it came out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.summary import Summary, Table, command_line, conclude
from tests import report


def summary(**fields: Any) -> Summary:
    known: dict[str, Any] = {
        "kind": "Chaos",
        "command": "python -m tests.chaos --seed 1",
        "counts": {"accepted answers": 10_000, "faults": 1000},
        "seconds": 1800,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "commit": "abc1234",
        "cores": 2,
        "load": 1.5,
    }
    return Summary.model_validate({**known, **fields})


@pytest.mark.parametrize(
    ("fields", "result", "code"),
    [
        ({}, "no finding", 0),
        ({"findings": ("lost",)}, "1 findings", 1),
        ({"missing": ("5 faults",)}, "not complete: 5 faults", 1),
        ({"must_find": True}, "not noticed", 1),
        ({"must_find": True, "findings": ("lost",), "missing": ("5 faults",)}, "noticed", 0),
    ],
)
def test_a_command_ends_with_its_result(
    fields: dict[str, Any], result: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = summary(**fields)
    file = tmp_path / "deep" / "chaos.json"
    assert (made.result, conclude(made, file)) == (result, code)
    assert capsys.readouterr().out.splitlines()[-1] == made.verdict
    assert report.read([file]) == [made]


def test_the_file_is_no_part_of_the_command_that_says_it_again() -> None:
    assert (
        command_line("tests.crash", ["--all", "--json", "x.json", "--freeze"]) == "python -m tests.crash --all --freeze"
    )
    assert command_line("tests.crash", ["--json=x.json", "--all"]) == "python -m tests.crash --all"


def test_the_overview_has_a_line_for_each_but_the_times() -> None:
    times = summary(kind=report.RECOVERY, tables=(Table(name="t", head=("after", "s"), rows=(("a crash", "2.1"),)),))
    both = [summary(), times]
    assert report.overview(both).splitlines() == [
        "| what was tried | how often | result | time |",
        "| --- | --- | --- | ---: |",
        "| Chaos | 10,000 accepted answers, 1,000 faults | **no finding** | 30 min |",
    ]
    assert report.recovery(both).splitlines()[:3] == ["| after | s |", "| --- | ---: |", "| a crash | 2.1 |"]
    assert "abc1234" in report.details(both)


def test_a_block_stands_between_its_markers() -> None:
    begin, end = "<!-- tried: written by tests.report -->", "<!-- end of tried -->"
    once = report.filled(f"a\n{begin}\nold\n{end}\nz", "tried", "new")
    assert once == f"a\n{begin}\n\nnew\n\n{end}\nz"
    assert report.filled(once, "tried", "new") == once
    with pytest.raises(ValueError, match="no markers for 'other'"):
        report.filled(once, "other", "new")


def test_the_documents_say_what_the_summaries_say() -> None:
    summaries = report.read(sorted(report.RESULTS.glob("*.json")))
    assert summaries
    for document, text in report.documents(summaries).items():
        assert document.read_text() == text, "run python -m tests.report"
