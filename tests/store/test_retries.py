"""A failed run that goes on: what is due again, what is open again, and who may not be in the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adjourn.schemas.errors import NotFoundError, NotRetryableError, ThreadBusyError
from adjourn.schemas.internal.state import Claim, End, Park
from adjourn.schemas.records.items import EndItem, RunFailure
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import retries
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.runs.retries import RETRY
from adjourn.store.results import Retried
from adjourn.store.rules import PARENT_ENDED
from tests.store.steps import Steps, at_once, slow_transaction, tuned

FIXABLE = ("ToolChangedError", "PoisonedRunError")


def fail(steps: Steps, claim: Claim, error: str = "ToolChangedError") -> str:
    failure = RunFailure(type=error, message="it does not fit")
    steps.write(claim, EndItem(status="failed", error=failure), becomes=End(status="failed", error=failure))
    return claim.run.id


def retry(steps: Steps, run_id: str, **fields: Any) -> Retried:
    return retries.retry(steps.db, run_id, types=FIXABLE, by="ann", **fields)


def test_a_failed_run_is_due_again_with_all_that_it_has_recorded(steps: Steps) -> None:
    claim = steps.claimed()
    (answered, declined, open_), _ = steps.open(claim, count=3)
    steps.answer(answered)
    steps.answer(declined, None, status="cancelled", reason="no")
    run_id = fail(steps, claim)
    assert steps.answer(open_).outcome == "late"
    retried = retry(steps, run_id)
    assert retried.wakeup == WakeUp(run_id=run_id, due="turn")
    assert (retried.run.status, retried.run.error) == ("queued", None)
    assert retried.run == steps.run(run_id)
    assert steps.kinds(run_id)[-3:] == ["resolution", "end", "retry"]
    states = {id: steps.action(id) for id in (answered, declined, open_)}
    assert {id: state.action.status for id, state in states.items()} == {
        answered: "submitted",
        declined: "cancelled",
        open_: "pending",
    }
    assert states[open_].resolution is None
    assert steps.answer(open_, answer_id="answer-2").outcome == "accepted"
    again = steps.claim(run_id)
    assert [item.body.kind for item in again.items][-3:] == ["end", "retry", "resolution"]
    steps.end(again)
    assert steps.run(run_id).status == "completed"


def test_a_retried_run_can_park_on_what_is_open_again(steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    run_id = fail(steps, claim)
    retry(steps, run_id)
    again = steps.claim(run_id)
    assert steps.write(again, becomes=Park()).status == "parked"
    assert steps.answer(action_id).wake


def test_it_loses_its_pause(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=480)
    run_id = fail(steps, claim)
    retry(steps, run_id)
    assert not steps.claim(run_id).paused, "its models may be asked again, and a new pause is as long as a first one"


def test_it_takes_new_limits_and_loses_its_deaths(steps: Steps) -> None:
    run_id = fail(steps, steps.claimed())
    assert retry(steps, run_id, limits=Limits(turns=7)).run.limits == Limits(turns=7)
    run_id = fail(steps, steps.claimed())
    assert retry(steps, run_id).run.limits == Limits()


def test_a_run_that_killed_its_workers_is_tried_in_a_process_of_its_own_again(steps: Steps) -> None:
    steps = Steps(tuned(steps.db, suspect_deaths=1))
    claim = steps.claimed()
    steps.advance(61)
    forgotten.abandoned(steps.db, 10)
    steps.claim(claim.run.id, suspect=True)
    runs.record_death(steps.db, claim.run.id)
    failed = steps.run(claim.run.id)
    assert failed.error is not None
    assert (failed.error.type, failed.deaths) == ("PoisonedRunError", 2)
    assert retry(steps, claim.run.id).wakeup.due == "suspect"
    assert steps.run(claim.run.id).deaths == 0
    assert steps.try_claim(claim.run.id) is None
    steps.claim(claim.run.id, suspect=True)


@pytest.mark.parametrize("becomes", ["queued", "completed", "cancelled", "BlockFailedError"])
def test_what_has_not_failed_or_failed_by_itself_is_refused(steps: Steps, becomes: str) -> None:
    run_id = steps.start().run_id
    if becomes == "cancelled":
        runs.cancel(steps.db, run_id, reason=None, by=None)
    elif becomes == "completed":
        steps.end(steps.claim(run_id))
    elif becomes != "queued":
        fail(steps, steps.claim(run_id), becomes)
    row = steps.row(run_id)
    with pytest.raises(NotRetryableError) as refused:
        retry(steps, run_id)
    assert refused.value.status == row.status
    assert steps.row(run_id) == row


def test_no_run(steps: Steps) -> None:
    with pytest.raises(NotFoundError):
        retry(steps, "run-nobody-has")


def test_a_thread_with_another_run_is_busy(steps: Steps) -> None:
    run_id = fail(steps, steps.claimed(thread_id="thread-1"))
    other = steps.claimed(thread_id="thread-1")
    with pytest.raises(ThreadBusyError) as busy:
        retry(steps, run_id)
    assert (busy.value.run_id, busy.value.status) == (other.run.id, "running")
    steps.end(other)
    assert retry(steps, run_id).run.status == "queued"
    with pytest.raises(ThreadBusyError):
        steps.start(thread_id="thread-1")


def test_of_many_retries_one_takes_the_run_and_of_two_runs_one_takes_the_thread(steps: Steps) -> None:
    for number in range(10):
        first = fail(steps, steps.claimed(thread_id=f"thread-{number}"))
        second = fail(steps, steps.claimed(thread_id=f"thread-{number}"))
        outcomes = at_once(*[partial(attempt, steps, each) for each in (first, second, first, second)])
        assert outcomes.count("retried") == 1
        assert set(outcomes) <= {"retried", "NotRetryableError", "ThreadBusyError"}
        assert sorted([steps.run(first).status, steps.run(second).status]) == ["failed", "queued"]


def attempt(steps: Steps, run_id: str) -> str:
    try:
        retry(steps, run_id)
    except (NotRetryableError, ThreadBusyError) as refused:
        return type(refused).__name__
    return "retried"


def test_a_start_that_waits_for_a_retry_finds_the_thread_busy(steps: Steps, db: Database, database_url: str) -> None:
    run_id = fail(steps, steps.claimed(thread_id="thread-1"))
    params = {
        "run_id": run_id,
        "types": [*FIXABLE],
        "types_anew": [],
        "orphaned": PARENT_ENDED,
        "limits": None,
        "body": '{"kind":"retry"}',
        "wakeup_retry_seconds": 30.0,
    }
    with slow_transaction(db, database_url) as slow:
        assert slow.run(RETRY, params).retried
        start = slow.then(lambda: steps.start(thread_id="thread-1"))
        other = slow.then(partial(attempt, steps, run_id))
        slow.commit()
        with pytest.raises(ThreadBusyError):
            start.result()
        assert other.result() == "NotRetryableError"


def test_a_retry_that_waits_for_a_start_finds_the_thread_busy(steps: Steps, db: Database, database_url: str) -> None:
    run_id = fail(steps, steps.claimed(thread_id="thread-1"))
    params = {
        "run_id": "run-other",
        "thread_id": "thread-1",
        "agent": "agent",
        "body": '{"kind":"message","text":"go"}',
        "limits": None,
        "state_version": 1,
        "enqueue": False,
        "wakeup_retry_seconds": 30.0,
    }
    with slow_transaction(db, database_url) as slow:
        assert slow.run(runs.START, params).due
        retried = slow.then(partial(attempt, steps, run_id))
        slow.commit()
        assert retried.result() == "ThreadBusyError"
    assert steps.run(run_id).status == "failed"
