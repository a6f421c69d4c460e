"""`python -m adjourn.testing.one_pass`: makes one pass over a run, and ends. Its orders come on standard input.

Started by `adjourn.testing.passes`, with a deployment in the environment.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from typing import NoReturn

from adjourn.testing.passes import NEVER_STARTED, drive_here
from adjourn.worker.config.settings import load_settings


def main() -> NoReturn:
    try:
        # From our own parent, who is a test. The path comes first: the rest may hold functions of modules there.
        stream = sys.stdin.buffer
        sys.path[:] = pickle.load(stream)  # noqa: S301
        build, wakeup, crash = pickle.load(stream)  # noqa: S301
        build.load()
    except Exception:
        traceback.print_exc()
        _leave(NEVER_STARTED)
    drive_here(load_settings(), build, wakeup, crash, _die)
    _leave(0)


def _die() -> NoReturn:
    """As a worker does that is killed: without a last word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Not past the threads that a tool may have left: they could hold the process for ever.
    os._exit(code)


if __name__ == "__main__":
    main()
