"""The deciding core, without any I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from adjourn import Agent, ScriptedModel
from adjourn.schemas.errors import LimitExceededError, ToolChangedError
from adjourn.schemas.records.actions import ActionState, OnTimeout, Origin, PendingAction, Resolution
from adjourn.schemas.records.items import (
    EndItem,
    Item,
    ItemBody,
    MessageItem,
    OutputItem,
    ResponseItem,
    RunFailure,
    SuspensionItem,
)
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import (
    ModelResponse,
    ModelTurn,
    RequestedCall,
    ResultTurn,
    ToolCall,
    Usage,
    UserTurn,
)
from adjourn.schemas.records.runs import Run
from adjourn.tasks.engine.activities import AskModel, OpenCall
from adjourn.tasks.engine.conversation import conversation, recorded
from adjourn.tasks.engine.decisions import Finish, Step, View, Wait, Work, decide

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def call(id: str, tool: str = "t", **args: Any) -> ToolCall:
    return ToolCall(id=id, tool=tool, args=args)


def output(id: str) -> OutputItem:
    return OutputItem(call_id=id, tool="t", outcome="success", content=id)


def items(*bodies: ItemBody, run: str = "run_1") -> tuple[Item, ...]:
    return tuple(Item(run_id=run, seq=n, at=NOW, body=body) for n, body in enumerate(bodies, 1))


def action(call_id: str, status: Any = "pending", on_timeout: OnTimeout = "fail_run") -> ActionState:
    origin = Origin(
        tool="t",
        wait_point="q",
        tool_call_id=call_id,
        message_id="run_1:2",
        run_id="run_1",
        thread_id="thr_1",
        block_path=("agent", "t"),
    )
    pending = PendingAction(
        id=f"act_{call_id}", name="t.q", input={}, resume_schema={}, status=status, origin=origin, opened_at=NOW
    )
    ended = None if status == "pending" else Resolution(status=status, resolved_at=NOW)
    return ActionState(
        action=pending,
        style="inline",
        ordinal=0,
        digest="",
        on_timeout=on_timeout,
        fingerprint={},
        resolution=ended,
    )


def view(*bodies: ItemBody, actions: tuple[ActionState, ...] = (), limits: Limits = Limits(), **run: Any) -> View:
    made = Run(id="run_1", thread_id="thr_1", agent="agent", status="running", created_at=NOW, updated_at=NOW, **run)
    agent = Agent("agent", ScriptedModel([]), limits=limits)
    return View(made, {"agent": agent}, (), items(MessageItem(text="go"), *bodies), actions)


def calls(step: Step) -> list[OpenCall]:
    """The calls that can run."""
    assert isinstance(step, Work)
    return [each for each in step.activities if isinstance(each, OpenCall)]


def asks(step: Step) -> bool:
    """Whether the model's turn is all there is to do."""
    return isinstance(step, Work) and [type(each) for each in step.activities] == [AskModel]


def test_a_fresh_run_asks_the_model() -> None:
    assert asks(decide(view()))


def test_open_calls_run_side_by_side_and_finished_ones_never_again() -> None:
    step = decide(view(ResponseItem(text="", calls=(call("a"), call("b"), call("c"))), output("b")))
    assert [open_call.call.id for open_call in calls(step)] == ["a", "c"]


def test_a_waiting_call_is_left_alone_while_its_sibling_runs() -> None:
    response = ResponseItem(text="", calls=(call("a"), call("b")))
    step = decide(view(response, actions=(action("a"),)))
    assert [open_call.call.id for open_call in calls(step)] == ["b"]
    assert decide(view(response, output("b"), actions=(action("a"),))) == Wait()


def test_a_call_with_an_answer_runs_again_only_when_all_its_waits_have_ended() -> None:
    response = ResponseItem(text="", calls=(call("a"),))
    assert decide(view(response, actions=(action("a", "submitted"), action("a")))) == Wait()
    assert calls(decide(view(response, actions=(action("a", "submitted"), action("a", "cancelled")))))


def test_the_waits_of_a_call_are_in_the_order_of_their_items_whatever_the_clock_said() -> None:
    first, second = action("a", "submitted"), action("a", "submitted", "error")
    second = second.model_copy(update={"action": second.action.model_copy(update={"id": "act_0"})})
    suspensions = [SuspensionItem(call_id="a", action_id=each.action.id, name="t.q") for each in (first, second)]
    step = decide(view(ResponseItem(text="", calls=(call("a"),)), *suspensions, actions=(second, first)))
    assert calls(step)[0].actions == (first, second)


