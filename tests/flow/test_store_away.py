"""PostgreSQL is away for a while: what was to be done is done when it is back, and at once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from adjourn.store.migrations import upgrade
from benchmarks.breakable import breakable_servers
from tests.conftest import ProcessFactory
from tests.deployment import QUICK, deployment
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.timeout(300)
RUNS = 30
AN_HOUR = 3600


def test_a_worker_keeps_its_wakeups_while_the_store_is_away(
    server_folder: Path, process: ProcessFactory, tmp_path: Path
) -> None:
    # The sweep would give a wake-up again only after an hour.
    tuning = {**QUICK["tuning"], "wakeup_retry_seconds": AN_HOUR}
    with breakable_servers(server_folder / "servers") as servers:
        upgrade(servers.database_url)
        urls = {"database_url": servers.database_url, "redis_url": servers.redis_url}
        with deployment(process, tmp_path, **urls, **{**QUICK, "tuning": tuning, "concurrency": 4}) as d:
            worker = d.ready_worker()
            worker.send(signal.SIGSTOP)
            runs = [d.client.start("asker", "go") for _ in range(RUNS)]
            servers.postgres.kill(signal.SIGQUIT)
            worker.send(signal.SIGCONT)
            worker.wait_for_log("turns wait for the store")
            servers.postgres.start()
            servers.postgres.wait_until_ready()
            for run in runs:
                d.client.wait(run.id, until=["parked"], timeout=LIMIT_SECONDS)
