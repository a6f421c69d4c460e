"""What commands write: for programs, for people, and never what a terminal would act on."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from adjourn.schemas.records.items import (
    EndItem,
    FaultItem,
    Item,
    ItemBody,
    MemoItem,
    MessageItem,
    OutputItem,
    ResolutionItem,
    ResponseItem,
    RouteItem,
    RunFailure,
    SuspensionItem,
)
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import Run
from adjourn.worker.cli.output import emit_rows
from adjourn.worker.text.lines import one_line
from adjourn.worker.text.timeline import headline, result, timeline

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
BODIES: list[tuple[ItemBody, list[str]]] = [
    (MessageItem(text="go\non"), ["go\\non"]),
    (ResponseItem(text="hello"), ["hello"]),
    (
        ResponseItem(
            text="",
            calls=(
                ToolCall(id="c1", tool="ask", args={"x": 1, "y": "z"}),
                ToolCall(id="c2", tool="ask", args={}, fault="no JSON"),
            ),
        ),
        ['calls ask(x=1, y="z")', "calls ask()  (cannot run: no JSON)"],
    ),
    (OutputItem(call_id="c1", tool="ask", outcome="success", content={"ok": True}), ['ask → {"ok": true}']),
    (OutputItem(call_id="c1", tool="ask", outcome="declined", content="no"), ['ask (declined) → "no"']),
    (MemoItem(call_id="c1", key="sent", value=3), ["sent = 3"]),
    (SuspensionItem(call_id="c1", action_id="act_1", name="ask.gate"), ["ask.gate waits as act_1"]),
    (
        ResolutionItem(call_id="c1", action_id="act_1", status="submitted", answered_by="alice"),
        ["act_1 submitted by alice"],
    ),
    (FaultItem(message="model m: 429"), ["model m: 429 (tried again later)"]),
    (EndItem(status="completed"), ["completed"]),
    (EndItem(status="failed", error=RunFailure(type="E", message="m")), ["failed: E: m"]),
]


@pytest.mark.parametrize(("body", "said"), BODIES, ids=[body.kind for body, _ in BODIES])
def test_a_timeline_says_what_each_item_says(body: ItemBody, said: list[str]) -> None:
    lines = list(timeline([Item(run_id="run_1", seq=1, at=AT, body=body)]))
    place = f"1  2026-01-02 03:04:05.678  {body.kind:<10}  "
    assert lines == [(place if number == 0 else " " * len(place)) + text for number, text in enumerate(said)]


def test_control_characters_are_shown_and_not_sent() -> None:
    assert one_line("a\x1b]0;title\x07b\r\n\x9b2J\u202e") == "a\\u001b]0;title\\u0007b\\r\\n\\u009b2J\\u202e"


def test_a_long_text_is_cut() -> None:
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


def test_rows_are_one_line_each_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows(("a", "b"), [("1", "two\tthree\nfour"), ("[red]", "")], "nothing")
    assert capsys.readouterr().out == "1\ttwo\\tthree\\nfour\n[red]\t\n"


def test_no_rows_are_no_lines_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows(("a",), [], "nothing")
    assert capsys.readouterr() == ("", "")


def test_what_happens_inside_a_block_is_indented_and_named_after_it() -> None:
    inner = ToolCall(id="c1", tool="helper", args={})
    asks = ToolCall(id="c2", tool="ask", args={})
    bodies: list[ItemBody] = [
        MessageItem(text="go"),
        OutputItem(call_id="root/draft", tool="draft", outcome="success", content="d"),
        ResponseItem(call_id="root/writer", text="", calls=(inner,)),
        RouteItem(call_id="c1", route="long"),
        ResponseItem(call_id="c1/long", text="", calls=(asks,)),
        SuspensionItem(call_id="c2", action_id="act_1", name="ask.gate"),
        OutputItem(call_id="c1", tool="helper", outcome="success", content="h"),
        OutputItem(call_id="root", tool="pipeline", outcome="success", content="p"),
    ]
    items = [Item(run_id="run_1", seq=seq, at=AT, body=body) for seq, body in enumerate(bodies, 1)]
    said = [line[len("1  2026-01-02 03:04:05.678  suspension  ") :] for line in timeline(items)]
    assert said == [
        "go",
        'draft → "d"',
        "  writer: calls helper()",
        "    helper: takes route long",
        "      long: calls ask()",
        "      long: ask.gate waits as act_1",
        '  writer: helper → "h"',
        'pipeline → "p"',
    ]


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"status": "completed", "output": "fine"}, ["fine"]),
        ({"status": "completed", "output": {"a": 1}}, ['{"a": 1}']),
        ({"status": "failed", "error": RunFailure(type="E", message="m\x1b")}, ["E: m\\u001b"]),
        ({"status": "parked"}, []),
    ],
)
def test_a_result_is_the_output_or_the_error(ended: dict[str, object], said: list[str]) -> None:
    run = Run.model_validate(
        {"id": "run_1", "thread_id": "thr_1", "agent": "a", "created_at": AT, "updated_at": AT, **ended}
    )
    assert list(result(run)) == said
    assert headline(run).startswith(f"run_1  a  {ended['status']}")


def test_a_narrow_terminal_neither_cuts_nor_folds_an_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    emit_rows(("action", "asks"), [("act_" + "x" * 40, "Go on?\x1b[2J")], "nothing")
    said = capsys.readouterr().out
    assert f"act_{'x' * 40}  Go on?" in said
    assert "\x1b[2J" not in said


def test_people_are_told_that_there_is_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    emit_rows(("a",), [], "nothing yet")
    assert capsys.readouterr() == ("", "nothing yet\n")
