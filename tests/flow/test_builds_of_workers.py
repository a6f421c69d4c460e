"""A rolling deploy: real workers of two builds on one queue, each with code that the other has not."""

from __future__ import annotations

import signal

import pytest

from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import QUICK, Deployment
from tests.processes import ChildProcess
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.timeout(300)
APP = "tests.flow.builds_app:app"
QUICKER = {**QUICK["tuning"], "build_seconds": 3.0}


def worker(d: Deployment, build: str) -> ChildProcess:
    return d.ready_worker(TEST_BUILD=build)


def answer(d: Deployment, run_id: str) -> None:
    (action,) = d.client.pending(run_id=run_id)
    assert d.client.submit(action.id, YES).status in ("accepted", "kept")


def test_runs_that_only_the_newer_build_can_drive_end_well_whoever_takes_their_wakeups(
    deploy: Deploy, broker_url: str
) -> None:
    with deploy(app=APP, broker_url=broker_url, tuning=QUICKER) as d:
        old, _ = worker(d, "old"), worker(d, "new")
        unknown_to_old = [d.client.start("only_new", "go").id for _ in range(6)]
        either = [d.client.start("both", "go").id for _ in range(6)]
        for run_id in (*unknown_to_old, *either):
            d.client.wait(run_id, until=["parked"], timeout=LIMIT_SECONDS)
            answer(d, run_id)
        ended = [d.ended(run_id) for run_id in (*unknown_to_old, *either)]
        assert [(run.status, run.deaths) for run in ended] == [("completed", 0)] * 12
        assert "run left to a newer build" in old.log


def test_when_the_newer_build_is_gone_the_older_decides(deploy: Deploy) -> None:
    with deploy(app=APP, tuning=QUICKER) as d:
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
    with deploy(app=APP, tuning=QUICKER) as d:
        worker(d, "old")
        worker(d, "new")
        run = d.ended(d.client.start("nobody", "go"))
        assert (run.status, run.turns) == ("failed", 0)


def test_a_restart_of_the_newest_build_keeps_it_the_newest(deploy: Deploy) -> None:
    with deploy(app=APP, tuning=QUICKER) as d:
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


LONG_LIVED = {**QUICKER, "build_seconds": 120.0, "shutdown_seconds": 0.5}
"""A build is live for longer than a restart of its workers takes."""


def test_a_run_that_killed_a_worker_of_the_newer_build_waits_in_quarantine_for_that_build(deploy: Deploy) -> None:
    with deploy(app=APP, tuning=LONG_LIVED) as d:
        old = worker(d, "old")
        new = worker(d, "new")
        run = d.client.start("dies_new", "go")
        assert new.wait() == 1, "it did not take its worker along"
        wait_until(lambda: d.client.get_run(run.id).status == "queued", what="the end of the lease")
        # The older build has the only worker: its quarantine must neither drive the run nor count a death of it.
        wait_until(lambda: "run left to a newer build" in old.log, what="the older build to leave the run")
        left = d.client.get_run(run.id)
        assert (left.status, left.deaths, d.effects.count("die_once")) == ("queued", 1, 1)
        newest = worker(d, "new")
        assert d.ended(run).status == "completed"
        assert d.effects.count("die_once") == 2
        assert d.effects.pids("die_once")[1] != newest.pid, "it ran in a process of its own"
        assert (old.exit_code, newest.exit_code) == (None, None)


def test_a_run_that_a_stopping_worker_of_the_newer_build_puts_back_waits_for_that_build(deploy: Deploy) -> None:
    with deploy(app=APP, tuning=LONG_LIVED) as d:
        old = worker(d, "old")
        new = worker(d, "new")
        run = d.client.start("holds_new", "go")
        assert d.noted("held") == new.pid
        new.send(signal.SIGTERM)
        new.wait()
        wait_until(lambda: "run left to a newer build" in old.log, what="the older build to leave the run")
        left = d.client.get_run(run.id)
        assert (left.status, left.deaths) == ("queued", 0)
        newest = worker(d, "new")
        assert d.noted("held", 2) == newest.pid
        d.effects.release("held")
        ended = d.ended(run)
        assert (ended.status, ended.deaths, ended.turns) == ("completed", 0, 2)
