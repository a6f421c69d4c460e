"""Memory: one worker process with two hundred model calls of a second each in flight.

Measures what it weighs at its heaviest, and whether anything holds a database session while
models are thinking.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

from benchmarks.adjourn_app import CALLS, SLOW_SECONDS
from benchmarks.adjourn_lane import AdjournLane
from benchmarks.servers import Servers

SAMPLE_SECONDS = 0.02
MEGABYTE = 1e6
LIMIT_SECONDS = 60
WORKER_SESSIONS = "adjourn"
"""How a worker names its database sessions."""


@dataclass(frozen=True)
class Memory:
    """`peak_mb` is resident memory in 10^6 bytes, children included. `busy_sessions` is the least number of
    database sessions that were not idle while all calls were in flight: what the calls themselves hold.
    """

    calls_in_flight: int
    idle_mb: float
    peak_mb: float
    open_sessions: int
    busy_sessions: int
    samples: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(servers: Servers, logs: Path, redis_numbers: tuple[int, int], waves: int) -> Memory:
    """Run `waves` × 200 slow runs through one worker process. Raises `TimeoutError` if they do not end."""
    lane = AdjournLane(servers, logs, redis_numbers, processes=1, ADJOURN_CONCURRENCY=str(CALLS))
    lane.hosting, lane.database = "memory", "bench_memory"
    lane.start()
    try:
        lane.drive_cycles(1)
        with psycopg.connect(servers.database_url(lane.database), autocommit=True) as watcher:
            return _watch(lane, servers, watcher, waves)
    finally:
        lane.stop()


def _watch(lane: AdjournLane, servers: Servers, watcher: psycopg.Connection[Any], waves: int) -> Memory:
    (worker,) = (psutil.Process(pid) for pid in lane.pids)
    idle = peak = _weight(worker)
    in_flight, sessions, busy, samples = 0, 0, CALLS, 0
    began = time.monotonic()
    for _ in range(waves * CALLS):
        lane.client.start("slow", "Think.")
    while True:
        peak = max(peak, _weight(worker))
        running, ended = _progress(watcher)
        in_flight = max(in_flight, running)
        if running == CALLS:
            open_now, busy_now = servers.sessions(lane.database, WORKER_SESSIONS)
            sessions, busy, samples = max(sessions, open_now), min(busy, busy_now), samples + 1
        # One more run than the waves: the one that warmed the worker up.
        if ended == waves * CALLS + 1:
            break
        if time.monotonic() - began > LIMIT_SECONDS + waves * SLOW_SECONDS:
            raise TimeoutError(f"{ended} of {waves * CALLS} slow runs ended in {LIMIT_SECONDS} s")
        time.sleep(SAMPLE_SECONDS)
    return Memory(in_flight, idle, peak, sessions, busy, samples)


def _progress(watcher: psycopg.Connection[Any]) -> tuple[int, int]:
    found = watcher.execute(
        "select count(*) filter (where status = 'running'), count(*) filter (where status = 'completed')"
        " from adjourn.runs"
    ).fetchone()
    assert found is not None
    running, ended = found
    return running, ended


def _weight(worker: psutil.Process) -> float:
    return float(sum(process.memory_info().rss for process in (worker, *worker.children(recursive=True)))) / MEGABYTE
