"""A tool that kills its process, beside a hundred healthy runs of the same worker."""

from __future__ import annotations

import pytest

from tests.conftest import Deploy
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
HEALTHY = 100


def test_poison_fails_after_three_deaths_of_its_own_and_a_hundred_others_of_its_worker_do_not_notice(
    deploy: Deploy,
) -> None:
    with deploy(concurrency=HEALTHY + 20) as d:
        doomed = d.ready_worker()
        poison = d.client.start("killer", "go")
        assert doomed.wait() == 1, "it did not take its first worker along"

        worker = d.ready_worker()
        healthy = [d.client.start("held", "go") for _ in range(HEALTHY)]
        d.noted("model", HEALTHY)
        failed = d.ended(poison)
        assert failed.error is not None
        assert failed.error.type == "PoisonedRunError"
        assert failed.deaths == d.effects.count("die") == 1 + d.settings.tuning.suspect_deaths

        # Its deaths, after the first, were beside these runs, and in other processes.
        assert worker.exit_code is None
        assert set(d.effects.pids("model")) == {worker.pid}
        d.effects.release("model")
        for run in healthy:
            ended = d.ended(run)
            assert (ended.status, ended.output, ended.deaths) == ("completed", "done", 0)
        wait_until(lambda: d.messages() == 0, what="an empty broker")
        assert d.effects.count("model") == HEALTHY, "a model was asked again"
