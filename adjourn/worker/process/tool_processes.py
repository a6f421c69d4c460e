"""Starts a process for each attempt of a tool that asks for one, and kills it.

Each has a new interpreter: a fork of a process with threads may copy a lock that nobody ever releases. Each leads a
process group, so that one signal reaches all that it has started.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from adjourn.worker.config.settings import Settings

_LOOK_SECONDS: Final = 0.01
"""Between two looks whether a process that has sent its result is gone."""


class Launcher:
    """Starts processes that import the same app, with the same settings."""

    def __init__(self, settings: Settings) -> None:
        self._environment = settings.as_environment()

    def start(self) -> Child:
        """Start a process that waits for its order. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        lifeline, held = os.pipe()
        try:
            command = [sys.executable, "-m", "adjourn.worker.process.tool_process", str(theirs.fileno()), str(lifeline)]
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(held)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        return Child(process, ours, held)


class Child:
    """A process of a tool, as the worker sees it."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, held: int) -> None:
        self._process = process
        self._channel = channel
        self._held = held
        """Our end of the lifeline. The system closes it when this worker dies, however it dies."""
        self._lock = threading.Lock()
        self._how: str | None = None

    @property
    def channel(self) -> socket.socket:
        return self._channel

    @property
    def has_ended(self) -> bool:
        if self._how is not None:
            return True
        # Left unreaped: until `end` its number is not given to another process, which a kill would reach.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kill the process and what it has started, at once. Usable from any thread, and more than once."""
        with self._lock:
            if self._how is None:
                self._kill_group()

    def end(self, seconds: float) -> str:
        """Wait so many seconds for its end, then kill it and what is left of what it has started.

        Returns how it ended: a signal or an exit code. A second call only returns that.
        """
        deadline = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        with self._lock:
            if self._how is None:
                self._kill_group()
                self._how = _how(self._process.wait())
                self._channel.close()
                os.close(self._held)
            return self._how

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # the second of a group that has only ended processes
            os.killpg(self._process.pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
