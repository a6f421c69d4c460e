"""A run goes from one worker process to another, through each kind of broker, whatever becomes of the first."""

from __future__ import annotations

import pytest

from adjourn.schemas.records.answers import Answer
from tests.conftest import Deploy

pytestmark = pytest.mark.timeout(300)
YES = {"approved": True, "note": "yes"}


def test_a_run_that_was_started_on_one_worker_is_resumed_on_another_after_a_kill_of_the_first(
    deploy: Deploy, broker_url: str
) -> None:
    with deploy(broker_url=broker_url) as d:
        first = d.ready_worker()
        run = d.parked("asker")
        (action,) = d.client.pending(run_id=run.id)
        first.kill()

        second = d.ready_worker()
        receipt = d.client.publish(Answer(action_id=action.id, data=YES), 60)
        assert (receipt.status, receipt.run_id) == ("accepted", run.id)
        ended = d.ended(run)
        assert (ended.status, ended.output, ended.turns, ended.deaths) == ("completed", "done", 2, 0)
        assert d.effects.pids("ask") == [first.pid, second.pid]
        assert d.effects.pids("fx") == [second.pid]


def test_an_answer_sent_while_no_worker_lives_is_taken_by_the_next(deploy: Deploy, broker_url: str) -> None:
    with deploy(broker_url=broker_url) as d:
        first = d.ready_worker()
        runs = [d.parked("asker") for _ in range(2)]
        first.kill()
        for run in runs:
            (action,) = d.client.pending(run_id=run.id)
            assert d.client.submit(action.id, YES).status == "accepted"
        second = d.ready_worker()
        assert [d.ended(run).status for run in runs] == ["completed", "completed"]
        assert d.effects.pids("fx") == [second.pid] * 2


def test_a_run_whose_worker_is_killed_inside_a_tool_is_finished_by_another(deploy: Deploy, broker_url: str) -> None:
    with deploy(broker_url=broker_url) as d:
        first = d.ready_worker()
        run = d.client.start("steps", "go")
        assert d.noted("second") == first.pid
        d.ready_worker()
        first.kill()
        d.effects.release("second")
        ended = d.ended(run)
        assert (ended.status, ended.turns) == ("completed", 2)
        assert d.effects.pids("first") == [first.pid], "a finished tool was run again"
