"""A rolling deploy: real workers of two builds on one queue, each with code that the other has not."""

from __future__ import annotations

import signal

import pytest

from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import QUICK, Deployment
from tests.processes import ChildProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
APP = "tests.flow.builds_app:app"
QUICKER = {**QUICK["policy"], "build_seconds": 3.0}


def worker(d: Deployment, build: str) -> ChildProcess:
    return d.ready_worker(TEST_BUILD=build)


def answer(d: Deployment, run_id: str) -> None:
    (action,) = d.client.pending(run_id=run_id)
    assert d.client.submit(action.id, YES).status in ("accepted", "kept")


def test_runs_that_only_the_newer_build_can_drive_end_well_whoever_takes_their_hints(
    deploy: Deploy, broker_url: str
) -> None:
    with deploy(app=APP, broker_url=broker_url, policy=QUICKER) as d:
        old, _ = worker(d, "old"), worker(d, "new")
        unknown_to_old = [d.client.start("only_new", "go").id for _ in range(6)]
        either = [d.client.start("both", "go").id for _ in range(6)]
        for run_id in (*unknown_to_old, *either):
            d.client.wait(run_id, until=["parked"], timeout=90)
            answer(d, run_id)
        ended = [d.ended(run_id) for run_id in (*unknown_to_old, *either)]
        assert [(run.status, run.deaths) for run in ended] == [("completed", 0)] * 12
        assert "run left to a newer build" in old.log


def test_when_the_newer_build_is_gone_the_older_decides(deploy: Deploy) -> None:
    with deploy(app=APP, policy=QUICKER) as d:
        worker(d, "old")
        new = worker(d, "new")
        parked = d.parked("only_new")
        new.kill()
        answer(d, parked.id)
        run = d.ended(parked)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.type == "UnknownBlockError"


def test_an_agent_that_no_build_knows_fails_its_run(deploy: Deploy) -> None:
    with deploy(app=APP, policy=QUICKER) as d:
        worker(d, "old")
        worker(d, "new")
        run = d.ended(d.client.start("nobody", "go"))
        assert (run.status, run.turns) == ("failed", 0)


def test_a_restart_of_the_newest_build_keeps_it_the_newest(deploy: Deploy) -> None:
    with deploy(app=APP, policy=QUICKER) as d:
        worker(d, "old")  # first: a build that starts later is a newer one
        new = worker(d, "new")
        run = d.parked("only_new")
        new.send(signal.SIGTERM)
        new.wait()
        newest = worker(d, "new")
        answer(d, run.id)
        assert d.ended(run).status == "completed"
        assert newest.exit_code is None
        wait_until(lambda: d.effects.count("ask_new") == 2, what="the second pass of the new build")
        assert d.effects.count("ask_old") == 0
