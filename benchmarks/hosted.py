"""The two peers that Celery hosts by `celery_host.py`: the floor and LangGraph."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celery import Celery
from redis import Redis

from benchmarks.celery_host import EVENTS, LATENCIES, QUEUE
from benchmarks.floor_peer import TABLES, Floor
from benchmarks.lanes import PROCESSES, ROOT, THREADS, Command, Event, Lane
from benchmarks.servers import Servers

NANOSECONDS = 1e9
REQUIREMENTS = Path(__file__).with_name("requirements-langgraph.txt")
VENV = ROOT / "build" / "langgraph"


class UnavailableError(Exception):
    """A peer cannot be run here; the message says why."""


class HostedLane(Lane):
    """A peer whose two tasks Celery runs, in a pool of processes or in processes of threads."""

    python = sys.executable

    def __init__(self, servers: Servers, logs: Path, pool: str, redis_numbers: tuple[int, int]) -> None:
        super().__init__(servers, logs)
        self.pool = pool
        self.hosting = pool
        self.database = f"bench_{self.peer}_{pool}"
        self._redis_numbers = redis_numbers

    def prepare(self) -> Sequence[Command]:
        database_url = self.servers.make_database(self.database)
        broker, events = (self.servers.make_redis(number) for number in self._redis_numbers)
        self.make_tables(database_url)
        self._events = Redis.from_url(events, socket_timeout=None)
        self._celery = Celery("driver", broker=broker)
        self._celery.conf.update(task_default_queue=QUEUE, task_ignore_result=True)
        self._connection = self._celery.connection_for_write()
        self._producer = self._celery.amqp.Producer(self._connection)
        environment = {
            "BENCH_PEER": self.peer,
            "BENCH_POOL": self.pool,
            "BENCH_DATABASE_URL": database_url,
            "BENCH_BROKER_URL": broker,
            "BENCH_EVENTS_URL": events,
            "BENCH_CONNECTIONS": "1" if self.pool == "prefork" else str(THREADS),
        }
        command = [self.python, "-m", "celery", "-A", "benchmarks.celery_host", "worker", "--loglevel", "ERROR"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--pool", self.pool]
        if self.pool == "prefork":
            # One Celery worker feeds its children; they are the processes that work.
            return [Command([*command, "--concurrency", str(PROCESSES)], environment)]
        names = [f"{self.peer}{number}@localhost" for number in range(PROCESSES)]
        return [Command([*command, "--concurrency", str(THREADS), "-n", name], environment) for name in names]

    def make_tables(self, database_url: str) -> None:
        raise NotImplementedError

    def send(self, task: str, *arguments: Any) -> None:
        self._celery.send_task(task, arguments, producer=self._producer)

    def begin(self) -> None:
        self.send("start", uuid.uuid4().hex)

    def answer(self, parked: str) -> None:
        self.send("resume", parked, answer_now())

    def hear(self, seconds: float) -> Sequence[Event]:
        found: Any = self._events.brpop([EVENTS], int(seconds))
        if found is None:
            return []
        text = found[1].decode()
        return [Event(parked=text[0] == "p", id=text[1:])]

    def latencies(self) -> list[float]:
        found: Any = self._events.lrange(LATENCIES, 0, -1)
        self._events.delete(LATENCIES)
        return [int(value) / NANOSECONDS for value in found]

    def close(self) -> None:
        self._connection.release()
        self._celery.close()
        self._events.close()


class FloorLane(HostedLane):
    """The hand-written cycle. The driver writes the start and the answer itself, as an API process would."""

    peer = "floor"

    def make_tables(self, database_url: str) -> None:
        import psycopg

        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(TABLES)
        self._floor = Floor(database_url, 1)

    def begin(self) -> None:
        run_id = uuid.uuid4().hex
        self._floor.create(run_id)
        self.send("start", run_id)

    def answer(self, parked: str) -> None:
        answer = answer_now()
        self._floor.answer(parked, answer)
        self.send("resume", parked, answer)

    def close(self) -> None:
        super().close()
        self._floor.close()


class LangGraphLane(HostedLane):
    """LangGraph, in its own virtual environment."""

    peer = "langgraph"

    def __init__(self, servers: Servers, logs: Path, pool: str, redis_numbers: tuple[int, int]) -> None:
        super().__init__(servers, logs, pool, redis_numbers)
        self.python = str(langgraph_python())

    def make_tables(self, database_url: str) -> None:
        command = [self.python, "-m", "benchmarks.langgraph_peer", database_url]
        subprocess.run(command, cwd=ROOT, check=True)


def answer_now() -> dict[str, Any]:
    return {"approved": True, "comment": "Send it.", "t": time.monotonic_ns()}


def langgraph_python() -> Path:
    """The interpreter of LangGraph's environment, which is made when it is not there or its versions changed.

    Raises `UnavailableError`.
    """
    wanted = REQUIREMENTS.read_text()
    python, made_of = VENV / "bin" / "python", VENV / "made-of.json"
    if made_of.exists() and json.loads(made_of.read_text()) == [wanted, sys.version]:
        return python
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UnavailableError(f"LangGraph could not be installed: {reason}")
    made_of.write_text(json.dumps([wanted, sys.version]))
    return python
