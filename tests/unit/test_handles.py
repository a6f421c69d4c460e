"""A handle reads the states that a thread can be in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from adjourn.schemas.errors import WaitTimeoutError
from adjourn.schemas.records.actions import Origin, PendingAction
from adjourn.schemas.records.handles import Result
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.schemas.records.threads import ThreadState
from adjourn.worker.client.handles import run_handle, thread_handle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACTION = PendingAction(
    id="act_1",
    name="ask.gate",
    input={},
    resume_schema={},
    status="pending",
    origin=Origin(
        tool="ask",
        wait_point="gate",
        tool_call_id="call_1",
        message_id="run_2:2",
        run_id="run_2",
        thread_id="thr_1",
        block_path=("agent", "ask"),
    ),
    opened_at=NOON,
)


def run(status: RunStatus, **fields: Any) -> Run:
    given = {"id": "run_1", "thread_id": "thr_1", "agent": "agent", "created_at": NOON, "updated_at": NOON}
    return Run(status=status, **{**given, **fields})


def thread(*runs: Run, pending: tuple[PendingAction, ...] = ()) -> ThreadState:
    return ThreadState(
        thread_id="thr_1", status="idle", messages=(), pending=pending, runs=runs, usage_total=Usage(), turns_total=0
    )


class ScriptedClient:
    """A client whose thread is in one state after the other, and whose waits are all in vain."""

    def __init__(self, *states: ThreadState) -> None:
        self.states = list(states)
        self.waits: list[str] = []

    def _state(self, thread_id: str) -> ThreadState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def wait(self, run_id: str, *, timeout: float | None) -> Run:
        self.waits.append(run_id)
        raise WaitTimeoutError(run_id, timeout or 0)


def test_a_run_that_is_parked_with_nothing_to_answer_is_at_work_elsewhere() -> None:
    parked = thread(run("parked"))
    client: Any = ScriptedClient(parked)
    assert thread_handle(client, "thr_1").snapshot().state == "running"
    with pytest.raises(WaitTimeoutError, match=r"now parked.* within 0\.01 s"):
        thread_handle(client, "thr_1").wait(timeout=0.01)


def test_a_wait_looks_again_for_actions_of_a_parked_run() -> None:
    client: Any = ScriptedClient(thread(run("parked")), thread(run("parked")), thread(run("parked"), pending=(ACTION,)))
    result = thread_handle(client, "thr_1").wait()
    assert (result.status, result.pending.id) == ("pending", "act_1")
    assert client.waits == ["run_1", "run_1"]


def test_what_waits_behind_another_run_is_waited_for_as_well() -> None:
    ended, behind = run("completed", output="first"), run("queued", id="run_2")
    client: Any = ScriptedClient(
        thread(run("running"), behind),
        thread(ended, behind),
        thread(ended, run("completed", id="run_2", output="second")),
    )
    assert thread_handle(client, "thr_1").wait().text == "second"


def test_a_run_is_waited_for_whatever_comes_behind_it() -> None:
    ended, behind = run("completed", output="first"), run("parked", id="run_2")
    client: Any = ScriptedClient(thread(run("running"), run("queued", id="run_2")), thread(ended, behind))
    first = run_handle(client, run_id="run_1", thread_id="thr_1", agent="agent")
    assert first.wait().text == "first"


class EndedMeanwhile(ScriptedClient):
    """A run that its wait saw backing off with an action, and that has ended when the thread is read."""

    def wait(self, run_id: str, *, timeout: float | None) -> Run:
        return run("queued")


def test_a_run_that_ends_while_it_is_waited_for_does_not_show_the_actions_of_the_next_one() -> None:
    ended, behind = run("completed", output="first"), run("parked", id="run_2")
    client: Any = EndedMeanwhile(thread(run("queued"), behind), thread(ended, behind, pending=(ACTION,)))
    first = run_handle(client, run_id="run_1", thread_id="thr_1", agent="agent")
    assert first.wait().text == "first"


def test_the_last_result_is_of_a_run_that_came_to_one() -> None:
    client: Any = ScriptedClient(thread(run("completed", output="first"), run("cancelled", id="run_2")))
    after = thread_handle(client, "thr_1").snapshot()
    assert (after.state, after.last_result.text) == ("done", "first")


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (run("completed", output="said"), "said"),
        (run("completed", output={"sent": True}), '{"sent":true}'),
        (run("completed", output=None), "null"),
        (run("failed", error=RunFailure(type="LimitExceededError", message="over")), "over"),
    ],
)
def test_a_result_has_a_text(ended: Run, text: str) -> None:
    assert Result.ended(ended).text == text
