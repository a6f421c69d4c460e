"""The keeper of the embedded servers: the process that starts PostgreSQL and Valkey and stops them.

Run as a script by `adjourn.worker.embedded.servers`, with its orders as one JSON object on standard input; it says
`{"ready": true}` or `{"error": "..."}` on standard output. It imports the standard library only, so that it
is small and quick, and it may not speak SQL: it knows servers, not what is in them.

Who uses the servers holds a shared lock on `users.lock`; the keeper waits for the exclusive one. The kernel
drops a lock when its holder dies, in whatever way, so the servers stop when the last user is gone, also
after `kill -9`, and no pid has to be believed. The keeper itself is alive while `supervisor.lock` is held: it
inherits that lock and never lets go of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import quote, urlsplit

START_SECONDS = 90.0
"""Generous: a first start writes a whole cluster, and a restart after a crash replays its log."""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
LOG_LINES_SHOWN = 12
PORT_TRIES = 5
LOOPBACK = "127.0.0.1"
POSTGRES_PORT = 5432
"""Only the name of the socket file: PostgreSQL listens on no address."""
READY_LINE = 7
"""The line of postmaster.pid that holds the status of the server."""


class StartupError(Exception):
    """A server did not come up; the message holds the end of its log."""


@dataclass(frozen=True)
class Orders:
    """What the keeper is told. Paths are absolute; `uid` and `gid` are whom the servers run as, None for oneself."""

    data_dir: str
    postgres_bin: str
    valkey_server: str
    uid: int | None
    gid: int | None
    durable: bool
    max_connections: int

    def path(self, *parts: str) -> Path:
        return Path(self.data_dir, *parts)

    def as_user(self) -> dict[str, Any]:
        """How to start a child. Its environment is bare: the keys in ours are no business of a server."""
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "cwd": self.data_dir,
            "env": {"LC_ALL": "C", "PATH": os.defpath, "TZ": "UTC"},
        }
        if self.uid is not None:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def private_folder(self, *parts: str) -> Path:
        folder = self.path(*parts)
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.uid is not None and self.gid is not None:
            os.chown(folder, self.uid, self.gid)
        return folder

    def open_log(self, name: str) -> IO[bytes]:
        """A fresh log; the one of the start before is kept beside it, as it may say why that ended."""
        log = self.path("logs", f"{name}.log")
        if log.exists():
            log.replace(log.with_suffix(".log.old"))
        return log.open("wb")

    def failure(self, name: str, problem: str) -> StartupError:
        log = self.path("logs", f"{name}.log")
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return StartupError("\n  ".join([f"{name} {problem}; the end of {log}:", *lines]))


class Postgres:
    """One PostgreSQL server over `data_dir/postgres`, on a socket in a folder that only its user may enter."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._data = orders.path("postgres")
        self._sockets = orders.private_folder("socket")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={quote(str(self._sockets), safe='/')}"

    def start(self) -> None:
        self._stop_leftover()
        with self._orders.open_log("postgres") as log:
            if not self._data.exists():
                self._create(log)
            command = [self._program("postgres"), "-D", str(self._data), "-k", str(self._sockets)]
            for name, value in self._parameters().items():
                command += ["-c", f"{name}={value}"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._orders.as_user())
        _wait_until_ready(self._process, self._is_ready, lambda problem: self._orders.failure("postgres", problem))

    def stop(self) -> None:
        # SIGINT ends sessions and writes a checkpoint; SIGQUIT leaves recovery to the next start.
        _stop(self._process, signal.SIGINT, signal.SIGQUIT)

    def _parameters(self) -> dict[str, object]:
        parameters: dict[str, object] = {
            "port": POSTGRES_PORT,
            "listen_addresses": "",
            "max_connections": self._orders.max_connections,
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self._orders.durable:
            parameters |= {"fsync": "off", "full_page_writes": "off"}
        return parameters

    def _create(self, log: IO[bytes]) -> None:
        # Made beside its place and renamed: a start that is killed half-way leaves no half cluster behind.
        unfinished = self._orders.path("postgres.unfinished")
        if unfinished.exists():
            shutil.rmtree(unfinished)
        self._orders.private_folder("postgres.unfinished")
        # "trust" is about who reaches the socket, and its folder lets in nobody else.
        command = [self._program("initdb"), "--pgdata", str(unfinished), "--username=postgres", "--auth-local=trust"]
        command += ["--auth-host=reject", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        if not self._orders.durable:
            command.append("--no-sync")
        if subprocess.run(command, stdout=log, stderr=log, check=False, **self._orders.as_user()).returncode:
            raise self._orders.failure("postgres", "could not create its data folder")
        unfinished.rename(self._data)

    def _is_ready(self) -> bool:
        assert self._process is not None
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # The file of a server that was killed is still there until ours has replaced it.
        return len(lines) > READY_LINE and lines[0] == str(self._process.pid) and lines[READY_LINE].strip() == "ready"

    def _stop_leftover(self) -> None:
        """Stop the server of a keeper that was killed. That it answers on our socket shows that it is ours."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._sockets / f".s.PGSQL.{POSTGRES_PORT}"))
            except OSError:
                return
        command = [self._program("pg_ctl"), "stop", "-D", str(self._data), "-m", "fast", "-w"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, **self._orders.as_user())

    def _program(self, name: str) -> str:
        return str(Path(self._orders.postgres_bin, name))


class Valkey:
    """One Valkey server over `data_dir/valkey`, on a free port of the loopback address, behind a password."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._data = orders.private_folder("valkey")
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        # Any program of this machine can connect to a port, so it takes a password that only we can read.
        self._password = secrets.token_urlsafe()

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@{LOOPBACK}:{self._port}/0"

    def start(self) -> None:
        self._stop_leftover()
        for attempt in range(1, PORT_TRIES + 1):
            try:
                self._start_once()
                return
            except StartupError:
                # Another program may have taken the port between our look and the server's.
                if attempt == PORT_TRIES or "in use" not in self._orders.path("logs", "valkey.log").read_text():
                    raise

    def stop(self) -> None:
        _stop(self._process, signal.SIGTERM, signal.SIGKILL)

    def _start_once(self) -> None:
        self._port = _free_port()
        config = self._write_config()
        with self._orders.open_log("valkey") as log:
            self._process = subprocess.Popen(
                [self._orders.valkey_server, str(config)], stdout=log, stderr=log, **self._orders.as_user()
            )
        _wait_until_ready(self._process, self._is_ready, lambda problem: self._orders.failure("valkey", problem))

    def _write_config(self) -> Path:
        lines = [
            f"bind {LOOPBACK}",
            f"port {self._port}",
            # In a file of our own, not among the arguments, where every user of the machine could read it.
            f"requirepass {self._password}",
            f'dir "{self._data}"',
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
            "databases 16",
        ]
        config = self._data / "valkey.conf"
        config.write_text("\n".join(lines) + "\n")
        if self._orders.uid is not None and self._orders.gid is not None:
            os.chown(config, self._orders.uid, self._orders.gid)
        return config

    def _is_ready(self) -> bool:
        return b"+PONG" in _valkey_says(self.url, "PING")

    def _stop_leftover(self) -> None:
        """Stop the server of a keeper that was killed: two servers on one append-only file would ruin it."""
        with suppress(FileNotFoundError, ValueError):
            _valkey_says(json.loads(_state_file(self._orders).read_text())["redis_url"], "SHUTDOWN")


def _valkey_says(url: str, command: str) -> bytes:
    """All that the server replies to a password and a command; empty where nobody listens."""
    address = urlsplit(url)
    reply = b""
    with suppress(OSError), socket.create_connection((LOOPBACK, address.port or 0), timeout=START_SECONDS) as peer:
        peer.sendall(f"AUTH {address.password}\r\n{command}\r\nQUIT\r\n".encode())
        while part := peer.recv(1024):
            reply += part
    return reply


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], failure: Callable[[str], StartupError]
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if (code := process.poll()) is not None:
            raise failure(f"ended with exit code {code} while it started")
        if time.monotonic() > deadline:
            raise failure(f"was not ready after {START_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes] | None, gently: signal.Signals, firmly: signal.Signals) -> None:
    if process is None:
        return
    for sign in (gently, firmly, signal.SIGKILL):
        process.send_signal(sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return


def _state_file(orders: Orders) -> Path:
    return orders.path("servers.json")


def _write_state(orders: Orders, state: dict[str, object]) -> None:
    unfinished = orders.path("servers.json.unfinished")
    unfinished.write_text(json.dumps(state))
    unfinished.replace(_state_file(orders))


def _say(message: dict[str, object]) -> None:
    # Who asked may be gone by now; the lock tells, and nothing depends on the reader.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _exit_on_signal(*_: object) -> NoReturn:
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, signal.SIG_IGN)
    sys.exit(0)


def main() -> int:
    """Start both servers, keep them until nobody uses them, stop them. Returns the exit code."""
    orders = Orders(**json.load(sys.stdin))
    os.umask(0o077)
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, _exit_on_signal)
    with ExitStack() as stack:
        users = stack.enter_context(orders.path("users.lock").open("w"))
        try:
            for server in (postgres := Postgres(orders), valkey := Valkey(orders)):
                stack.callback(server.stop)
                server.start()
        except (StartupError, OSError) as error:
            _say({"error": str(error)})
            return 1
        stack.callback(_state_file(orders).unlink, missing_ok=True)
        _write_state(
            orders,
            {"database_url": postgres.url, "redis_url": valkey.url, "durable": orders.durable, "pid": os.getpid()},
        )
        _say({"ready": True})
        fcntl.flock(users, fcntl.LOCK_EX)
    return 0


if __name__ == "__main__":
    sys.exit(main())
