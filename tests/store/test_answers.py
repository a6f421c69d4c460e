"""Answers: the first one wins, whatever comes beside it or after it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adjourn.schemas.internal.state import Answered, Park
from adjourn.schemas.records.items import ResolutionItem
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.runs.writes import NO_TOTALS, PARK
from tests.store.steps import WAKEUP_RETRY_SECONDS, Steps, at_once, both, slow_transaction
from tests.store.test_claims import answer_params


def test_an_answer_is_kept_and_wakes_the_run(db: Database, steps: Steps) -> None:
    run_id, (action_id,) = steps.parked(call_id="call_1")
    came = steps.answer(action_id, '{"approved": false, "note": "\\u0000"}', answer_id="a-1", digest="d-1")
    assert came == Answered(
        outcome="accepted",
        run_id=run_id,
        thread_id=steps.run(run_id).thread_id,
        name="send.approval",
        action_status="submitted",
        wake=True,
        item=runs.items(db, run_id)[-1],
        ordinal=1,
    )
    state = steps.action(action_id)
    assert state.action.status == "submitted"
    assert state.resolution is not None
    assert state.resolution.resume == {"approved": False, "note": "\x00"}
    assert (state.resolution.answered_by, state.resolution.answer_id) == ("ann", "a-1")
    row = steps.row(run_id)
    assert (row.status, row.due, row.revision, row.wakeups) == ("queued", "reentry", 1, 0)
    assert (row.wakeup_at - row.due_at).total_seconds() == WAKEUP_RETRY_SECONDS
    last = runs.items(db, run_id)[-1]
    assert last.at == state.resolution.resolved_at
    assert last.body == ResolutionItem(
        call_id="call_1",
        action_id=action_id,
        status="submitted",
        answer_id="a-1",
        answered_by="ann",
        digest="d-1",
    )


@pytest.mark.parametrize("text", ["false", "0", '""', "[]", "null"])
def test_an_answer_that_is_false_is_an_answer(steps: Steps, text: str) -> None:
    _, (action_id,) = steps.parked()
    assert steps.answer(action_id, text).outcome == "accepted"
    resolution = steps.action(action_id).resolution
    assert resolution is not None
    assert repr(resolution.resume) == {"false": "False", "0": "0", '""': "''", "[]": "[]", "null": "None"}[text]


def test_a_cancel_and_a_fail_say_why(steps: Steps) -> None:
    _, (cancelled, failed) = steps.parked(count=2)
    assert steps.answer(cancelled, None, status="cancelled", reason="not today").action_status == "cancelled"
    assert steps.answer(failed, None, status="failed", message="the form broke").action_status == "failed"
    one, two = steps.action(cancelled).resolution, steps.action(failed).resolution
    assert one is not None
    assert two is not None
    assert (one.status, one.reason, one.message, one.resume) == ("cancelled", "not today", None, None)
    assert (two.status, two.reason, two.message, two.resume) == ("failed", None, "the form broke", None)


def test_an_answer_while_the_run_is_driven_only_moves_the_counter(steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    came = steps.answer(action_id)
    assert (came.outcome, came.wake) == ("accepted", False)
    row = steps.row(claim.run.id)
    assert (row.status, row.token, row.revision) == ("running", claim.token, 1)


def test_a_second_answer_to_a_woken_run_wakes_nobody(steps: Steps) -> None:
    run_id, (first, second) = steps.parked(count=2)
    assert steps.answer(first).wake
    assert not steps.answer(second).wake
    assert steps.row(run_id).revision == 2
    assert steps.kinds(run_id) == ["message", "suspension", "suspension", "resolution", "resolution"]


def test_the_same_answer_again_is_a_duplicate_and_another_is_late(steps: Steps) -> None:
    run_id, (action_id,) = steps.parked()
    steps.answer(action_id, "1", answer_id="a-1")
    kinds = steps.kinds(run_id)
    again = steps.answer(action_id, "1", answer_id="a-1")
    assert (again.outcome, again.action_status, again.run_id, again.wake) == ("duplicate", "submitted", run_id, False)
    for late in (
        steps.answer(action_id, "2", answer_id="a-1"),
        steps.answer(action_id, "1", answer_id="a-2"),
        steps.answer(action_id, None, answer_id="a-3", status="cancelled", reason="no"),
    ):
        assert (late.outcome, late.action_status, late.wake) == ("late", "submitted", False)
    assert steps.kinds(run_id) == kinds
    assert steps.row(run_id).revision == 1


def test_an_answer_id_is_scoped_to_its_action(steps: Steps) -> None:
    _, (first, second) = steps.parked(count=2)
    assert steps.answer(first, "1", answer_id="a").outcome == "accepted"
    assert steps.answer(second, "1", answer_id="a").outcome == "accepted"


def test_an_unknown_action(steps: Steps) -> None:
    assert steps.answer("act_nobody_has") == Answered(outcome="unknown")


def test_an_answer_after_the_deadline_is_late_and_expires_the_action(db: Database, steps: Steps) -> None:
    run_id, (action_id,) = steps.parked(timeout_seconds=60)
    steps.advance(60.1)
    came = steps.answer(action_id)
    assert (came.outcome, came.action_status, came.wake) == ("late", "expired", True)
    state = steps.action(action_id)
    assert state.resolution is not None
    assert state.resolution.model_dump(exclude={"status", "resolved_at"}, exclude_none=True) == {}
    assert steps.row(run_id).status == "queued"
    last = runs.items(db, run_id)[-1].body
    assert isinstance(last, ResolutionItem)
    assert (last.status, last.answer_id, last.answered_by, last.digest) == ("expired", None, None, None)
    again = steps.answer(action_id)
    assert (again.outcome, again.action_status, again.wake) == ("late", "expired", False)
    assert forgotten.overdue(db, 10) == ([], [], ())


def test_an_answer_before_the_deadline_is_in_time(steps: Steps) -> None:
    _, (action_id,) = steps.parked(timeout_seconds=60)
    steps.advance(59)
    assert steps.answer(action_id).outcome == "accepted"


def test_a_deadline_with_a_default_answers_with_it(steps: Steps) -> None:
    _, (action_id,) = steps.parked(timeout_seconds=60, on_timeout="default", default={"approved": False})
    steps.advance(61)
    assert steps.answer(action_id).outcome == "late"
    resolution = steps.action(action_id).resolution
    assert resolution is not None
    assert (resolution.status, resolution.resume) == ("expired", {"approved": False})


def test_of_many_answers_at_once_one_is_accepted(steps: Steps) -> None:
    for _ in range(40):
        run_id, (action_id,) = steps.parked()
        outcomes = at_once(*[partial(steps.answer, action_id, answer_id=f"a-{number}") for number in range(4)])
        assert sorted(came.outcome for came in outcomes) == ["accepted", "late", "late", "late"]
        assert [came.wake for came in outcomes].count(True) == 1
        winner = next(number for number, came in enumerate(outcomes) if came.outcome == "accepted")
        resolution = steps.action(action_id).resolution
        assert resolution is not None
        assert resolution.answer_id == f"a-{winner}"
        assert steps.kinds(run_id) == ["message", "suspension", "resolution"]


def test_the_same_answer_at_once_is_accepted_once(steps: Steps) -> None:
    for _ in range(40):
        run_id, (action_id,) = steps.parked()
        outcomes = at_once(*[partial(steps.answer, action_id)] * 4)
        assert sorted(came.outcome for came in outcomes) == ["accepted", "duplicate", "duplicate", "duplicate"]
        assert steps.row(run_id).revision == 1


def test_an_answer_that_waited_for_another_says_how_that_one_ended(
    db: Database, database_url: str, steps: Steps
) -> None:
    run_id, (action_id,) = steps.parked()
    with slow_transaction(db, database_url) as slow:
        assert slow.run(actions.ANSWER, answer_params(action_id)).accepted
        waiting = slow.then(lambda: steps.answer(action_id, None, status="failed", message="m", answer_id="other"))
        slow.commit()
        came = waiting.result()
    assert (came.outcome, came.action_status) == ("late", "submitted")
    assert steps.kinds(run_id) == ["message", "suspension", "resolution"]


def test_never_parked_with_an_answer_that_nobody_saw(steps: Steps) -> None:
    """Park and answer meet, hundreds of times: either the park sees the counter, or the answer wakes."""
    seen = {"parked": 0, "running": 0}
    for _ in range(300):
        claim = steps.claimed()
        (action_id,), _ = steps.open(claim)
        written, came = both(partial(steps.write, claim, becomes=Park()), partial(steps.answer, action_id))
        assert came.outcome == "accepted"
        seen[written.status] += 1
        row = steps.row(claim.run.id)
        if written.status == "parked":
            assert came.wake
            assert (row.status, row.due, row.token) == ("queued", "reentry", None)
        else:
            assert not came.wake
            assert (row.status, row.token) == ("running", claim.token)
    assert seen["parked"] + seen["running"] == 300


def test_never_parked_with_an_answer_that_nobody_saw_when_the_claim_meets_it(steps: Steps) -> None:
    """The first answer wakes the run; the claim and the second answer meet. Whoever drives then parks on
    what it sees, and must not stay parked when both answers are there.
    """
    for _ in range(200):
        run_id, (first, second) = steps.parked(count=2)
        steps.answer(first)
        claim, came = both(partial(steps.claim, run_id), partial(steps.answer, second))
        assert came.outcome == "accepted"
        unseen = [state for state in claim.actions if state.resolution is None]
        if unseen:
            assert steps.write(claim, becomes=Park()).status == "running"
        else:
            assert claim.revision == 2


def test_an_answer_that_waited_for_the_park_wakes_the_run(db: Database, database_url: str, steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    with slow_transaction(db, database_url) as slow:
        assert slow.run(PARK, park_params(claim.run.id, claim.token, claim.revision)).status == "parked"
        waiting = slow.then(lambda: steps.answer(action_id))
        slow.commit()
        assert waiting.result().wake
    assert steps.row(claim.run.id).status == "queued"


def test_a_park_that_waited_for_the_answer_does_not_park(db: Database, database_url: str, steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    with slow_transaction(db, database_url) as slow:
        assert not slow.run(actions.ANSWER, answer_params(action_id)).wake
        waiting = slow.then(lambda: steps.write(claim, becomes=Park()))
        slow.commit()
        assert waiting.result().status == "running"
    assert steps.row(claim.run.id).token == claim.token


def park_params(run_id: str, token: str, revision: int) -> dict[str, Any]:
    lists = ("kinds", "bodies", "action_ids", "call_ids", "names", "request_ids", "asked", "on_timeouts", "defaults")
    empty: dict[str, Any] = {name: [] for name in (*lists, "timeouts", "child_run_ids", "child_groups", "any_ofs")}
    return {"run_id": run_id, "token": token, "seen_revision": revision, **empty, **NO_TOTALS}


def test_get_of_no_action(db: Database) -> None:
    assert actions.get(db, "act_nobody_has") is None


def test_find_by_request_id_finds_pending_ones_and_tells_of_two(db: Database, steps: Steps) -> None:
    _, (one,) = steps.parked(request_id="req-1")
    assert actions.find_by_request_id(db, "req-1") == [one]
    _, (two,) = steps.parked(request_id="req-1")
    steps.parked(request_id="req-1")
    assert len(actions.find_by_request_id(db, "req-1")) == 2
    steps.answer(one)
    steps.answer(two)
    assert len(actions.find_by_request_id(db, "req-1")) == 1
    assert actions.find_by_request_id(db, "req-2") == []


def test_pending_of_all_of_a_thread_and_of_a_run(db: Database, steps: Steps) -> None:
    first, (one, two) = steps.parked(count=2)
    _, (three,) = steps.parked()
    everything = [action.id for action in actions.pending(db)]
    assert everything == [*sorted([one, two]), three]
    assert [action.id for action in actions.pending(db, limit=1)] == everything[:1]
    assert [action.id for action in actions.pending(db, run_id=first)] == everything[:2]
    thread_id = steps.run(first).thread_id
    assert [action.id for action in actions.pending(db, thread_id=thread_id, limit=1)] == everything[:1]
    steps.answer(one)
    assert {action.id for action in actions.pending(db)} == {two, three}


def test_pages_of_pending_actions_hold_each_one_once(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    steps.open(claim, count=3)
    steps.open(claim, count=4)
    seen, after = [], None
    while page := actions.pending_after(db, after, 2):
        seen += page
        after = page[-1]
    assert seen == actions.pending(db)
    assert len(seen) == 7
