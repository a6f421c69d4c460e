"""The sweep's statements: what nobody is about to move on is found by its state alone."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import sqlalchemy as sa

from adjourn.schemas.internal.state import Park, Requeue
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from tests.store.steps import (
    LEASE_SECONDS,
    SUSPECT_DEATHS,
    WAKEUP_RETRY_SECONDS,
    Steps,
    at_once,
    both,
    slow_transaction,
)
from tests.store.test_claims import answer_params

LIMIT = 100


def unsent(steps: Steps, limit: int = LIMIT) -> list[WakeUp]:
    return forgotten.unsent(steps.db, limit)


def abandoned(steps: Steps, limit: int = LIMIT) -> list[WakeUp]:
    return forgotten.abandoned(steps.db, limit)


def overdue(steps: Steps, limit: int = LIMIT) -> list[WakeUp]:
    return forgotten.overdue(steps.db, limit).wakeups


# --- unsent ----------------------------------------------------------------------------------------


def test_a_lost_wakeup_is_given_again_after_pauses_that_double_to_a_limit(steps: Steps) -> None:
    run_id = steps.start().run_id
    assert unsent(steps) == []
    pauses = []
    for _ in range(7):
        pause = (steps.row(run_id).wakeup_at - now(steps)).total_seconds()
        pauses.append(round(pause / WAKEUP_RETRY_SECONDS))
        steps.advance(pause - 1)
        assert unsent(steps) == []
        steps.advance(1.1)
        assert unsent(steps) == [WakeUp(run_id=run_id, due="turn")]
    assert pauses == [1, 2, 4, 8, 16, 20, 20]
    steps.claim(run_id)
    steps.advance(10_000)
    assert unsent(steps) == []


def now(steps: Steps) -> datetime:
    clock: datetime = steps.db.one(sa.text("select adjourn.adjourn_now() as now"), {}).now
    return clock


def test_wakeups_start_over_when_the_run_is_due_again(steps: Steps) -> None:
    run_id = steps.start().run_id
    steps.advance(40)
    unsent(steps)
    steps.write(steps.claim(run_id), becomes=Requeue())
    assert steps.row(run_id).wakeups == 0


def test_unsent_finds_answers_whose_wakeup_was_lost(steps: Steps) -> None:
    run_id, (action_id,) = steps.parked()
    steps.answer(action_id)
    steps.advance(31)
    assert unsent(steps) == [WakeUp(run_id=run_id, due="reentry")]


def test_unsent_is_bounded_and_oldest_first(steps: Steps) -> None:
    ids = [steps.start().run_id for _ in range(5)]
    steps.advance(31)
    assert {wakeup.run_id for wakeup in unsent(steps, 3)} == set(ids[:3])
    assert {wakeup.run_id for wakeup in unsent(steps, 3)} == set(ids[3:])


def test_sweeps_at_once_share_what_there_is(steps: Steps) -> None:
    for _ in range(10):
        ids = {steps.start().run_id for _ in range(20)}
        steps.advance(31)
        found = at_once(*[partial(unsent, steps, 10)] * 4)
        woken_up = [wakeup.run_id for wakeups in found for wakeup in wakeups if wakeup.run_id in ids]
        assert len(woken_up) == len(set(woken_up))


def test_a_run_that_is_just_being_claimed_is_skipped(db: Database, database_url: str, steps: Steps) -> None:
    run_id = steps.start().run_id
    steps.advance(31)
    with slow_transaction(db, database_url) as slow:
        slow.run(sa.text("select id from adjourn.runs where id = :id for update"), {"id": run_id})
        assert unsent(steps) == []
        slow.commit()
    assert unsent(steps) == [WakeUp(run_id=run_id, due="turn")]


def test_after_a_loss_of_redis_all_that_is_queued_is_due_a_wakeup(steps: Steps) -> None:
    queued = steps.start().run_id
    answered, (action_id,) = steps.parked()
    steps.answer(action_id)
    steps.claimed()
    steps.parked()
    assert unsent(steps) == []
    forgotten.make_all_due(steps.db)
    assert {wakeup.run_id for wakeup in unsent(steps)} == {queued, answered}
    assert unsent(steps) == []


def test_a_loss_of_redis_does_not_hurry_a_delayed_run(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=100, becomes=Requeue(after_pause=True))
    forgotten.make_all_due(steps.db)
    assert unsent(steps) == []


# --- stranded --------------------------------------------------------------------------------------


def test_a_stranded_run_is_made_due_and_only_the_first_of_its_thread(db: Database, steps: Steps) -> None:
    first = steps.start(thread_id="thread-1").run_id
    second, third = (steps.start(thread_id="thread-1", enqueue=True).run_id for _ in range(2))
    assert unsent(steps) == []
    db.execute(sa.text("delete from adjourn.runs where id = :id"), {"id": first})
    assert unsent(steps) == [WakeUp(run_id=second, due="turn")]
    assert unsent(steps) == []
    assert steps.row(third).due is None


# --- abandoned -------------------------------------------------------------------------------------


def test_a_run_whose_lease_ran_out_is_retried_in_a_process_of_its_own(steps: Steps) -> None:
    claim = steps.claimed()
    assert abandoned(steps) == []
    steps.advance(LEASE_SECONDS + 1)
    assert abandoned(steps) == [WakeUp(run_id=claim.run.id, due="suspect")]
    row = steps.row(claim.run.id)
    assert (row.status, row.due, row.deaths, row.token, row.lease_until) == ("queued", "suspect", 1, None, None)
    assert abandoned(steps) == []
    assert steps.try_claim(claim.run.id) is None
    steps.claim(claim.run.id, suspect=True)


def test_a_renewed_lease_is_not_abandoned(steps: Steps) -> None:
    claim = steps.claimed()
    steps.advance(LEASE_SECONDS - 1)
    runs.renew(steps.db, [(claim.run.id, claim.token)])
    steps.advance(LEASE_SECONDS - 1)
    assert abandoned(steps) == []


def test_a_run_that_kills_its_workers_fails_after_three_deaths_of_its_own(steps: Steps) -> None:
    claim = steps.claimed()
    run_id = claim.run.id
    following = steps.start(thread_id=claim.run.thread_id, enqueue=True).run_id
    for _ in range(1 + SUSPECT_DEATHS - 1):
        steps.advance(LEASE_SECONDS + 1)
        assert abandoned(steps) == [WakeUp(run_id=run_id, due="suspect")]
        steps.claim(run_id, suspect=True)
    steps.advance(LEASE_SECONDS + 1)
    assert abandoned(steps) == [WakeUp(run_id=following, due="turn")]
    run = steps.run(run_id)
    assert (run.status, run.deaths) == ("failed", SUSPECT_DEATHS + 1)
    assert run.error is not None
    assert run.error.type == "PoisonedRunError"
    assert steps.kinds(run_id) == ["message", "end"]


def test_abandoned_is_bounded_and_shared_by_sweeps_at_once(steps: Steps) -> None:
    ids = {steps.claimed().run.id for _ in range(20)}
    steps.advance(LEASE_SECONDS + 1)
    assert len(abandoned(steps, 4)) == 4
    found = [wakeup.run_id for wakeups in at_once(*[partial(abandoned, steps)] * 4) for wakeup in wakeups]
    assert len(found) == len(set(found)) == 16
    assert {steps.run(id).deaths for id in ids} == {1}


# --- overdue ---------------------------------------------------------------------------------------


def test_deadlines_fire_and_wake_their_runs(db: Database, steps: Steps) -> None:
    run_id, ids = steps.parked(count=3, timeout_seconds=60)
    patient, _ = steps.parked(timeout_seconds=100)
    endless, _ = steps.parked()
    assert overdue(steps) == []
    steps.advance(61)
    found = forgotten.overdue(db, LIMIT)
    assert (found.wakeups, sorted(found.action_ids)) == ([WakeUp(run_id=run_id, due="reentry")], sorted(ids))
    row = steps.row(run_id)
    assert (row.status, row.due, row.revision) == ("queued", "reentry", 3)
    assert steps.kinds(run_id) == ["message", *["suspension"] * 3, *["resolution"] * 3]
    assert {steps.action(id).action.status for id in ids} == {"expired"}
    assert [steps.run(id).status for id in (patient, endless)] == ["parked", "parked"]
    assert overdue(steps) == []
    assert steps.answer(ids[0]).outcome == "late"


def test_a_deadline_gives_the_default(steps: Steps) -> None:
    _, (action_id,) = steps.parked(timeout_seconds=60, on_timeout="default", default=[])
    steps.advance(61)
    overdue(steps)
    resolution = steps.action(action_id).resolution
    assert resolution is not None
    assert (resolution.status, resolution.resume, resolution.answered_by) == ("expired", [], None)


def test_a_deadline_while_the_run_is_driven_keeps_it_from_parking(steps: Steps) -> None:
    claim = steps.claimed()
    steps.open(claim, timeout_seconds=1)
    steps.advance(2)
    assert overdue(steps) == []
    assert steps.write(claim, becomes=Park()).status == "running"


def test_overdue_is_bounded_even_within_one_run(steps: Steps) -> None:
    run_id, _ = steps.parked(count=5, timeout_seconds=60)
    steps.advance(61)
    assert overdue(steps, 2) == [WakeUp(run_id=run_id, due="reentry")]
    assert steps.row(run_id).revision == 2
    assert overdue(steps, 2) == []
    assert overdue(steps, 2) == []
    assert steps.row(run_id).revision == 5
    assert steps.kinds(run_id) == ["message", *["suspension"] * 5, *["resolution"] * 5]


def test_a_deadline_and_an_answer_at_once_agree(steps: Steps) -> None:
    """Whichever is first, the action ends once, and the run is moved once for it."""
    runs_and_actions = [steps.parked(timeout_seconds=60) for _ in range(40)]
    steps.advance(61)
    for run_id, (action_id,) in runs_and_actions:
        came, _ = both(partial(steps.answer, action_id), partial(overdue, steps, 1))
        assert (came.outcome, came.action_status) == ("late", "expired")
        assert steps.kinds(run_id) == ["message", "suspension", "resolution"]
        assert steps.row(run_id).revision == 1


def test_a_run_that_is_just_being_answered_is_skipped_and_its_answer_stands(
    db: Database, database_url: str, steps: Steps
) -> None:
    run_id, (action_id,) = steps.parked(timeout_seconds=60)
    with slow_transaction(db, database_url) as slow:
        assert slow.run(actions.ANSWER, answer_params(action_id)).accepted
        steps.advance(61)
        assert overdue(steps) == []
        slow.commit()
    assert overdue(steps) == []
    assert steps.action(action_id).action.status == "submitted"
    assert steps.row(run_id).revision == 1
