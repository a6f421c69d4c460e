"""How runs end from outside: cancelled, or taken from a worker that died too often."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.internal.state import End, Park, Requeue
from adjourn.schemas.records.items import SuspensionItem
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import endings
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.runs.writes import NO_TOTALS, OPEN
from adjourn.store.results import Cancelled
from tests.store.steps import (
    SUSPECT_DEATHS,
    Steps,
    at_once,
    both,
    output,
    response,
    slow_transaction,
)
from tests.store.test_claims import answer_params


def cancel(steps: Steps, run_id: str, reason: str | None = "no longer needed") -> Cancelled:
    cancelled = runs.cancel(steps.db, run_id, reason=reason, by="ann")
    assert cancelled is not None
    return cancelled


def test_cancel_of_a_parked_run_closes_what_it_waits_for(db: Database, steps: Steps) -> None:
    run_id, ids = steps.parked(count=2)
    other, (untouched,) = steps.parked()
    cancelled = cancel(steps, run_id)
    assert cancelled.changed
    assert sorted(cancelled.closed_action_ids) == sorted(ids)
    assert cancelled.run == steps.run(run_id)
    assert cancelled.run.status == "cancelled"
    assert cancelled.run.error is not None
    assert cancelled.run.error.data == {"reason": "no longer needed", "by": "ann"}
    assert steps.kinds(run_id) == ["message", "suspension", "suspension", "resolution", "resolution", "end"]
    for action_id in ids:
        late = steps.answer(action_id)
        assert (late.outcome, late.action_status, late.wake) == ("late", "cancelled", False)
    assert steps.row(run_id).status == "cancelled"
    assert (steps.run(other).status, steps.answer(untouched).outcome) == ("parked", "accepted")


def test_cancel_takes_the_claim_away(steps: Steps) -> None:
    claim = steps.claimed()
    cancel(steps, claim.run.id)
    for becomes in (None, Park(), Requeue(), End(status="completed")):
        with pytest.raises(StaleClaimError):
            steps.write(claim, output(), becomes=becomes)
    with pytest.raises(StaleClaimError):
        runs.reload(steps.db, claim)
    assert steps.kinds(claim.run.id) == ["message", "end"]


def test_a_cancelled_run_is_not_claimed(steps: Steps) -> None:
    run_id = steps.start().run_id
    cancel(steps, run_id)
    assert steps.try_claim(run_id) is None


def test_cancel_again_changes_nothing(steps: Steps) -> None:
    run_id, _ = steps.parked()
    first = cancel(steps, run_id, "one")
    row = steps.row(run_id)
    again = cancel(steps, run_id, "two")
    assert (again.changed, again.run, again.next_run_id, again.closed_action_ids) == (False, first.run, None, ())
    assert steps.row(run_id) == row


def test_cancel_again_names_the_run_that_is_due_since_for_whose_wakeup_nobody_may_have_lived(steps: Steps) -> None:
    run_id, _ = steps.parked()
    following = steps.start(thread_id=steps.row(run_id).thread_id, enqueue=True).run_id
    assert cancel(steps, run_id).next_run_id == following
    assert cancel(steps, run_id).next_run_id == following
    steps.claim(following)
    assert cancel(steps, run_id).next_run_id is None


def test_cancel_of_an_ended_run_leaves_it_as_it_ended(steps: Steps) -> None:
    claim = steps.claimed()
    steps.end(claim, "fine")
    cancelled = cancel(steps, claim.run.id)
    assert (cancelled.changed, cancelled.run.status, cancelled.run.output) == (False, "completed", "fine")


def test_cancel_of_no_run(db: Database) -> None:
    assert runs.cancel(db, "run-nobody-has", reason=None, by=None) is None


def test_cancel_makes_the_next_run_of_the_thread_due(steps: Steps) -> None:
    first = steps.start(thread_id="thread-1").run_id
    second = steps.start(thread_id="thread-1", enqueue=True).run_id
    assert cancel(steps, first).next_run_id == second
    steps.claim(second)


def test_cancel_of_a_waiting_run_lets_nobody_past_the_one_before_it(steps: Steps) -> None:
    active = steps.claimed(thread_id="thread-1")
    ids = [steps.start(thread_id="thread-1", enqueue=True).run_id for _ in range(3)]
    assert cancel(steps, ids[0]).next_run_id is None
    assert [steps.row(id).due for id in ids[1:]] == [None, None]
    assert steps.end(active).next_run_id == ids[1]


def test_of_many_cancels_one_changes_the_run(steps: Steps) -> None:
    for _ in range(20):
        run_id, _ = steps.parked(count=2)
        results = at_once(*[partial(cancel, steps, run_id)] * 4)
        assert [result.changed for result in results].count(True) == 1
        assert steps.kinds(run_id) == ["message", "suspension", "suspension", "resolution", "resolution", "end"]


def test_a_cancel_and_an_answer_at_once_agree(steps: Steps) -> None:
    for _ in range(60):
        run_id, (action_id,) = steps.parked()
        cancelled, came = both(partial(cancel, steps, run_id), partial(steps.answer, action_id))
        assert cancelled.changed
        assert steps.run(run_id).status == "cancelled"
        assert steps.kinds(run_id) == ["message", "suspension", "resolution", "end"]
        expected = ("accepted", "submitted") if came.outcome == "accepted" else ("late", "cancelled")
        assert (came.outcome, steps.action(action_id).action.status) == expected


def test_a_cancel_that_waited_for_a_wait_to_open_closes_it_too(db: Database, database_url: str, steps: Steps) -> None:
    """Its snapshot is older than the action; closing only what that shows would leave one open for ever."""
    claim = steps.claimed()
    action = steps.new_action(claim)
    with slow_transaction(db, database_url) as slow:
        slow.run(OPEN, append_params(claim.run.id, claim.token, action.id, action.model_dump_json()))
        waiting = slow.then(lambda: cancel(steps, claim.run.id))
        slow.commit()
        cancelled = waiting.result()
    assert cancelled.closed_action_ids == (action.id,)
    assert steps.action(action.id).action.status == "cancelled"
    assert actions.pending(db) == []
    assert steps.kinds(claim.run.id) == ["message", "suspension", "resolution", "end"]


def append_params(run_id: str, token: str, action_id: str, asked: str) -> dict[str, Any]:
    suspension = SuspensionItem(call_id="call_1", action_id=action_id, name="send.approval")
    action = {
        "action_ids": [action_id],
        "call_ids": ["call_1"],
        "names": ["send.approval"],
        "request_ids": [None],
        "asked": [asked],
        "on_timeouts": ["error"],
        "defaults": [None],
        "timeouts": [None],
        "child_run_ids": [None],
        "child_groups": [None],
        "any_ofs": [None],
    }
    return {
        "run_id": run_id,
        "token": token,
        "kinds": ["suspension"],
        "bodies": [suspension.model_dump_json()],
        **NO_TOTALS,
        **action,
    }


def test_an_end_that_waited_for_an_answer_closes_only_what_is_open(
    db: Database, database_url: str, steps: Steps
) -> None:
    claim = steps.claimed()
    (first, second), _ = steps.open(claim, count=2)
    with slow_transaction(db, database_url) as slow:
        assert slow.run(actions.ANSWER, answer_params(first)).accepted
        waiting = slow.then(lambda: steps.end(claim))
        slow.commit()
        assert waiting.result().status == "completed"
    assert [steps.action(id).action.status for id in (first, second)] == ["submitted", "cancelled"]
    assert steps.kinds(claim.run.id) == ["message", "suspension", "suspension", "resolution", "resolution", "end"]


# --- deaths ----------------------------------------------------------------------------------------


def suspect_claim(steps: Steps) -> Any:
    claim = steps.claimed()
    steps.write(claim, response(), becomes=Requeue(due="suspect"))
    return steps.claim(claim.run.id, suspect=True)


def record_death(steps: Steps, run_id: str) -> list[WakeUp]:
    return [*runs.record_death(steps.db, run_id)]


def test_a_death_is_recorded_at_once_and_the_run_is_due_again(steps: Steps) -> None:
    claim = suspect_claim(steps)
    assert record_death(steps, claim.run.id) == [WakeUp(run_id=claim.run.id, due="suspect")]
    assert (steps.run(claim.run.id).status, steps.run(claim.run.id).deaths) == ("queued", 1)
    with pytest.raises(StaleClaimError):
        steps.write(claim, output())
    assert record_death(steps, claim.run.id) == []


def test_a_run_that_dies_too_often_fails_and_lets_the_next_one_go(steps: Steps) -> None:
    claim = suspect_claim(steps)
    run_id = claim.run.id
    (action_id,), _ = steps.open(claim)
    following = steps.start(thread_id=claim.run.thread_id, enqueue=True).run_id
    for death in range(SUSPECT_DEATHS):
        assert record_death(steps, run_id) == [WakeUp(run_id=run_id, due="suspect")]
        assert steps.claim(run_id, suspect=True).run.deaths == death + 1
    assert record_death(steps, run_id) == [WakeUp(run_id=following, due="turn")]
    run = steps.run(run_id)
    assert (run.status, run.deaths) == ("failed", SUSPECT_DEATHS + 1)
    assert run.error is not None
    assert run.error.type == "PoisonedRunError"
    assert run.error.data == {"run_id": run_id, "deaths": SUSPECT_DEATHS + 1}
    assert run_id in run.error.message
    assert steps.kinds(run_id)[-2:] == ["resolution", "end"]
    assert steps.action(action_id).action.status == "cancelled"


def test_the_death_of_a_process_whose_run_moved_on_counts_for_nothing(steps: Steps) -> None:
    claim = suspect_claim(steps)
    steps.end(claim)
    assert record_death(steps, claim.run.id) == []
    assert steps.run(claim.run.id).status == "completed"
    assert record_death(steps, "run-nobody-has") == []


def test_poison_spares_a_run_whose_lease_was_renewed(steps: Steps) -> None:
    claim = suspect_claim(steps)
    wakeups = endings.poison(steps.db, claim.run.id, claim.token, 4, at_once=False)
    assert list(wakeups) == []
    assert steps.run(claim.run.id).status == "running"
