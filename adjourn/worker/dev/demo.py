"""The demo: one run from its start, through a park and the death of its worker, to its end.

Nothing is pretended: real PostgreSQL and Valkey, worker processes of their own, a SIGKILL, and an
answer that goes over the resume queue. Only the model is a script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from adjourn.schemas.errors import WaitTimeoutError
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.store.migrations import upgrade
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.client.answers import refused
from adjourn.worker.client.client import Client
from adjourn.worker.config.deployment import at_servers
from adjourn.worker.config.settings import Settings, load_settings
from adjourn.worker.dev.demo_app import AGENT
from adjourn.worker.dev.processes import WorkerChild, ended_in_order, worker_child
from adjourn.worker.embedded.servers import EmbeddedServers, default_data_dir
from adjourn.worker.text.timeline import result, timeline, waiting

APP: Final = "adjourn.worker.dev.demo_app:app"
MESSAGE: Final = "Send the Q3 report."
ANSWER: Final = {"approved": True, "comment": "well done"}
LIMIT_SECONDS: Final = 90.0
"""For everything after the servers are up. It takes a few seconds; a slow machine gets its time."""
LOOK_SECONDS: Final = 1.0
"""How often a wait looks whether the worker still lives."""

Say = Callable[[str], None]


def run(data_dir: Path | None, say: Say) -> None:
    """Play the demo and tell what happens through `say`.

    Servers and workers that it started are gone when it returns or raises. Raises an
    `AdjournError` that says what went wrong.
    """
    data_dir = data_dir or default_data_dir() / "demo"
    say(f"1. PostgreSQL and Valkey start, with their data in {data_dir}")
    with ended_in_order(), EmbeddedServers(data_dir) as servers:
        upgrade(servers.database_url)
        settings = at_servers(load_settings(app=APP, concurrency=4), servers.database_url, servers.redis_url)
        with Client(settings) as client:
            _Demo(client, settings, data_dir / "logs" / "demo-worker.log", say).play()


class _Demo:
    """The acts of the demo, in order."""

    def __init__(self, client: Client, settings: Settings, log: Path, say: Say) -> None:
        self._client = client
        self._settings = settings
        self._log = log
        self._say = say
        self._deadline = time.monotonic() + LIMIT_SECONDS

    def play(self) -> None:
        say, client = self._say, self._client
        with worker_child(self._settings, self._log) as first:
            started = client.start(AGENT, MESSAGE)
            say(f"2. Worker {first.pid} starts, and agent {AGENT!r} is told: {MESSAGE}")
            self._wait(started.id, "parked", first)
            (action,) = client.pending(run_id=started.id)
            say(f"3. Its tool asked for an approval; run {started.id} is parked and waits for:")
            say(f"     {waiting(action)}")
            first.kill()
            say(f"4. Worker {first.pid} is killed with SIGKILL")
        with worker_child(self._settings, self._log) as second:
            say(f"5. Worker {second.pid} starts")
            answer = Answer(action_id=action.id, data=ANSWER)
            say(f"6. Published on queue {RESUME_QUEUE}: {answer.model_dump_json(exclude_unset=True)}")
            receipt = client.publish(answer, self._left())
            if not receipt.ok:
                raise refused(receipt, action.id)
            say(f"     its receipt says: {receipt.status}")
            ended = self._wait(started.id, "completed", second)
        say("7. The tool was re-entered and the run is completed:")
        for line in result(ended):
            say(f"     {line}")
        say("8. What happened, item by item:")
        for line in timeline(client.items(ended.id)):
            say(f"     {line}")
        say(f"Play with it yourself: adjourn dev --app {APP}")

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _wait(self, run_id: str, until: RunStatus, worker: WorkerChild) -> Run:
        """Wait for the run, but not for a worker that is dead."""
        while True:
            worker.check()
            try:
                return self._client.wait(run_id, until=(until,), timeout=min(LOOK_SECONDS, self._left()))
            except WaitTimeoutError:
                if not self._left():
                    raise
