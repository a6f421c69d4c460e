"""What comes next for a claimed run, decided without any I/O: to do something, or what the run becomes."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn.schemas.errors import UnknownBlockError
from adjourn.schemas.internal.state import End, Park, Requeue
from adjourn.schemas.records.actions import ActionState, Child, NewAction
from adjourn.schemas.records.items import ROOT, FaultItem, ResponseItem
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.transitions import Do, Fail, GiveBack, Next, Resolve, next_step
from tests.unit.test_engine import action, call, output, view

TURN = ResponseItem(text="", calls=(call("a"),))


def nobody(_: View) -> ActionState | None:
    return None


def step_of(view: View, *asked: str) -> Any:
    return next_step(view, set(asked), nobody).step


def test_what_can_be_done_in_this_pass_is_done() -> None:
    step = step_of(view(TURN))
    assert isinstance(step, Do)
    assert len(step.activities) == 1


def test_a_run_with_only_waits_left_parks() -> None:
    assert step_of(view(TURN, actions=(action("a"),))) == GiveBack(Park())


def test_a_wait_that_code_of_this_process_may_answer_keeps_the_run_from_parking() -> None:
    open_wait = action("a")
    assert next_step(view(TURN, actions=(open_wait,)), set(), lambda _: open_wait).step == Resolve(open_wait)


def test_an_agent_is_asked_once_in_a_pass_and_its_next_turn_is_another_task() -> None:
    again = view(TURN, output("a"))
    assert isinstance(step_of(again), Do)
    assert step_of(again, ROOT) == GiveBack(Requeue(after_pause=False))


def test_a_run_whose_model_could_not_be_asked_is_queued_until_its_pause_is_over() -> None:
    assert step_of(view(FaultItem(call_id=ROOT, message="away")), ROOT) == GiveBack(Requeue(after_pause=True))


def test_a_run_that_has_come_to_its_end_ends() -> None:
    step = step_of(view(ResponseItem(text="done")))
    assert isinstance(step, GiveBack)
    assert isinstance(step.becomes, End)
    assert step.becomes.status == "completed"


def test_code_that_no_longer_fits_fails_the_run() -> None:
    unknown = view(TURN)
    step = step_of(View(unknown.run, {}, (), unknown.items, ()))
    assert isinstance(step, Fail)
    assert isinstance(step.error, UnknownBlockError)


@pytest.mark.parametrize(
    ("becomes", "child", "at_once"),
    [
        (Park(), False, True),
        (Requeue(), False, True),
        (End(status="failed"), False, False),
        (Park(), True, False),
        (Requeue(), True, False),
        (End(status="failed"), True, False),
    ],
)
def test_waits_that_an_end_would_close_and_children_are_written_before_the_claim_is_given_back(
    becomes: Park | Requeue | End, child: bool, at_once: bool
) -> None:
    asked = action("a").action
    opened = NewAction.model_construct(
        id=asked.id, child=Child.model_construct(run_id="run_2", thread_id="thr_2") if child else None
    )
    assert Next(GiveBack(becomes)).becomes_after([opened]) == (becomes if at_once else None)
    assert Next(GiveBack(becomes)).becomes_after([]) == becomes


def test_a_run_that_something_is_left_to_do_for_stays_claimed() -> None:
    assert next_step(view(TURN), set(), nobody).becomes_after([]) is None
