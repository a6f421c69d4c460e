"""The checker finds what it is there to find: each test breaks one thing about a sound run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adjourn.schemas.records.actions import ActionState, Origin, PendingAction, Resolution
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.items import (
    EndItem,
    Item,
    ItemBody,
    MemoItem,
    MessageItem,
    OutputItem,
    ResolutionItem,
    ResponseItem,
    RetryItem,
    SuspensionItem,
)
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall, Usage
from adjourn.schemas.records.runs import Run
from tests.crash.checker import Facts, RunFacts, Sent, check
from tests.crash.ledger import Kind, Row

RUN, CALL, ACTION, VALUE = "run_1", "call_1", "act_1", {"value": "yes"}


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def row(seconds: float, kind: Kind, name: str = "gated", value: str | None = None, call_id: str = CALL) -> Row:
    return Row(at(seconds), kind, RUN, call_id, name, value)


BODIES: list[ItemBody] = [
    MessageItem(text=RUN),
    ResponseItem(text="", calls=(ToolCall(id=CALL, tool="gated", args={}),)),
    MemoItem(call_id=CALL, key="charge", value="charged"),
    SuspensionItem(call_id=CALL, action_id=ACTION, name="gated.gate"),
    ResolutionItem(call_id=CALL, action_id=ACTION, status="submitted", answer_id="first"),
    OutputItem(call_id=CALL, tool="gated", outcome="success", content="1: yes"),
    ResponseItem(text="done"),
    EndItem(status="completed"),
]
"""Each a tenth of a second after the one before; its seq is its time."""

CLOSED: list[ItemBody] = [
    ResolutionItem(call_id=CALL, action_id=ACTION, status="cancelled"),
    EndItem(status="failed"),
    RetryItem(),
]
"""A run that failed beside its wait, and goes on."""

LEDGER = (
    row(0.15, "model", "gated", call_id="0"),
    row(0.25, "body"),
    row(0.26, "once", "charge"),
    row(0.55, "body"),
    row(0.56, "answer", "gate", "yes"),
    row(0.57, "effect"),
    row(0.65, "model", "gated", call_id="1"),
)


def sound() -> Facts:
    """A run with one answered wait, as it should be."""
    return Facts(
        runs=(RunFacts(a_run(), items(BODIES), (an_action(),)),),
        ledger=LEDGER,
        sent=(Sent(ACTION, "first", "submit", VALUE, (Receipt(status="accepted"),)),),
        expected={RUN: "completed"},
        interruptions=0,
    )


def a_run(**fields: Any) -> Run:
    known: dict[str, Any] = {
        "id": RUN,
        "thread_id": "thread_1",
        "agent": "gated",
        "status": "completed",
        "usage": Usage(requests=2),
        "turns": 2,
        "tool_calls": 1,
        "limits": Limits(),
        "deaths": 0,
        "created_at": at(0),
        "updated_at": at(1),
    }
    return Run(**(known | fields))


def items(bodies: list[ItemBody]) -> tuple[Item, ...]:
    return tuple(Item(run_id=RUN, seq=n, at=at(n / 10), body=body) for n, body in enumerate(bodies, 1))


def an_action(**fields: Any) -> ActionState:
    known: dict[str, Any] = {
        "resolution": Resolution(status="submitted", resolved_at=at(0.5), resume=VALUE, answer_id="first"),
        "status": "submitted",
        "id": ACTION,
    }
    known |= fields
    origin = Origin(
        tool="gated",
        wait_point="gate",
        tool_call_id=CALL,
        message_id=f"{RUN}:2",
        run_id=RUN,
        thread_id="thread_1",
        block_path=("gated",),
    )
    return ActionState(
        action=PendingAction(
            id=known["id"],
            name="gated.gate",
            input={},
            resume_schema={},
            status=known["status"],
            origin=origin,
            opened_at=at(0.4),
        ),
        style="inline",
        ordinal=0,
        digest="",
        on_timeout="fail_run",
        fingerprint={},
        resolution=known["resolution"],
    )


def with_run(facts: Facts, **fields: Any) -> Facts:
    return replace(facts, runs=(replace(facts.runs[0], **fields),))


def with_bodies(facts: Facts, *bodies: ItemBody) -> Facts:
    return with_run(facts, items=items(list(bodies)))


def with_rows(facts: Facts, *rows: Row) -> Facts:
    return replace(facts, ledger=(*facts.ledger, *rows))


def without(facts: Facts, index: int) -> Facts:
    return replace(facts, ledger=facts.ledger[:index] + facts.ledger[index + 1 :])


def told(facts: Facts, *sent: Sent) -> Facts:
    return replace(facts, sent=sent)


def once_only(facts: Facts) -> Facts:
    output = OutputItem(call_id=CALL, tool="pay", outcome="success", content="1: yes")
    return replace(with_bodies(facts, *BODIES[:5], output, *BODIES[6:]), interruptions=1)


def _gap(facts: Facts) -> Facts:
    return with_run(facts, items=facts.runs[0].items[:2] + facts.runs[0].items[3:])


def _answer(answer_id: str = "first", value: Any = VALUE, status: Any = "accepted") -> Sent:
    return Sent(ACTION, answer_id, "submit", value, (Receipt(status=status),))


BREAKS: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "stalled": (lambda f: replace(f, stalled="the end"), "no longer moves"),
    "lost run": (lambda f: replace(f, expected={**f.expected, "run_2": "completed"}), "is not there"),
    "other end": (lambda f: with_run(f, run=a_run(status="failed")), "is failed instead of completed"),
    "left over": (lambda f: replace(f, left={"adjourn.turns": 1}), "left at the end"),
    "gap": (_gap, "gaps"),
    "two messages": (lambda f: with_bodies(f, BODIES[0], *BODIES), "2 messages"),
    "no end": (lambda f: with_bodies(f, *BODIES[:-1]), "not the one last item"),
    "after the end": (lambda f: with_bodies(f, *BODIES, BODIES[2]), "not the one last item"),
    "two ends": (lambda f: with_bodies(f, *BODIES, BODIES[-1]), "an end that was not retried"),
    "retry of no end": (lambda f: with_bodies(f, *BODIES[:6], RetryItem(), *BODIES[6:]), "a retry of no end"),
    "closed twice": (
        lambda f: with_bodies(f, *BODIES[:4], *CLOSED, *BODIES[4:5], CLOSED[0], *BODIES[5:]),
        "2 resolutions",
    ),
    "no output": (lambda f: with_bodies(f, *BODIES[:5], *BODIES[6:]), "0 outputs of gated"),
    "two outputs": (lambda f: with_bodies(f, *BODIES[:6], *BODIES[5:]), "2 outputs of gated"),
    "strange output": (
        lambda f: with_bodies(
            f, *BODIES[:6], OutputItem(call_id="x", tool="x", outcome="error", content=""), *BODIES[6:]
        ),
        "never recorded",
    ),
    "open wait": (
        lambda f: with_run(f, actions=(an_action(status="pending", resolution=None),)),
        "is open in a run that has ended",
    ),
    "opened twice": (lambda f: with_bodies(f, *BODIES[:4], *BODIES[3:]), "was opened 2 times"),
    "two waits in one place": (
        lambda f: with_run(f, actions=(an_action(), an_action(id="act_2"))),
        "wait 0 at gated.gate was opened 2 times",
    ),
    "answered twice": (lambda f: with_bodies(f, *BODIES[:5], *BODIES[4:]), "2 resolutions"),
    "unheard": (lambda f: with_bodies(f, *BODIES[:4], *BODIES[5:]), "0 resolutions"),
    "asked again": (
        lambda f: replace(with_rows(f, row(0.9, "model", call_id="0")), interruptions=1),
        "recorded turn 0 was asked again",
    ),
    "asked too often": (lambda f: with_rows(f, row(0.16, "model", call_id="0")), "turn 0 was asked 2 times"),
    "never asked": (lambda f: without(f, 0), "never asked"),
    "unrecorded turn": (lambda f: with_rows(f, row(0.9, "model", call_id="2")), "turn 2 was asked and is not recorded"),
    "paid otherwise": (lambda f: with_run(f, run=a_run(turns=3)), "2 turns are recorded, 3 counted"),
    "run again": (
        lambda f: replace(with_rows(f, row(0.9, "body")), interruptions=1),
        "finished tool gated was run again",
    ),
    "run too often": (lambda f: with_rows(f, row(0.27, "body")), "run 3 times for 1 waits"),
    "run for nothing": (lambda f: with_rows(f, row(0.27, "body", call_id="x")), "response that was never recorded"),
    "effect twice": (lambda f: with_rows(f, row(0.58, "effect")), "took effect 2 times"),
    "twice what is once only": (lambda f: once_only(with_rows(f, row(0.58, "effect"))), "pay took effect 2 times"),
    "no effect": (lambda f: without(f, 5), "took effect 0 times, and its output is success"),
    "effect without output": (lambda f: with_rows(f, row(0.58, "effect", call_id="x")), "effects without an output"),
    "once again": (
        lambda f: replace(with_rows(f, row(0.55, "once", "charge")), interruptions=1),
        "after its result was recorded",
    ),
    "once too often": (lambda f: with_rows(f, row(0.27, "once", "charge")), "run_once ran 2 times"),
    "never judged": (lambda f: told(f, Sent(ACTION, "first", "submit", VALUE, ())), "never judged"),
    "lost answer": (
        lambda f: with_run(f, actions=(an_action(status="pending", resolution=None),)),
        "an answer was accepted, and is lost",
    ),
    "lost early answer": (
        lambda f: told(f, _answer(), Sent("act_2", "first", "submit", VALUE, (Receipt(status="early"),))),
        "an answer was early, and is lost",
    ),
    "other answer": (lambda f: told(f, _answer("second")), "another one is recorded"),
    "other value": (lambda f: told(f, _answer(value={"value": "no"})), "was recorded as"),
    "two accepted": (lambda f: told(f, _answer(), _answer("second")), "2 answers of act_1 were accepted"),
    "handed another answer": (lambda f: with_rows(f, row(0.57, "answer", "gate", "no")), "was handed"),
    "handed elsewhere": (lambda f: with_rows(f, row(0.57, "answer", "other", "no")), "where nothing was asked"),
    "not in the output": (
        lambda f: with_bodies(
            f, *BODIES[:5], OutputItem(call_id=CALL, tool="gated", outcome="success", content=""), *BODIES[6:]
        ),
        "and its output is ''",
    ),
    "other outcome": (
        lambda f: with_bodies(
            f, *BODIES[:5], OutputItem(call_id=CALL, tool="gated", outcome="declined", content=""), *BODIES[6:]
        ),
        "was submitted, and its output is declined",
    ),
}


def test_a_sound_run_has_no_findings() -> None:
    assert check(sound()) == []


@pytest.mark.parametrize("name", BREAKS)
def test_finds(name: str) -> None:
    broken, finding = BREAKS[name]
    assert any(finding in each for each in check(broken(sound()))), check(broken(sound()))


def test_a_wait_that_was_closed_with_its_run_is_open_again_after_a_retry() -> None:
    assert check(replace(with_bodies(sound(), *BODIES[:4], *CLOSED, *BODIES[4:]), ledger=_later(LEDGER))) == []


def _later(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """What came after the wait comes after the retry, which is three items later."""
    return tuple(each if each.at < at(0.5) else each._replace(at=each.at + timedelta(seconds=0.3)) for each in rows)


def test_what_was_interrupted_and_not_recorded_may_happen_again() -> None:
    rows = (
        row(0.16, "model", call_id="0"),
        row(0.27, "body"),
        row(0.27, "once", "charge"),
        row(0.58, "effect"),
    )
    assert check(replace(with_rows(sound(), *rows), interruptions=1)) == []
