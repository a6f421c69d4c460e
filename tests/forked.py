"""`python -m MODULE` without the two seconds that an interpreter takes to load it: forked from one that has.

What the program sees is what it would see in an interpreter of its own: its arguments, environment, folder and
streams, a session of its own, and an end with everything that an interpreter does at its end.
"""

from __future__ import annotations

import importlib
import io
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.crash.forkserver import ForkedProcess, ForkServer

FORKED_MODULE = "adjourn"
"""All that it imports is loaded in the fork server. Other modules get an interpreter of their own."""
INTERPRETERS_OWN = ("PYTHON", "LD_", "DYLD_")
"""Variables that only an interpreter, or its loader, reads when it starts."""


def can_be_forked(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork is as good as an interpreter of its own."""
    named = [*argv[:3]] == [sys.executable, "-m", FORKED_MODULE]
    return named and not any(name.startswith(INTERPRETERS_OWN) for name in env)


def fork_module(
    server: ForkServer, argv: Sequence[str], env: Mapping[str, str], log: int, cwd: Path | None
) -> ForkedProcess:
    """Start `argv`, which `can_be_forked`, with its output in the file `log`."""
    args = {"module": argv[2], "argv": [*argv[3:]], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    return server.start("module", args, [log])


def be_module(descriptors: list[int], *, module: str, argv: list[str], env: dict[str, str], cwd: str) -> None:
    """In the child: be `python -m module`."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in ((nothing, 0), (descriptors[0], 1), (descriptors[0], 2)):
        os.dup2(descriptor, stream)
    os.closerange(3, max(nothing, *descriptors) + 1)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    # As with PYTHONUNBUFFERED.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)  # type: ignore[type-var]
    sys.stderr = io.TextIOWrapper(  # type: ignore[type-var]
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.path[0] = cwd
    sys.argv = [module, *argv]
    importlib.invalidate_caches()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
