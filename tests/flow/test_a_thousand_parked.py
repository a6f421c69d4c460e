"""A parked run is rows and a record: a thousand of them hold nothing else, anywhere.

And a turn in flight holds none of the few connections to Postgres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from adjourn.schemas.records.items import OutputItem
from adjourn.store.postgres.runs import starts as runs
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.processes import ChildProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
PARKED = 1_000
CONCURRENCY = 8
POSTGRES_POOL = 4
SPREAD = CONCURRENCY
"""A pool that fills as it is needed may not have been full yet; what a run holds would be there a thousand times."""
IN_FLIGHT = 200
AT_REST_SECONDS = 300.0
ENDED = sa.text("select count(*) as n from adjourn.runs where status in ('completed', 'failed', 'cancelled')")
WITH_STATUS = sa.text("select count(*) as n from adjourn.runs where status = :status")
CONNECTIONS = sa.text(
    """
    select count(*) as open, count(*) filter (where state <> 'idle') as busy
    from pg_stat_activity where datname = :name and application_name = 'adjourn' and pid <> pg_backend_pid()
    """
)


@dataclass(frozen=True)
class Held:
    """What a worker holds, and what the broker holds for it."""

    messages: int
    postgres_connections: int
    redis_connections: int
    threads: int
    timers: int


def test_a_thousand_parked_runs_hold_no_message_no_connection_no_thread_and_no_timer(deploy: Deploy) -> None:
    with deploy(concurrency=CONCURRENCY, database_pool_size=POSTGRES_POOL, resume_threads=1) as d:
        worker = d.ready_worker()
        park(d, 100)
        before = held(d, worker)
        park(d, PARKED)
        after = held(d, worker)
        assert count(d, "parked") == 100 + PARKED
        assert after.messages == before.messages == 0
        assert after.postgres_connections <= POSTGRES_POOL
        assert after.redis_connections - before.redis_connections <= SPREAD
        assert after.threads - before.threads <= SPREAD
        assert after.timers - before.timers <= SPREAD

        # They wait for their answers, and for nothing else.
        (action,) = d.client.pending(limit=1)
        assert d.client.submit(action.id, {"approved": True}).status == "accepted"
        assert d.ended(action.origin.run_id).status == "completed"


def park(d: Deployment, number: int) -> None:
    wanted = count(d, "parked") + number
    for _ in range(number):
        d.client.start("asker", "go")
    wait_until(lambda: count(d, "parked") == wanted, AT_REST_SECONDS, f"{wanted} parked runs")
    wait_until(lambda: d.messages() == 0, AT_REST_SECONDS, "wake-ups that are acknowledged")


def count(d: Deployment, status: str) -> int:
    return int(d.db.one(WITH_STATUS, {"status": status}).n)


def held(d: Deployment, worker: ChildProcess) -> Held:
    """Count from outside, and from inside the worker, where a run of its own does it."""
    census = inside(d)
    connections = d.db.one(CONNECTIONS, {"name": d.database_name})
    assert connections.busy == 0
    sockets = [s for s in psutil.Process(worker.pid).net_connections("tcp") if s.status == psutil.CONN_ESTABLISHED]
    redis_port = d.redis.connection_pool.connection_kwargs["port"]
    return Held(
        messages=d.messages(),
        postgres_connections=connections.open,
        redis_connections=sum(1 for each in sockets if each.raddr and each.raddr.port == redis_port),
        threads=census["threads"],
        timers=census["timers"],
    )


def inside(d: Deployment) -> dict[str, Any]:
    run = d.ended(d.client.start("census", "go"))
    wait_until(lambda: d.messages() == 0, what="an acknowledged census")
    (output,) = [item.body for item in runs.items(d.db, run.id) if isinstance(item.body, OutputItem)]
    assert output.outcome == "success", output.content
    return dict(output.content)


def test_two_hundred_turns_in_flight_hold_no_connection_to_postgres(deploy: Deploy) -> None:
    tuning = {"lease_seconds": 60, "sweep_seconds": 5, "wakeup_retry_seconds": 60}
    with deploy(concurrency=IN_FLIGHT, database_pool_size=2, tuning=tuning) as d:
        d.ready_worker()
        for _ in range(IN_FLIGHT):
            d.client.start("held", "go")
        wait_until(lambda: d.effects.count("model") == IN_FLIGHT, AT_REST_SECONDS, "200 model calls at once")
        connections = d.db.one(CONNECTIONS, {"name": d.database_name})
        assert connections.open <= 2, "more than the pool that all turns share"
        assert (connections.busy, count(d, "running")) == (0, IN_FLIGHT)

        d.effects.release("model")
        wait_until(lambda: d.db.one(ENDED, {}).n == IN_FLIGHT, AT_REST_SECONDS, "the ends of 200 runs")
        assert count(d, "completed") == IN_FLIGHT
