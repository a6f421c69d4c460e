"""The sweep, again and again, in a thread of a worker process. One process is enough, and many do no harm."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.sweep import Round, sweep

log = structlog.get_logger(__name__)

_JOIN_SECONDS = 5.0
_RETRY_SECONDS = 1.0
"""Until the next look at a deployment that could not be opened."""


class SweepLoop:
    """Sweeps every `tuning.sweep_seconds` until stopped. Nothing that goes wrong in a sweep ends the loop."""

    def __init__(self, door: Callable[[], Door]) -> None:
        self._door = door
        self._stop = threading.Event()
        self._round = Round()
        self._thread = threading.Thread(target=self._run, name="adjourn-sweep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.request_stop()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(self._pause()):
            try:
                if found := sweep(self._door(), self._round).found():
                    log.info("swept", **found)
            except StoreUnavailableError as error:
                log.warning("not swept", error=str(error))
            except BaseException:  # without this thread no deadline would pass and no lost run would be found
                log.exception("sweep failed")

    def _pause(self) -> float:
        try:
            return self._door().tuning.sweep_seconds
        except BaseException:
            log.exception("sweep failed")
            return _RETRY_SECONDS
