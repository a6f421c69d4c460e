"""What is published is what was published: a changed schema has to be seen by whoever changes it.

`adjourn schema --out tests/golden/schemas` writes the files anew.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from adjourn.schemas.records.actions import Origin, PendingAction
from adjourn.schemas.records.answers import Answer, Issue, Receipt, ShortAnswer
from adjourn.schemas.records.events import (
    AttemptDiscarded,
    DeltaEvent,
    EndEvent,
    ItemEvent,
    NestedEvent,
    ParkedEvent,
    RefreshEvent,
    SuspensionEvent,
)
from adjourn.schemas.records.items import EndItem, Item, MessageItem, RunFailure
from adjourn.schemas.records.messages import ModelTurn, ResultTurn, ToolCall, Usage, UserTurn
from adjourn.schemas.records.published import NAMES, json_schema
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.schemas.records.threads import ThreadState
from adjourn.worker.cli.schemas import as_text

FOLDER = Path(__file__).parent / "schemas"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACTION = PendingAction(
    id="act_1",
    name="ask.gate",
    input={"prompt": "Go on?"},
    resume_schema={"type": "object"},
    status="pending",
    origin=Origin(
        tool="ask",
        wait_point="gate",
        tool_call_id="call_1",
        message_id="run_1:2",
        run_id="run_1",
        thread_id="thr_1",
        block_path=("agent", "ask"),
    ),
    opened_at=NOON,
)
RUN = Run(
    id="run_1",
    thread_id="thr_1",
    agent="agent",
    status="failed",
    error=RunFailure(type="LimitExceededError", message="limit"),
    created_at=NOON,
    updated_at=NOON,
)
SAMPLES: dict[str, list[Record]] = {
    "answer": [Answer(action_id="act_1", data=False), Answer(action_id="act_1", kind="fail", message="lost")],
    "event": [
        ItemEvent(id="1-1", run_id="run_1", at=NOON, item=MessageItem(text="go")),
        SuspensionEvent(id="1-3", run_id="run_1", at=NOON, action=ACTION),
        ParkedEvent(id="1-3-parked", run_id="run_1", at=NOON),
        EndEvent(id="1-4", run_id="run_1", at=NOON, reason="failed", error=RUN.error),
        DeltaEvent(id="1-1:1-0", run_id="run_1", call_id="root", attempt="a", part=0, offset=0, text="So"),
        AttemptDiscarded(id="1-1:1-0", run_id="run_1", call_id="root", attempt="a"),
        NestedEvent(id="1-4:1-0", run_id="run_2", at=NOON, action=ACTION),
        RefreshEvent(id="1-5", run_id="run_1"),
    ],
    "wakeup": [WakeUp(run_id="run_1", due="reentry")],
    "item": [
        Item(run_id="run_1", seq=1, at=NOON, body=MessageItem(text="go")),
        Item(run_id="run_1", seq=2, at=NOON, body=EndItem(status="failed", error=RUN.error)),
    ],
    "pending_action": [ACTION],
    "receipt": [Receipt(status="invalid", action_id="act_1", issues=(Issue(path="/a", message="missing"),))],
    "run": [RUN],
    "short_answer": [ShortAnswer(id="act_1", ok=True, data={"approved": True})],
    "thread_state": [
        ThreadState(
            thread_id="thr_1",
            status="parked",
            messages=(
                UserTurn(text="go"),
                ModelTurn(text="", calls=(ToolCall(id="call_1", tool="ask", args={}),)),
                ResultTurn(call_id="call_1", tool="ask", outcome="success", content=None),
            ),
            pending=(ACTION,),
            runs=(RUN,),
            usage_total=Usage(input_tokens=1),
            turns_total=1,
        )
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_published_schema_has_not_changed(name: str) -> None:
    assert as_text(json_schema(name)) + "\n" == (FOLDER / f"{name}.json").read_text()


def test_no_schema_is_left_over() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_we_write_fits_and_an_unknown_key_does_not(name: str) -> None:
    Draft202012Validator.check_schema(json_schema(name))
    validator = Draft202012Validator(json_schema(name))
    for sample in SAMPLES[name]:
        document = json.loads(sample.model_dump_json())
        validator.validate(document)
        assert not validator.is_valid({**document, "unheard_of": 1})
