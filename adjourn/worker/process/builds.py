"""The name of a build that was given none: a digest of the user's own code, as it was loaded."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import adjourn

NOT_THEIRS: Final = (
    "<frozen ",
    str(Path(adjourn.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""Where code is that no user of ours wrote."""
_CHARACTERS: Final = 16


def derived_build(app: str) -> str:
    """A name for the code of this process, in which `app` (`module:attribute`) has just been loaded.

    The same sources have the same name on every machine. What is loaded later, or is no Python, is not looked at.
    """
    package = app.partition(":")[0].partition(".")[0]
    whole = hashlib.sha256()
    for name, path in sorted(_sources(package)):
        with suppress(OSError):
            whole.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return "derived-" + whole.hexdigest()[:_CHARACTERS]


def _sources(package: str) -> Iterator[tuple[str, Path]]:
    """The files of the user's modules: those of the app's package, wherever it is, and others that are no library."""
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name == "__main__":
            continue
        if name.partition(".")[0] == package or not file.startswith(NOT_THEIRS):
            yield name, Path(file)
