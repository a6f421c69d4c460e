"""A Celery app that hosts the floor or LangGraph: two tasks a cycle, acknowledged late, no results.

Configured by `BENCH_*` variables, which `hosted.py` sets. Imports neither Adjourn nor the peer
that it does not host, because LangGraph runs in an environment of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.signals import worker_init, worker_process_init
from redis import Redis

EVENTS = "events"
"""The list on which the driver hears what happened: `p` or `d` (parked, done) and the run's id."""
LATENCIES = "latencies"
"""The list of times from an answer to its re-entry, in nanoseconds."""
QUEUE = "host"

app = Celery("host", broker=os.environ.get("BENCH_BROKER_URL"))
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_default_queue=QUEUE,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"max_connections": 50},
)


class Host:
    """What a worker process holds, made after the fork."""

    def __init__(self) -> None:
        self.redis = Redis.from_url(os.environ["BENCH_EVENTS_URL"], socket_timeout=None)
        self._latencies: dict[int, int] = {}
        url, connections = os.environ["BENCH_DATABASE_URL"], int(os.environ["BENCH_CONNECTIONS"])
        if os.environ["BENCH_PEER"] == "floor":
            from benchmarks.floor_peer import Floor

            floor = Floor(url, connections)
            self.turn: Callable[[str], None] = floor.turn
            self.reenter: Callable[[str, dict[str, Any]], None] = lambda run_id, _: floor.reenter(run_id, self._entered)
        else:
            from benchmarks.langgraph_peer import LangGraph

            graph = LangGraph(url, connections, self._entered)
            self.turn = graph.turn
            self.reenter = graph.reenter

    def resume(self, run_id: str, answer: dict[str, Any]) -> None:
        self.reenter(run_id, answer)
        with self.redis.pipeline() as said:
            said.rpush(LATENCIES, self._latencies.pop(answer["t"]))
            said.lpush(EVENTS, f"d{run_id}")
            said.execute()

    def _entered(self, answer: dict[str, Any]) -> None:
        # By the time it was sent, not by thread: LangGraph may run a node in a thread of its own.
        self._latencies[answer["t"]] = time.monotonic_ns() - answer["t"]


_host: Host | None = None


def _open(**_: Any) -> None:
    global _host
    _host = Host()


worker_process_init.connect(_open, weak=False)
if os.environ.get("BENCH_POOL") == "threads":
    worker_init.connect(_open, weak=False)


@app.task(name="start")
def start(run_id: str) -> None:
    assert _host is not None
    _host.turn(run_id)
    _host.redis.lpush(EVENTS, f"p{run_id}")


@app.task(name="resume")
def resume(run_id: str, answer: dict[str, Any]) -> None:
    assert _host is not None
    _host.resume(run_id, answer)
