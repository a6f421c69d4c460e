"""PostgreSQL and Valkey that can be killed, frozen and started again in place, at the same address.

For whoever measures or tests what their loss does. Takes the embedded servers from their keeper, which only
starts and stops them: what is killed here is started again here, and stopped here at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import psycopg
import redis

from adjourn.worker.embedded.servers import EmbeddedServers

LIMIT_SECONDS: Final = 120.0
"""A server that replays its log on a busy disk takes a while."""
POLL_SECONDS: Final = 0.02


class BreakableServer:
    """A server process, and how to start it again exactly as it was.

    `argv` is its command line where the process does not show it any more; `answers` raises, or says no,
    while the server does not serve.
    """

    def __init__(self, pid: int, log: Path, answers: Callable[[], bool], argv: list[str] | None = None) -> None:
        process = psutil.Process(pid)
        self._argv = argv or process.cmdline()
        self._options: dict[str, Any] = {"cwd": process.cwd(), "env": process.environ(), "start_new_session": True}
        if os.geteuid() == 0:
            self._options |= {"user": process.uids().real, "group": process.gids().real, "extra_groups": []}
        self._pid = pid
        self._log = log
        self._answers = answers
        self._ours: subprocess.Popen[bytes] | None = None

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """End it with `sign`, and return when it is gone. SIGQUIT is PostgreSQL's immediate mode."""
        os.kill(self._pid, signal.SIGCONT)
        os.kill(self._pid, sign)
        _until(self._is_gone, f"the end of {self._argv[0]}")

    def start(self, **variables: str) -> None:
        """Start it again, with `variables` in its environment. Returns at once; see `wait_until_ready`."""
        with self._log.open("ab") as log:
            self._options["env"] = {**self._options["env"], **variables}
            self._ours = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._options)
        self._pid = self._ours.pid

    def wait_until_ready(self) -> None:
        """Return when it answers. Raises `TimeoutError`."""
        _until(self._is_ready, f"{self._argv[0]} to answer")

    def freeze(self) -> None:
        """Stop it in its tracks: it keeps its connections and says nothing."""
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def stop(self, sign: signal.Signals) -> None:
        """Stop it, if it was started here; its keeper stops the others."""
        if self._ours is not None and self._ours.poll() is None:
            self.kill(sign)

    def _is_gone(self) -> bool:
        if self._ours is not None:
            return self._ours.poll() is not None
        try:
            # Its keeper reaps it only at the end.
            return bool(psutil.Process(self._pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def _is_ready(self) -> bool:
        with suppress(psycopg.Error, redis.RedisError):
            return self._answers()
        return False


@dataclass
class Breakable:
    """Both servers, their addresses, and one way to lose everything."""

    database_url: str
    """SQLAlchemy's form."""
    redis_url: str
    postgres: BreakableServer
    valkey: BreakableServer
    _valkey_files: Path

    @property
    def psycopg_url(self) -> str:
        return self.database_url.replace("+psycopg", "", 1)

    def redis(self) -> redis.Redis:
        """A client of one's own, which does not wait for a Redis that hangs for longer than ten seconds."""
        return redis.Redis.from_url(self.redis_url, socket_timeout=10, protocol=2)

    def forget(self) -> None:
        """Remove what Valkey, which has to be dead, has on disk."""
        shutil.rmtree(self._valkey_files, ignore_errors=True)


@contextmanager
def breakable_servers(folder: Path, max_connections: int = 300) -> Iterator[Breakable]:
    """Durable servers over `folder`, which others have to be able to pass through."""
    with EmbeddedServers(folder, durable=True, max_connections=max_connections) as servers:
        address = servers.database_url.replace("+psycopg", "", 1)
        with redis.Redis.from_url(servers.redis_url, protocol=2) as client:
            valkey_pid = int(client.info("server")["process_id"])
        postgres_pid = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
        valkey_files = folder / "valkey"
        made = Breakable(
            servers.database_url,
            servers.redis_url,
            BreakableServer(postgres_pid, folder / "logs" / "postgres.again.log", lambda: _postgres_answers(address)),
            BreakableServer(
                valkey_pid,
                folder / "logs" / "valkey.again.log",
                lambda: _valkey_answers(servers.redis_url),
                # Valkey shows a title of its own in the place of its command line.
                [psutil.Process(valkey_pid).exe(), str(valkey_files / "valkey.conf")],
            ),
            valkey_files / "appendonlydir",
        )
        try:
            yield made
        finally:
            made.postgres.stop(signal.SIGINT)
            made.valkey.stop(signal.SIGTERM)


def _postgres_answers(url: str) -> bool:
    with psycopg.connect(url, connect_timeout=5) as connection:
        return connection.execute("select 1").fetchone() is not None


def _valkey_answers(url: str) -> bool:
    with redis.Redis.from_url(url, socket_timeout=5, protocol=2) as client:
        return bool(client.ping())


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_SECONDS:g} s for {what}")
        pause.wait(POLL_SECONDS)
