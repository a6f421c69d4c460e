"""A run that parks is no failure for Celery, for a viewer or in a log, however long it waits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import signals

from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.wakeups import TASKS
from adjourn.tasks.models.scripted import call, say
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.config.settings import load_settings
from adjourn.worker.process.wakeup_tasks import register
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, YES, asking
from tests.deployment import Deployment
from tests.world import Counters, World, scripted


@pytest.fixture
def failures() -> Iterator[list[str]]:
    """What Celery was told went wrong."""
    seen: list[str] = []

    def on(sender: Any = None, **_: Any) -> None:
        seen.append(str(sender))

    watched = (signals.task_failure, signals.task_retry, signals.task_internal_error, signals.task_revoked)
    for each in watched:
        each.connect(on, weak=False)
    yield seen
    for each in watched:
        each.disconnect(on)


@pytest.mark.parametrize("way", WAYS)
def test_a_park_is_a_success_for_celery_and_no_failure_for_anybody(build: Build, failures: list[str], way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    celery = make_celery(load_settings(database_url=w.database_url, redis_url=w.redis_url))
    register(celery, lambda wakeup: drive(w.services, wakeup))
    run_id = w.enqueue().run_id

    assert follow(w, celery) == ["SUCCESS"]
    assert w.run(run_id).status == "parked"
    assert w.run(run_id).error is None
    w.answer(w.the_action(run_id), YES, settle=False)
    assert follow(w, celery) == ["SUCCESS"]
    assert w.run(run_id).status == "completed"

    entries = w.services.events.read(w.run(run_id).thread_id)
    events = [event for entry in entries for event in entry.events]
    assert [event.kind for event in events if event.kind in ("parked", "end")] == ["parked", "end"]
    assert failures == []


def follow(w: World, celery: Any) -> list[str]:
    """Do each waiting wake-up as a Celery task, and say what Celery makes of it."""
    states = []
    while w.wakeups.waiting:
        wakeup: WakeUp = w.wakeups.waiting.popleft()
        states.append(celery.tasks[TASKS[wakeup.due]].apply(args=(wakeup.model_dump(),)).state)
    return states


def test_a_wait_longer_than_every_execution_limit_is_no_failure(build: Build) -> None:
    fx = Counters()
    w = build(
        asking("inline", fx, timeout=timedelta(seconds=20), retries=1), model=scripted(call("ask", x=1), say("done"))
    )
    run_id = w.start()
    w.advance(3600)
    assert w.sweep().abandoned == 0
    assert w.run(run_id).status == "parked"
    w.answer(w.the_action(run_id), YES)
    assert (w.run(run_id).status, [o.outcome for o in w.outputs(run_id)]) == ("completed", ["success"])


def test_a_worker_says_nothing_of_a_failure_when_a_run_parks(live: Deployment) -> None:
    live.effects.release("behind-gate")
    worker = live.ready_worker()
    run = live.parked("asker")
    assert run.error is None
    (action,) = live.client.pending(run_id=run.id)
    action.submit(YES)
    assert live.ended(run).status == "completed"
    assert not [word for word in ("level=error", "Traceback", "FAILURE", "Suspension") if word in worker.log]
