"""Trees of runs on real workers: a thousand children at once, and a new process for every step."""

from __future__ import annotations

import signal

import pytest
import sqlalchemy as sa

from adjourn.store.postgres.runs import starts as runs
from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
CHILDREN = 1_000
WORKERS = 4
CLAIMED = sa.text("select revision, turns from adjourn.runs where id = :run_id")
OF_PARENT = sa.text(
    "select count(*) as n, count(distinct id) filter (where status = 'completed') as completed, max(deaths) as deaths "
    "from adjourn.runs where parent_run_id = :run_id"
)


def test_a_thousand_children_under_one_parent_finish_and_wake_it_once(deploy: Deploy) -> None:
    with deploy(concurrency=8) as d:
        for _ in range(WORKERS):
            d.worker()
        for worker in d.workers:
            worker.wait_for_log("worker ready")
        run = d.ended(d.client.start("many", str(CHILDREN)))
        assert (run.status, run.output) == ("completed", f"{CHILDREN} of {CHILDREN}")
        of_parent = d.db.one(OF_PARENT, {"run_id": run.id})
        assert (of_parent.n, of_parent.completed, of_parent.deaths) == (CHILDREN, CHILDREN, 0)
        assert d.effects.count("dug") == CHILDREN
        assert run.turns == CHILDREN + 2
        # One for the last of the children, one for the end.
        assert d.db.one(CLAIMED, {"run_id": run.id}).revision == 2


def test_a_gate_in_a_grandchild_with_a_new_process_for_every_step(deploy: Deploy) -> None:
    with deploy() as d:
        run = d.client.start("deep", "go")
        step(d, "parked", run.id)
        (middle,) = children(d, run.id)
        step(d, "parked", middle)
        (leaf,) = children(d, middle)
        step(d, "parked", leaf)
        (action,) = d.client.pending(thread_id=run.thread_id)
        assert action.origin.run_id == leaf
        assert action.origin.block_path == ("deep", "middle", "leaf", "ask")
        assert d.client.submit(action.id, YES).ok
        for each in (leaf, middle, run.id):
            step(d, "completed", each)
        assert d.client.get_run(run.id).output == d.client.get_run(leaf).output
        assert {name: d.effects.count(f"model_of_{name}") for name in ("middle", "leaf")} == {"middle": 2, "leaf": 2}
        assert d.effects.count("fx") == 1
        assert d.client.get_run(run.id).turns == 6
        d.ready_worker()  # for the wake-ups that the sweep has given once more


def step(d: Deployment, status: str, run_id: str) -> None:
    """Have a worker drive the run as far as this, and end it. What it is at by then it finishes."""
    worker = d.worker()
    wait_until(lambda: found(d, run_id) == status, what=f"run {run_id} to be {status}")
    worker.send(signal.SIGTERM)
    worker.wait()


def found(d: Deployment, run_id: str) -> str:
    run = runs.get(d.db, run_id)
    return run.status if run else ""


def children(d: Deployment, run_id: str) -> list[str]:
    return [run.id for run in runs.list(d.db) if run.parent_run_id == run_id]
