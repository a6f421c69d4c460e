"""The fenced append: all of a step or nothing, under the token, and what it makes of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.internal.state import Claim, End, Park, Requeue
from adjourn.schemas.records.ids import new_claim_token
from adjourn.schemas.records.items import EndItem, ItemBody, RunFailure
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from tests.store.steps import WAKEUP_RETRY_SECONDS, Steps, output, response, suspension, usage


def test_items_get_consecutive_places_in_the_order_given(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    given: list[ItemBody] = [response("call_1", "call_2"), output("call_1", {"n": 1}), output("call_2", None)]
    steps.write(claim, *given)
    steps.write(claim, output("call_3"))
    items = runs.items(db, claim.run.id)
    assert [item.seq for item in items] == [1, 2, 3, 4, 5]
    assert [item.body for item in items[1:]] == [*given, output("call_3")]


def test_totals_grow(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, response(), usage=usage(5), turns=1, tool_calls=2)
    steps.write(claim, response(), usage=usage(7), turns=1, tool_calls=1)
    run = steps.run(claim.run.id)
    assert (run.usage, run.turns, run.tool_calls) == (usage(5) + usage(7), 2, 3)


def test_a_write_without_a_becoming_keeps_the_claim(steps: Steps) -> None:
    claim = steps.claimed()
    written = steps.write(claim, response())
    assert (written.status, written.next_run_id) == ("running", None)
    assert steps.row(claim.run.id).token == claim.token


def test_what_is_opened_can_be_found_at_once_and_comes_back_whole(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    asked = steps.new_action(
        claim,
        request_id="req-1",
        kind="form",
        prompt="Send it? \x00",
        input={"rows": [1, 2.5, None], "nul": "\x00"},
        resume_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}},
        timeout_seconds=90,
        on_timeout="default",
        default={"ok": False},
        answerers=("ann", "bob"),
        style="entry",
        ordinal=3,
        key="k",
    )
    written = steps.write(claim, suspension(asked), opens=(asked,))
    state = actions.get(db, asked.id)
    assert state is not None
    assert state.resolution is None
    action = state.action
    assert action.opened_at == written.at
    assert action.expires_at == written.at + timedelta(seconds=90)
    for name in ("id", "request_id", "name", "kind", "prompt", "input", "resume_schema", "origin", "answerers"):
        assert getattr(action, name) == getattr(asked, name), name
    assert action.status == "pending"
    for name in ("style", "ordinal", "key", "digest", "on_timeout", "fingerprint"):
        assert getattr(state, name) == getattr(asked, name), name
    assert actions.pending(db, run_id=claim.run.id) == [action]


def test_several_waits_of_one_write_and_one_without_a_deadline(steps: Steps) -> None:
    claim = steps.claimed()
    timed, endless = steps.new_action(claim, timeout_seconds=0.5), steps.new_action(claim)
    written = steps.write(claim, suspension(timed), suspension(endless), opens=(timed, endless))
    assert steps.action(timed.id).action.expires_at == written.at + timedelta(seconds=0.5)
    assert steps.action(endless.id).action.expires_at is None


def test_park_gives_the_claim_back(steps: Steps) -> None:
    claim = steps.claimed()
    _, written = steps.open(claim, becomes=Park())
    assert written.status == "parked"
    row = steps.row(claim.run.id)
    assert (row.status, row.token, row.lease_until) == ("parked", None, None)
    with pytest.raises(StaleClaimError):
        steps.write(claim, output())


def test_park_falls_back_if_the_counter_moved_and_the_rest_is_written(steps: Steps) -> None:
    claim = steps.claimed()
    (first,), _ = steps.open(claim)
    steps.answer(first)
    (second,), written = steps.open(claim, becomes=Park())
    assert (written.status, written.revision) == ("running", 1)
    assert steps.row(claim.run.id).token == claim.token
    assert steps.kinds(claim.run.id) == ["message", "suspension", "resolution", "suspension"]
    assert steps.action(second).action.status == "pending"
    assert steps.write(runs.reload(steps.db, claim), becomes=Park()).status == "parked"


def test_requeue_makes_the_run_due_again(steps: Steps) -> None:
    claim = steps.claimed()
    assert steps.write(claim, response(), becomes=Requeue(due="reentry")).status == "queued"
    row = steps.row(claim.run.id)
    assert (row.due, row.token, row.lease_until, row.wakeups) == ("reentry", None, None, 0)
    assert (row.wakeup_at - row.due_at).total_seconds() == pytest.approx(WAKEUP_RETRY_SECONDS, abs=1)
    assert [item.body.kind for item in steps.claim(claim.run.id).items] == ["message", "response"]


def test_a_delayed_requeue_is_woken_up_when_it_is_due_and_not_before(steps: Steps) -> None:
    claim = steps.claimed()
    assert steps.write(claim, pause_seconds=100, becomes=Requeue(due="turn", after_pause=True)).rests
    assert forgotten.unsent(steps.db, 10) == []
    steps.advance(100.1)
    assert forgotten.unsent(steps.db, 10) == [WakeUp(run_id=claim.run.id, due="turn")]


def test_a_run_that_was_answered_while_a_model_was_asked_does_not_rest(steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    steps.answer(action_id)
    written = steps.write(claim, pause_seconds=100, becomes=Requeue(after_pause=True))
    assert (written.status, written.rests) == ("queued", False)
    again = steps.claim(claim.run.id)
    assert again.paused, "its model is left alone all the same"


def test_the_longest_pause_counts_and_does_not_grow_by_being_written_again(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=100)
    steps.write(claim, pause_seconds=10)
    steps.advance(60)
    steps.write(claim, becomes=Requeue(after_pause=True))
    steps.advance(39)
    assert steps.try_claim(claim.run.id) is None
    steps.advance(1.1)
    assert not steps.claim(claim.run.id).paused


def test_a_pause_outlives_a_worker_that_puts_its_run_back(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=100)
    runs.put_back(steps.db, [(claim.run.id, claim.token)])
    assert steps.claim(claim.run.id).paused


def test_after_a_pause_that_is_over_a_run_is_due_at_once(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=10)
    steps.advance(10.1)
    assert not steps.write(claim, becomes=Requeue(after_pause=True)).rests
    assert not steps.claim(claim.run.id).paused


@pytest.mark.parametrize("becomes", [Park(), Requeue(), End(status="completed")])
def test_a_run_that_moved_has_no_deaths(steps: Steps, becomes: Park | Requeue | End) -> None:
    claim = _died_once(steps)
    assert steps.run(claim.run.id).deaths == 1
    steps.write(claim, response(), becomes=becomes)
    assert steps.run(claim.run.id).deaths == 0


def _died_once(steps: Steps) -> Claim:
    claim = steps.claimed()
    steps.advance(1000)
    forgotten.abandoned(steps.db, 10)
    return steps.claim(claim.run.id, suspect=True)


def test_end_records_the_output(steps: Steps) -> None:
    claim = steps.claimed()
    value = {"report": [1, None, "\x00"], "done": True}
    written = steps.write(claim, response(), EndItem(status="completed"), becomes=End(status="completed", output=value))
    assert (written.status, written.next_run_id) == ("completed", None)
    run = steps.run(claim.run.id)
    assert (run.status, run.output, run.error) == ("completed", value, None)
    assert steps.kinds(run.id) == ["message", "response", "end"]


@pytest.mark.parametrize("value", [False, 0, "", [], {}])
def test_end_records_an_output_that_is_false(steps: Steps, value: object) -> None:
    claim = steps.claimed()
    steps.end(claim, output=value)
    assert json.dumps(steps.run(claim.run.id).output) == json.dumps(value)


def test_end_records_the_error(steps: Steps) -> None:
    claim = steps.claimed()
    error = RunFailure(type="LimitExceededError", message="limit turns is 5", data={"limit": "turns"})
    steps.write(claim, EndItem(status="failed", error=error), becomes=End(status="failed", error=error))
    assert (steps.run(claim.run.id).status, steps.run(claim.run.id).error) == ("failed", error)


def test_end_closes_what_is_open_and_answers_are_late(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    (open_one, answered, other), _ = steps.open(claim, count=3)
    steps.answer(answered)
    assert sorted(steps.end(claim).closed_action_ids) == sorted([open_one, other])
    kinds = steps.kinds(claim.run.id)
    assert kinds == ["message", *["suspension"] * 3, "resolution", "resolution", "resolution", "end"]
    for action_id in (open_one, other):
        state = steps.action(action_id)
        assert state.action.status == "cancelled"
        assert state.resolution is not None
        assert state.resolution.reason == "the run ended"
        late = steps.answer(action_id)
        assert (late.outcome, late.action_status, late.wake) == ("late", "cancelled", False)
    assert steps.action(answered).action.status == "submitted"
    assert steps.kinds(claim.run.id) == kinds
    assert actions.pending(db) == []


def test_end_makes_the_next_run_of_the_thread_due(steps: Steps) -> None:
    claim = steps.claimed(thread_id="thread-1")
    second = steps.start(thread_id="thread-1", enqueue=True).run_id
    steps.start(thread_id="thread-1", enqueue=True)
    other_thread = steps.claimed(thread_id="thread-2")
    assert steps.end(other_thread).next_run_id is None
    assert steps.end(claim).next_run_id == second
    row = steps.row(second)
    assert (row.status, row.due) == ("queued", "turn")
    assert row.wakeup_at > row.due_at


def test_a_write_that_opens_a_wait_cannot_end_the_run_and_has_to_record_it(steps: Steps) -> None:
    claim = steps.claimed()
    with pytest.raises(ValueError, match="cannot open waits"):
        steps.write(claim, output(), opens=(steps.new_action(claim),), becomes=End(status="completed"))
    with pytest.raises(ValueError, match="record their suspensions"):
        steps.write(claim, opens=(steps.new_action(claim),))
    assert steps.kinds(claim.run.id) == ["message"]


@pytest.mark.parametrize("becomes", [None, Park(), Requeue(), End(status="completed")])
def test_a_stale_token_changes_nothing(db: Database, steps: Steps, becomes: Park | Requeue | End | None) -> None:
    claim = steps.claimed(thread_id="thread-1")
    (action_id,), _ = steps.open(claim)
    waiting = steps.start(thread_id="thread-1", enqueue=True).run_id
    stale = replace(claim, token=new_claim_token())
    before = steps.row(claim.run.id), steps.row(waiting), steps.kinds(claim.run.id), actions.get(db, action_id)
    opens = () if isinstance(becomes, End) else (steps.new_action(claim),)
    with pytest.raises(StaleClaimError) as caught:
        steps.write(stale, output(), opens=opens, becomes=becomes, usage=usage(5), turns=1)
    assert caught.value.run_id == claim.run.id
    after = steps.row(claim.run.id), steps.row(waiting), steps.kinds(claim.run.id), actions.get(db, action_id)
    assert after == before
    assert [action.id for action in actions.pending(db)] == [action_id]


def test_a_claim_that_was_given_to_another_writes_nothing(steps: Steps) -> None:
    old = steps.claimed()
    steps.advance(1000)
    forgotten.abandoned(steps.db, 10)
    new = steps.claim(old.run.id, suspect=True)
    steps.write(new, response("call_1"))
    with pytest.raises(StaleClaimError):
        steps.write(old, output())
    assert steps.kinds(old.run.id) == ["message", "response"]


def test_a_turn_writes_as_little_late_as_early(db: Database, steps: Steps) -> None:
    """Rows are appended and never written again: the run's own row is the only one that a write changes."""
    claim = steps.claimed()
    steps.write(claim, *[output(f"call_{number}") for number in range(200)])
    versions = sa.text("select xmin::text from adjourn.items where run_id = :id and seq <= 201 order by seq")
    before = db.execute(versions, {"id": claim.run.id})
    steps.write(claim, output("call_last"))
    steps.open(claim, becomes=Park())
    assert db.execute(versions, {"id": claim.run.id}) == before
