"""Worker processes as children of this one: for the demo, and for development.

Owns their start and their end. A child never outlives the `with` that it was started in, however
that is left, Ctrl-C and SIGTERM included; nor its parent, should that be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from adjourn.schemas.errors import WorkerEndedError
from adjourn.worker.config.deployment import URL_VARIABLES
from adjourn.worker.config.settings import Settings

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
PATIENCE_SECONDS: Final = 2.0
"""How long a child may finish its turns; at a second signal it puts them back."""
HURRY_SECONDS: Final = 5.0
"""How long it may take over that before it is killed."""
LOG_LINES_SHOWN: Final = 5
LIFELINE: Final = "--until-stdin-closes"


class WorkerChild:
    """An `adjourn worker` process."""

    def __init__(self, settings: Settings, log: Path | None = None) -> None:
        """Start it. What it writes goes to `log`, or where our own goes."""
        self._log = log
        inherited = {name: value for name, value in os.environ.items() if name.upper() not in URL_VARIABLES}
        output = log.open("wb") if log else None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "adjourn", "worker", LIFELINE],
                env=inherited | settings.as_environment(),
                # Never written to. The kernel closes it when we die, in whatever way.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C is for us alone: we decide when and how the child stops.
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raises `WorkerEndedError`, with the end of its log, if it does not run any more."""
        if self.exit_code is not None:
            lines = self._log.read_text(errors="replace").splitlines() if self._log else []
            raise WorkerEndedError(self.pid, self._process.returncode, lines[-LOG_LINES_SHOWN:])

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Let it end in order; harmless if it has ended."""
        for seconds in (PATIENCE_SECONDS, HURRY_SECONDS):
            self._process.terminate()
            try:
                self._process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                continue
        self.kill()


def stop_when_stdin_closes() -> None:
    """In the child: treat the end of standard input, which is the end of the parent, as a SIGTERM."""

    stdin = sys.stdin.fileno()

    def wait_for_end() -> None:
        # Past Python's own reader: its lock, held by this thread, would abort the interpreter's exit.
        while os.read(stdin, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="adjourn-lifeline", daemon=True).start()


@contextmanager
def worker_child(settings: Settings, log: Path | None = None) -> Iterator[WorkerChild]:
    """A worker process for as long as the `with` lasts."""
    child = WorkerChild(settings, log)
    try:
        yield child
    finally:
        child.stop()


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM leaves every `with` on its way out, as Ctrl-C does, instead of leaving children behind."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
