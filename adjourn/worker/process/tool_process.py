"""`python -m adjourn.worker.process.tool_process CHANNEL LIFELINE`: runs one attempt of a tool body, and ends.

Started by `adjourn.worker.process.tool_processes`, with the same settings. It ends when the worker ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Final, NoReturn

from adjourn.schemas.errors import AdjournError
from adjourn.tasks.blocks.user_code import describe_briefly
from adjourn.tasks.execution.inside_process import Link, run_order, tool_of
from adjourn.tasks.execution.process_channel import NotBegun, Order, Word
from adjourn.worker.config.settings import load_settings
from adjourn.worker.process.assembly import load_app
from adjourn.worker.process.logs import configure

_LOOK_SECONDS: Final = 1.0
"""Between two looks whether the worker is still the parent of this process."""


def main(channel: int, lifeline: int) -> NoReturn:
    """Run one attempt of a body, as the worker orders, and leave the process."""
    _die_with(lifeline)
    _leave_signals_to_the_worker()
    os.set_inheritable(channel, False)
    link = Link(socket.socket(fileno=channel), _die)
    order = link.receive()
    assert isinstance(order, Order)
    try:
        settings = load_settings()
        configure(settings.log_level)
        app = load_app(settings.app)
        tool = tool_of(app, order)
    except BaseException as error:  # the import runs code of the user's
        problem = str(error) if isinstance(error, AdjournError) else describe_briefly(error)
        link.leave(NotBegun(problem=problem))
        _leave()
    link.ask(Word(kind="can_begin"))
    link.leave(run_order(tool, order, app, link, settings.tuning))
    _leave()


def _die_with(lifeline: int) -> None:
    """Have the system kill this process group when the worker is gone.

    `Link` does so too, from a thread. That thread needs the interpreter, which a body in C may hold for minutes.
    """
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(lifeline, select.POLLIN)
    if watch.poll(0):  # it was gone before the system was asked
        _die()
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), name="adjourn-parent", daemon=True).start()


def _die_with_parent(worker: int) -> None:
    """Kill this process group when the worker is not the parent any more.

    The lifeline and the channel do not show it while a copy of the worker lives that a tool in the worker has forked:
    the copy holds the worker's ends of both.
    """
    pause = threading.Event()
    while os.getppid() == worker:
        pause.wait(_LOOK_SECONDS)
    _die()


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _leave_signals_to_the_worker() -> None:
    """A service manager sends SIGTERM to every process of a service: the worker decides what that means for a body.

    By a handler, because a program that the body starts would inherit an ignored signal.
    """
    own = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # forked by the body, which may want to end it
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def _leave() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Not past the threads that a tool may have left: they could hold the process for ever.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
