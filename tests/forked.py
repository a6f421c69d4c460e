"""`python …` without the two seconds that an interpreter takes to load Adjourn: forked from one that has.

What the program sees is what it would see in an interpreter of its own: its arguments, environment, folder and
streams, a session of its own, and an end with everything that an interpreter does at its end.
"""

from __future__ import annotations

import importlib
import io
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tests.crash.forkserver import ForkedProcess, ForkServer

FORKED_MODULE = "adjourn"
"""All that it imports is loaded in the fork server. Other modules get an interpreter of their own."""
INTERPRETERS_OWN = ("PYTHON", "LD_", "DYLD_")
"""Variables that only an interpreter, or its loader, reads when it starts."""


def can_be_forked(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork is as good as an interpreter of its own."""
    named = [*argv[:3]] == [sys.executable, "-m", FORKED_MODULE]
    return named and not any(name.startswith(INTERPRETERS_OWN) for name in env)


def fork_python(
    server: ForkServer, argv: Sequence[str], env: Mapping[str, str], log: int, cwd: Path | None
) -> ForkedProcess:
    """Start `python -m MODULE …`, `python -c CODE …` or `python FILE …`, with its output in the file `log`."""
    assert argv[0] == sys.executable
    args = {"argv": [*argv[1:]], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    return server.start("python", args, [log])


def be_python(descriptors: list[int], *, argv: list[str], env: dict[str, str], cwd: str) -> None:
    """In the child: be `python` with these arguments."""
    os.setsid()
    # Whoever runs the tests may ignore it, as a shell does for what it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    _take_streams(descriptors[0])
    importlib.invalidate_caches()
    if argv[0] == "-m":
        sys.path[0], sys.argv = cwd, argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *argv[2:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(argv[1], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0], sys.argv = str(Path(argv[0]).parent), argv
        runpy.run_path(argv[0], run_name="__main__")


def _take_streams(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, stream)
    os.close(nothing)
    os.close(log)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    # As with PYTHONUNBUFFERED.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)  # type: ignore[type-var]
    sys.stderr = io.TextIOWrapper(  # type: ignore[type-var]
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