def test_the_model_is_asked_when_every_call_has_its_result() -> None:
    assert asks(decide(view(ResponseItem(text="", calls=(call("a"),)), output("a"))))


def test_a_response_without_calls_is_the_end() -> None:
    step = decide(view(ResponseItem(text="done")))
    assert isinstance(step, Finish)
    assert (step.end.status, step.end.output) == ("completed", "done")


def test_an_expired_wait_fails_the_run_only_if_its_policy_says_so() -> None:
    response = ResponseItem(text="", calls=(call("a"),))
    step = decide(view(response, actions=(action("a", "expired"),)))
    assert isinstance(step, Finish)
    assert step.end.error is not None
    assert step.end.error.type == "ActionExpiredError"
    assert calls(decide(view(response, actions=(action("a", "expired", "error"),))))


@pytest.mark.parametrize(
    ("limits", "used", "name"),
    [
        (Limits(turns=2), {"turns": 2}, "turns"),
        (Limits(tool_calls=3), {"tool_calls": 4}, "tool_calls"),
        (Limits(tokens=10), {"usage": Usage(input_tokens=6, output_tokens=4)}, "tokens"),
        (Limits(cost=0.3), {"usage": Usage(cost=Decimal("0.3"))}, "cost"),
        (Limits(seconds=2), {"seconds": 2.5}, "seconds"),
    ],
)
def test_limits_end_the_run_before_the_next_model_call(limits: Limits, used: dict[str, Any], name: str) -> None:
    step = decide(view(limits=limits, **used))
    assert isinstance(step, Finish)
    assert step.end.error is not None
    assert step.end.error.type == LimitExceededError.__name__
    assert step.end.error.data["limit"] == name


def test_time_is_up_for_bodies_too_and_never_for_waits() -> None:
    response = ResponseItem(text="", calls=(call("a"),))
    over = {"limits": Limits(seconds=2), "seconds": 2.5}
    assert isinstance(decide(view(response, **over)), Finish)
    assert decide(view(response, actions=(action("a"),), **over)) == Wait()
    spent = Usage(cost=Decimal(1))
    assert calls(decide(view(response, limits=Limits(turns=1, cost=0.1), turns=1, usage=spent)))


def test_a_view_after_a_write_decides_like_one_that_was_loaded() -> None:
    before = view(ResponseItem(text="", calls=(call("a"),)))
    assert asks(decide(before.with_([output("a")])))
    assert decide(before.with_([], [action("a")])) == Wait()


def test_recorded_calls_have_ids_and_names_of_ours() -> None:
    response = ModelResponse(
        calls=(
            RequestedCall(id="", name="delete all!", args="{}"),
            RequestedCall(id=None, name="", args='{"a": 1,,'),
            RequestedCall(id="x", name="t", args="[1]"),
            RequestedCall(id="x", name="t", args=""),
        )
    )
    calls = recorded(response).calls
    assert len({c.id for c in calls}) == 4
    assert [c.tool for c in calls] == ["delete_all_", "unnamed", "t", "t"]
    assert [bool(c.fault) for c in calls] == [False, True, True, False]
    assert all(isinstance(c.args, dict) for c in calls)


def test_the_conversation_leaves_out_a_turn_that_is_still_open() -> None:
    open_turn = items(MessageItem(text="go"), ResponseItem(text="", calls=(call("a"), call("b"))), output("b"))
    assert conversation(open_turn) == (UserTurn(text="go"),)


def test_results_come_in_the_order_of_the_calls_whatever_ended_first() -> None:
    closed = items(
        MessageItem(text="go"), ResponseItem(text="", calls=(call("a"), call("b"))), output("b"), output("a")
    )
    turns = conversation(closed)
    assert [turn.call_id for turn in turns if isinstance(turn, ResultTurn)] == ["a", "b"]


def test_a_run_that_ended_with_an_open_call_gets_a_result_for_it() -> None:
    ended = items(
        MessageItem(text="go"), ResponseItem(text="", calls=(call("a"),)), EndItem(status="cancelled"), run="run_0"
    )
    turns = conversation(ended + items(MessageItem(text="again")))
    assert isinstance(turns[1], ModelTurn)
    assert isinstance(turns[2], ResultTurn)
    assert turns[2].outcome == "cancelled"
    assert turns[3] == UserTurn(text="again")


def test_a_failure_keeps_the_plain_data_of_its_error() -> None:
    told = RunFailure.of(ToolChangedError("send", ["input changed"]))
    assert (told.type, told.data["tool"], told.data["changes"]) == ("ToolChangedError", "send", ["input changed"])
