"""A bench with one lane per broker, on the servers that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from adjourn.store.scratch import ScratchDatabases
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.crash.forkserver import ForkServer
from tests.crash.lanes import Lane
from tests.crash.sweep import Bench
from tests.servers import RabbitNode

FIRST_REDIS_DATABASE = 8
"""A trial flushes its Redis database. The other tests of as many pytest-xdist workers have those below."""


@pytest.fixture(scope="session")
def crash_folder(run_folder: Path, worker_id: str) -> Path:
    folder = run_folder / f"crash-{worker_id}"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def redis_lane_url(servers: EmbeddedServers, worker_id: str) -> str:
    number = 0 if worker_id == "master" else int(worker_id.removeprefix("gw"))
    return f"{servers.redis_url.removesuffix('/0')}/{FIRST_REDIS_DATABASE + number}"


@pytest.fixture(scope="module")
def on_redis(
    databases: ScratchDatabases, redis_lane_url: str, fork_server: ForkServer, crash_folder: Path
) -> Iterator[Bench]:
    """Trials with the queues in Redis."""
    with ExitStack() as stack:
        lane = Lane(stack.enter_context(databases.fresh()), redis_lane_url)
        stack.callback(lane.close)
        yield Bench(fork_server, crash_folder, [lane])


@pytest.fixture(scope="module")
def on_rabbitmq(
    databases: ScratchDatabases,
    redis_lane_url: str,
    rabbitmq_node: RabbitNode,
    fork_server: ForkServer,
    crash_folder: Path,
) -> Iterator[Bench]:
    """Trials with the queues in RabbitMQ."""
    with ExitStack() as stack:
        database_url = stack.enter_context(databases.fresh())
        lane = Lane(database_url, redis_lane_url, stack.enter_context(rabbitmq_node.fresh_vhost()))
        stack.callback(lane.close)
        yield Bench(fork_server, crash_folder, [lane])
