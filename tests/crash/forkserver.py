"""A process with everything loaded that forks one child per request: a worker in a tenth of a second.

`python -m tests.crash.forkserver SOCKET` serves until its standard input closes. It has no
threads and no connections, so that a child is as good as a fresh interpreter. Whoever asks gets a
`ForkedProcess`, which looks like `subprocess.Popen`; workers under trial ask as well, for the
processes of suspect runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from tests.waiting import wait_until

_REQUEST_BYTES: Final = 1_000_000
_MOST_DESCRIPTORS: Final = 4
_PRELOADED: Final = (
    "tests.crash.programs",
    "tests.forked",
    "adjourn.worker.cli.program",
    "adjourn.worker.cli.servers",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "kombu.transport.pyamqp",
    "psycopg_binary",
    "sqlalchemy.dialects.postgresql.psycopg",
)

Program = Literal["worker", "isolated", "client", "python"]
"""`python` is whatever the interpreter could be given; see `tests.forked`."""


class ForkedProcess:
    """A child of the fork server, as far as its caller has to know it."""

    def __init__(self, server: Path, program: Program, args: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(server))
        request = json.dumps({"program": program, "args": args}).encode()
        socket.send_fds(self._connection, [request], list(descriptors))
        self._replies = self._connection.makefile("r")
        self.pid = int(self._replies.readline())
        self.returncode: int | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._await_end, name="forked-child", daemon=True).start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("forked child", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _await_end(self) -> None:
        line = self._replies.readline()
        self.returncode = int(line) if line else -signal.SIGKILL
        self._connection.close()
        self._ended.set()


class ForkServer:
    """The fork server as a child of this process. Use it in `with`."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "fork.socket"
        self.log = folder / "fork.log"

    def __enter__(self) -> ForkServer:
        self._output = self.log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forkserver", str(self.socket)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        wait_until(self._listens, what=f"the fork server; its log is {self.log}")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()

    def start(self, program: Program, args: dict[str, Any], descriptors: Sequence[int] = ()) -> ForkedProcess:
        return ForkedProcess(self.socket, program, args, descriptors)

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return self.socket.exists()


# --- in the server -------------------------------------------------------------------------------


def serve(path: Path) -> tuple[dict[str, Any], list[int]]:
    """Fork a supervisor per request, which forks the child and waits for it: the server itself never waits.

    Returns in each child, with its request and the descriptors that came with it.
    """
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.unready")
    listener.listen()
    os.rename(f"{path}.unready", path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _supervise(connection)
        connection.close()


def _supervise(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _MOST_DESCRIPTORS)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return json.loads(request), descriptors
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):  # whoever asked may be dead
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(request: dict[str, Any], descriptors: list[int]) -> int:
    """In the child: be the program."""
    from tests.crash.programs import PROGRAMS

    try:
        PROGRAMS[request["program"]](descriptors, **request["args"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _end_with_parent() -> None:
    """In a process of its own: a thread would be one too many in a process that forks."""
    parent = os.getpid()
    if os.fork() == 0:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.killpg(parent, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    asked, handed_over = serve(Path(sys.argv[1]))
    if asked["program"] == "python":
        from tests.forked import be_python

        be_python(handed_over, **asked["args"])  # ends as an interpreter does, with all that comes after the last line
    else:
        os._exit(_run(asked, handed_over))
