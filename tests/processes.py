"""Real child processes for tests: each with a log of its own, and each dead when its test is over."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.crash.forkserver import ForkedProcess, ForkServer
from tests.forked import fork_python
from tests.waiting import LIMIT_SECONDS, wait_until


class ChildProcess:
    """One running program. What it prints, on either stream, is in `log`."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log_file: Path,
        cwd: Path | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.argv = list(argv)
        self._log_file = log_file
        self._process: ForkedProcess | subprocess.Popen[bytes]
        # Nothing of the machine's own configuration reaches a test.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ADJOURN_")}
        with log_file.open("wb") as log:
            if fork_server is not None:
                self._process = fork_python(fork_server, argv, {**inherited, **env}, log.fileno(), cwd)
                return
            # A session of its own, so that a kill of the group takes its children too.
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited, "PYTHONUNBUFFERED": "1", **env},
                cwd=cwd,
                start_new_session=True,
            )

    def __str__(self) -> str:
        return f"process {self.pid} ({' '.join(self.argv)})"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.poll()

    def send(self, sign: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self._process.send_signal(sign)

    def kill(self) -> None:
        """SIGKILL to it and to all that it started; returns when it is dead. Harmless when it is dead already."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()  # it may not have its group yet
        self._process.wait()

    def wait(self, timeout: float = LIMIT_SECONDS) -> int:
        """Wait for its end and return its exit code."""
        wait_until(lambda: self.exit_code is not None, timeout, f"the end of {self}")
        assert self._process.returncode is not None
        return self._process.returncode

    def wait_for_log(self, text: str, timeout: float = LIMIT_SECONDS) -> str:
        """Wait until `text` is in the log, and return the log. An end of the process before that fails at once."""

        def found_or_over() -> bool:
            over = self.exit_code is not None
            return text in self.log or over

        wait_until(found_or_over, timeout, f"{text!r} in the log of {self}")
        assert text in self.log, f"{self} ended with {self.exit_code} and never said {text!r}; it said:\n{self.log}"
        return self.log
