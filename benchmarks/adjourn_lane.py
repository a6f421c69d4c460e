"""Adjourn's lane: `adjourn worker` processes with all their parts, started and answered from outside.

Runs are started through `Client`, and what happens is heard from the live events. Answers go one of
two ways. `client` has the driver submit them, as an API process would: the driver of every other peer
does just that. `queue` publishes them as JSON onto the resume queue, as any other program may, and a
worker reads, judges and acknowledges them: a hop more than any other peer makes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from kombu import Connection
from pydantic import SecretStr
from redis import Redis

from adjourn import Client
from adjourn.store.migrations import upgrade
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.config.settings import Settings
from benchmarks.adjourn_app import LATENCIES, LATENCIES_URL, UNTIMED
from benchmarks.hosted import NANOSECONDS, answer_now
from benchmarks.lanes import PROCESSES, Command, Event, Lane
from benchmarks.servers import Servers

EVENTS = "adjourn:events:"
"""The live events of a thread are a Redis stream of this name and its id."""
MILLISECONDS = 1000
Way = Literal["client", "queue"]
"""How answers come in."""


class AdjournLane(Lane):
    """Adjourn with the settings it comes with, in `processes` workers."""

    peer = "adjourn"

    def __init__(
        self,
        servers: Servers,
        logs: Path,
        redis_numbers: tuple[int, int],
        *,
        answers: Way = "queue",
        processes: int = PROCESSES,
        **env: str,
    ) -> None:
        super().__init__(servers, logs)
        self.hosting = f"answers by {answers}"
        self.database = f"bench_adjourn_{answers}"
        self._answers = answers
        self._redis_numbers = redis_numbers
        self._processes = processes
        self._environment = env

    def prepare(self) -> Sequence[Command]:
        database_url = self.servers.make_database(self.database)
        redis_url, latencies_url = (self.servers.make_redis(number) for number in self._redis_numbers)
        upgrade(database_url)
        self.client = Client(Settings(database_url=SecretStr(database_url), redis_url=SecretStr(redis_url)))
        self._events = Redis.from_url(redis_url, decode_responses=True, protocol=2, socket_timeout=None)
        self._latencies = Redis.from_url(latencies_url)
        self._cursors: dict[str, str] = {}
        self._queue = Connection(redis_url)
        self._publisher = self._queue.Producer()
        environment = {
            "ADJOURN_DATABASE_URL": database_url,
            "ADJOURN_REDIS_URL": redis_url,
            "ADJOURN_APP": "benchmarks.adjourn_app:app",
            "ADJOURN_LOG_LEVEL": "ERROR",
            LATENCIES_URL: latencies_url,
            **self._environment,
        }
        command = [str(Path(sys.executable).with_name("adjourn")), "worker"]
        return [Command(command, environment)] * self._processes

    def begin(self) -> None:
        self._watch(self.client.start("reporter", "Please send the Q3 report.").thread_id)

    def _watch(self, thread_id: str) -> None:
        self._cursors[EVENTS + thread_id] = "0"

    def answer(self, parked: str) -> None:
        data = answer_now() if self.timing else {**answer_now(), "t": UNTIMED}
        if self._answers == "client":
            self.client.submit(parked, data)
            return
        answer = {"v": 1, "action_id": parked, "kind": "submit", "data": data}
        self._publisher.publish(
            json.dumps(answer), routing_key=RESUME_QUEUE, content_type="application/json", content_encoding="utf-8"
        )

    def hear(self, seconds: float) -> Sequence[Event]:
        news: list[Event] = []
        while not news:
            cursors: Any = self._cursors
            streams: Any = self._events.xread(cursors, block=int(seconds * MILLISECONDS))
            if not streams:
                break
            for stream, entries in streams:
                self._cursors[stream] = entries[-1][0]
                for _, fields in entries:
                    for event in json.loads(fields["events"]):
                        news += self._understood(stream, event)
        return news

    def _understood(self, stream: str, event: dict[str, Any]) -> list[Event]:
        if event["kind"] == "suspension":
            return [Event(parked=True, id=event["action"]["id"])]
        if event["kind"] == "end" and event["reason"] != "parked":
            if event["reason"] != "completed":
                raise RuntimeError(f"run {event['run_id']} ended {event['reason']}")
            del self._cursors[stream]
            return [Event(parked=False, id=event["run_id"])]
        return []

    def latencies(self) -> list[float]:
        found: Any = self._latencies.lrange(LATENCIES, 0, -1)
        self._latencies.delete(LATENCIES)
        return [int(value) / NANOSECONDS for value in found]

    def close(self) -> None:
        self.client.close()
        self._queue.release()
        self._events.close()
        self._latencies.close()
