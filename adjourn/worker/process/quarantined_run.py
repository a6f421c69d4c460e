"""`python -m adjourn.worker.process.quarantined_run RUN_ID FD`: drives one suspect run in its own process.

Started by `adjourn.worker.process.quarantine`, with the same environment. Tells its progress on the file
descriptor: once before the run is touched, once when the run was left in order. A death in
between is the run's doing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import structlog

from adjourn.schemas.errors import AdjournError, StoreUnavailableError
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.config.settings import load_settings
from adjourn.worker.process.assembly import build_services
from adjourn.worker.process.logs import configure
from adjourn.worker.process.quarantine import FINISHED, STARTED

log = structlog.get_logger(__name__)


def main(run_id: str, progress: int) -> NoReturn:
    """Drive the run once and leave the process. The exit code says nothing: a tool may leave with any."""
    settings = load_settings()
    configure(settings.log_level)
    services = build_services(settings, CeleryWakeUps(make_celery(settings)))

    def tell(word: bytes) -> None:
        # Nobody listens any more if the worker that started us was killed.
        with suppress(BrokenPipeError):
            os.write(progress, word)

    def leave_in_order() -> NoReturn:
        tell(FINISHED)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not past the threads that a tool may have left: they could hold the process for ever.
        os._exit(0)

    def give_back() -> None:
        for wakeup in services.leases.put_back_all():
            services.wakeups.publish(wakeup)
        leave_in_order()

    def on_signal(number: int, frame: FrameType | None) -> None:
        # The worker is stopping: no death, and the run is due again at once. In a thread, because
        # this one may be interrupted while it holds the very locks that giving back needs.
        threading.Thread(target=give_back, daemon=True).start()

    # Ctrl-C on the worker reaches its children too, and would be an error of the tool that it meets.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    tell(STARTED)
    try:
        drive(services, WakeUp(run_id=run_id, due="suspect"))
    except StoreUnavailableError as error:
        # No fault of the run. Its lease, if it has one, runs out.
        log.warning("suspect left to the sweep", run_id=run_id, error=str(error))
    leave_in_order()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except AdjournError as error:
        log.error("suspect not driven", run_id=sys.argv[1], error=str(error))
        sys.exit(1)
