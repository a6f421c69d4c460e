"""The journal's judgement: which repetitions break the promise, and which are those of an interrupted body."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

from adjourn.schemas.records.items import Item, ItemBody, MessageItem, OutputItem, ResponseItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import Run
from tests.chaos.journal import Journal, repetitions
from tests.chaos.ledger import Row
from tests.crash.checker import RunFacts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BODIES: tuple[ItemBody, ...] = (
    MessageItem(text="go"),
    ResponseItem(text="", calls=(ToolCall(id="call_1", tool="plain", args={}),)),
    OutputItem(call_id="call_1", tool="plain", outcome="success", content="done"),
)
"""Recorded at noon, and one and two seconds later."""


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def row(seconds: float, kind: str, token: str, *, step: int = 0) -> Row:
    call_id = "0" if kind == "model" else "call_1"
    return Row(at(seconds), kind, "run_1", call_id, "plain", None, token, step)  # type: ignore[arg-type]


def judged(*rows: Row, claims: dict[str, float], crashes: tuple[float, ...] = ()) -> list[str]:
    """What is said of a run whose items were all written under the claim `writer`."""
    run = Run(id="run_1", thread_id="thr_1", agent="a", status="completed", created_at=NOON, updated_at=NOON)
    items = tuple(Item(run_id="run_1", seq=n + 1, at=at(n), body=body) for n, body in enumerate(BODIES))
    journal = Journal(
        {token: at(seconds) for token, seconds in claims.items()},
        defaultdict(list, {"run_1": [(0, 1, None), (1, 3, "writer")]}),
    )
    return list(repetitions(RunFacts(run, items, ()), rows, journal, [at(seconds) for seconds in crashes]))


def test_what_is_done_once_is_fine() -> None:
    assert judged(row(0.5, "model", "writer"), row(1.5, "body", "writer"), claims={"writer": 0}) == []


def test_a_body_that_was_interrupted_may_run_again() -> None:
    assert judged(row(0.5, "body", "first"), row(1.5, "body", "writer"), claims={"first": 0, "writer": 1.2}) == []


def test_a_stale_process_may_begin_what_it_had_decided_before_it_was_recorded() -> None:
    assert judged(row(1.5, "body", "writer"), row(9, "body", "stale"), claims={"stale": 0, "writer": 1.2}) == []


def test_a_finished_tool_under_a_later_claim_is_a_finding() -> None:
    found = judged(row(1.5, "body", "writer"), row(9, "body", "later"), claims={"writer": 0, "later": 8})
    assert found == ["body plain was recorded and ran again"]


def test_a_finished_tool_again_under_the_claim_that_recorded_it_is_a_finding() -> None:
    found = judged(row(1.5, "body", "writer"), row(3, "body", "writer", step=1), claims={"writer": 0})
    assert found == ["body plain was recorded and ran again"]


def test_a_recorded_turn_that_is_asked_again_is_a_finding() -> None:
    found = judged(row(0.5, "model", "writer"), row(5, "model", "later"), claims={"writer": 0, "later": 4})
    assert found == ["model plain was recorded and ran again"]


def test_one_pass_twice_under_one_claim_is_a_finding() -> None:
    found = judged(row(1.2, "body", "writer"), row(1.4, "body", "writer"), claims={"writer": 0})
    assert found == ["body plain ran twice under one claim"]


def test_a_claim_that_a_crash_of_the_database_forgot_was_made_before_it() -> None:
    rows = (row(1.5, "body", "writer"), row(3, "body", "forgotten"))
    assert judged(*rows, claims={"writer": 0}, crashes=(2.5,)) == []
    assert judged(*rows, claims={"writer": 0}) == ["body plain was recorded and ran again"]
