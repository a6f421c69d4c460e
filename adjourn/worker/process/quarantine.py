"""Suspect runs, each in a process of its own: a run that kills its worker may only kill itself.

Watches the child and counts its death at once, where a lease would take a minute to say so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.host.services import Services
from adjourn.worker.config.settings import BUILD_VARIABLE, Settings

log = structlog.get_logger(__name__)

STARTED: Final = b"started\n"
FINISHED: Final = b"finished\n"
_WAITING_PER_PROCESS: Final = 50
"""Wake-ups kept in line; more are dropped, and published again by the sweep."""
_TERMINATE_SECONDS: Final = 5.0


class Quarantine:
    """Runs suspects in child processes, a few at a time."""

    def __init__(self, settings: Callable[[], Settings], services: Callable[[], Services]) -> None:
        self._settings = settings
        self._services = services
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._in_line: set[str] = set()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopping = False

    def submit(self, run_id: str) -> None:
        """Drive this run in a process of its own, soon. Returns at once; a run in line is not taken twice."""
        allowed = self._settings().suspect_processes
        with self._lock:
            if self._stopping or run_id in self._in_line or len(self._in_line) >= allowed * _WAITING_PER_PROCESS:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(allowed, thread_name_prefix="adjourn-suspect")
            self._in_line.add(run_id)
            self._pool.submit(self._watch, run_id)

    def stop(self) -> None:
        """Ask the children to put their runs back, and end those that do not."""
        with self._lock:
            self._stopping = True
            pool, children = self._pool, list(self._children)
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(_TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _watch(self, run_id: str) -> None:
        wakeups: Sequence[WakeUp] = ()
        try:
            if self._is_due(run_id):
                wakeups = self._drive_apart(run_id)
        except StoreUnavailableError as error:
            log.warning("suspect left to the sweep", run_id=run_id, error=str(error))
        except BaseException:
            log.exception("suspect not driven", run_id=run_id)
        finally:
            with self._lock:
                self._in_line.discard(run_id)
        # Only now: a wake-up that comes back while the run is still in line is taken for a second one.
        for wakeup in wakeups:
            self._services().wakeups.publish(wakeup)

    def _is_due(self, run_id: str) -> bool:
        """Whether a process is worth its second of start-up.

        A wake-up that waited in line is given again, and another worker may have taken that one. After the death of a
        busy worker there are many, and interpreters that find nothing to do would hold up the others. So would those
        for runs that this build leaves to newer ones, and those that a forged wake-up calls suspects.
        """
        services = self._services()
        place = None if services.build is None else services.build.place
        return services.store.builds.may_take(run_id, place, suspect=True)

    def _drive_apart(self, run_id: str) -> Sequence[WakeUp]:
        """Run the child to its end, and count its death if it began the run and did not come to the end of it.

        Returns the wake-ups to publish. The exit code says nothing: a tool may leave with any. The child
        tells its progress over a pipe of its own instead.
        """
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as progress:
            try:
                child = self._spawn(run_id, writer)
            finally:
                os.close(writer)
            if child is None:
                return ()
            deadline = threading.Timer(self._settings().suspect_seconds, child.kill)
            deadline.start()
            try:
                code = child.wait()
            finally:
                deadline.cancel()
                with self._lock:
                    self._children.discard(child)
            os.set_blocking(reader, False)  # a grandchild may still hold the other end
            told = progress.read() or b""
        if told == STARTED and not self._stopping:
            return self._record_death(run_id, code)
        if not told.startswith(STARTED):
            log.error("a process for a suspect run did not come up", run_id=run_id, exit_code=code)
        return ()

    def _spawn(self, run_id: str, writer: int) -> subprocess.Popen[bytes] | None:
        command = [sys.executable, "-m", "adjourn.worker.process.quarantined_run", run_id, str(writer)]
        environment = {**os.environ, **self._settings().as_environment()}
        if (build := self._services().build) is not None:
            environment[BUILD_VARIABLE] = build.id
        with self._lock:
            if self._stopping:
                return None
            child = subprocess.Popen(command, pass_fds=(writer,), stdin=subprocess.DEVNULL, env=environment)
            self._children.add(child)
            return child

    def _record_death(self, run_id: str, code: int) -> Sequence[WakeUp]:
        services = self._services()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        log.warning("a suspect run ended its process", run_id=run_id, how=how)
        return services.store.runs.record_death(run_id)
