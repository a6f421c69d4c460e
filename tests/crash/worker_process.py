"""A worker process of a trial, and the line over which the driver talks to it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

from tests.crash.forkserver import ForkServer
from tests.crash.points import Plan


class Worker:
    """A worker process of a trial, and the line to it."""

    def __init__(self, server: ForkServer, args: dict[str, Any], plan: Plan, *, sweeps: bool) -> None:
        ours, theirs = socket.socketpair()
        args = {**args, "plan": plan.model_dump(mode="json"), "sweeps": sweeps, "server": str(server.socket)}
        with theirs:
            self.process = server.start("worker", args, [theirs.fileno()])
        self.plan, self.sweeps = plan, sweeps
        self._line = ours
        self._words: list[str] = []
        threading.Thread(target=self._listen, name="trial-line", daemon=True).start()

    @property
    def dead(self) -> bool:
        return self.process.poll() is not None

    def say(self, word: str) -> None:
        with suppress(OSError):  # it died: whoever waits for the echo finds out
            self._line.sendall(f"{word}\n".encode())

    def said(self, word: str) -> int:
        """How often it said so."""
        return self._words.count(word)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._line.close()

    def _listen(self) -> None:
        with suppress(OSError, ValueError), self._line.makefile("r") as lines:
            for line in lines:
                self._words.append(line.strip())
