"""Wake-ups that somebody else wrote: whatever they say, nothing happens that PostgreSQL does not say."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kombu import Connection

from adjourn import Agent, Context, WaitPoint, call, say, tool
from adjourn.schemas.records.ids import new_run_id
from adjourn.schemas.records.runs import Due, WakeUp
from adjourn.store.postgres.answers import dead_letters
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.wakeups import QUEUES, TASKS
from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.flow.conftest import Plant
from tests.store.steps import tuned
from tests.waiting import wait_until
from tests.world import Counters, World, scripted

DUES: list[Due] = ["turn", "reentry", "suspect"]
MANY = 2_000
point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=str, resume=bool)


def gate(counters: Counters) -> Any:
    @tool(wait_points=[point])
    def ask(ctx: Context) -> str:
        """Ask."""
        counters.bump("pass")
        return str(ctx.ask(point, "?"))

    return ask


@pytest.fixture
def w(plant: Plant, counters: Counters) -> World:
    steps = [step for _ in range(9) for step in (call("ask"), say("done"))]
    return plant(Agent("agent", model=scripted(*steps, counters=counters), tools=[gate(counters)]))


def rows(w: World) -> Any:
    """All that a wake-up could change."""
    return [(run, w.items(run.id)) for run in sorted(runs.list(w.db, limit=100), key=lambda run: run.id)]


def test_a_wakeup_moves_only_a_run_that_is_due_whoever_wrote_it(w: World, counters: Counters) -> None:
    parked = w.start()
    ended = w.start()
    w.answer(w.the_action(ended), True)
    running = w.enqueue().run_id
    behind = w.enqueue(thread_id=w.run(parked).thread_id, enqueue=True).run_id
    w.wakeups.waiting.clear()
    claim = runs.claim(w.db, running, suspect=False, token="a worker")
    assert claim is not None
    before, seen = rows(w), dict(counters.seen)
    for run_id in (parked, ended, running, behind, new_run_id(), "", "' or true; --", "x" * 9_000, "\ud7ff☠"):
        for due in DUES:
            drive(w.services, WakeUp(run_id=run_id, due=due))
    assert (rows(w), counters.seen) == (before, seen)
    assert list(w.wakeups.waiting) == []


def test_a_run_that_killed_its_worker_is_not_taken_by_an_ordinary_wakeup(w: World, counters: Counters) -> None:
    run_id = w.enqueue().run_id
    w.wakeups.waiting.clear()
    runs.claim(tuned(w.db, lease_seconds=1), run_id, suspect=False, token="dead")
    w.advance(2)
    forgotten.abandoned(w.db, 10)
    for due in DUES[:2]:
        drive(w.services, WakeUp(run_id=run_id, due=due))
    assert (w.run(run_id).status, counters["model"]) == ("queued", 0)


def test_a_suspect_wakeup_does_not_take_an_ordinary_run_or_count_a_death(w: World, counters: Counters) -> None:
    run_id = w.enqueue().run_id
    w.wakeups.waiting.clear()
    drive(w.services, WakeUp(run_id=run_id, due="suspect"))
    assert (w.run(run_id).status, w.run(run_id).deaths, counters["model"]) == ("queued", 0, 0)


def test_a_million_true_wakeups_are_one(w: World, counters: Counters) -> None:
    run_id = w.start()
    w.answer(w.the_action(run_id), True, settle=False)
    for number in range(300):
        drive(w.services, WakeUp(run_id=run_id, due=DUES[number % 2]))
    assert (w.run(run_id).status, counters["pass"], counters["model"]) == ("completed", 2, 2)


# --- through the broker, into real workers -----------------------------------------------------------


def publish(d: Deployment, *forged: tuple[str, str, Any]) -> None:
    """Queue, task and payload of each."""
    with Connection(d.settings.broker) as connection:
        producer = connection.Producer()
        for queue, task, payload in forged:
            headers = {"lang": "py", "task": task, "id": str(uuid.uuid4())}
            producer.publish(([payload], {}, {}), serializer="json", headers=headers, exchange="", routing_key=queue)


@pytest.mark.timeout(300)
def test_a_worker_serves_its_runs_among_forged_wakeups(deploy: Deploy, broker_url: str) -> None:
    with deploy(broker_url=broker_url) as d:
        worker = d.ready_worker()
        parked = d.parked("asker")
        other = d.parked("asker")
        ended = d.parked("asker")
        (action,) = d.client.pending(run_id=ended.id)
        d.client.submit(action.id, YES)
        d.ended(ended)
        before = {run.id: d.client.items(run.id) for run in (parked, other, ended)}
        asked = d.effects.count("ask")

        targets = [parked.id, other.id, ended.id, new_run_id(), "nobody", "-c", "--help"]
        wrong = [
            (QUEUES[queue], TASKS[task], {"v": 1, "run_id": run_id, "due": due})
            for run_id in targets
            for queue in DUES
            for task in DUES
            for due in DUES
        ]
        unknown = [
            (QUEUES["turn"], TASKS["turn"], {"v": 1, "run_id": new_run_id(), "due": "turn"}) for _ in range(MANY)
        ]
        no_wakeups = [
            (QUEUES["turn"], TASKS["turn"], payload)
            for payload in (
                None,
                7,
                [],
                {},
                {"run_id": parked.id},
                {"run_id": parked.id, "due": "now"},
                {"run_id": [parked.id], "due": "turn"},
                {"v": 9, "run_id": parked.id, "due": "turn"},
                {"run_id": parked.id, "due": "turn", "token": "mine"},
                {"run_id": "\0", "due": "turn"},
            )
        ]
        publish(d, *wrong, *unknown, *no_wakeups)
        honest = d.client.start("steps", "go")
        d.effects.release("second")
        assert d.ended(honest).status == "completed"
        wait_until(lambda: d.messages() == 0, 90, "an empty broker")
        assert {run_id: d.client.items(run_id) for run_id in before} == before
        assert d.effects.count("ask") == asked
        assert worker.exit_code is None
        assert len(dead_letters.list(d.db, limit=100)) == len(no_wakeups)
        for run in (parked, other):
            (action,) = d.client.pending(run_id=run.id)
            d.client.submit(action.id, YES)
            assert d.ended(run).status == "completed"
