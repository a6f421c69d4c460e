"""Tries a safeguard: takes it out of a copy of the checkout, and runs its tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.summary import ROOT
from tests.safeguards.safeguard import Safeguard

COPIED: Final = ("adjourn", "tests", "benchmarks", "docs", "pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
LIMIT_SECONDS: Final = 300
"""The limit of one trial. A test that waits in vain has a limit of its own, which is shorter."""
FAILED: Final = 1
"""The exit code of pytest when tests ran and some failed. Any other code shows nothing about the safeguard."""


@dataclass(frozen=True)
class Trial:
    """The result of one trial."""

    safeguard: Safeguard
    sound: bool
    """True if the tests pass while the safeguard is there. Not tried in a quick trial."""
    exit_code: int
    """The exit code of pytest without the safeguard."""
    printed: str

    @property
    def noticed(self) -> bool:
        """True if a test failed because the safeguard was missing."""
        return self.sound and self.exit_code == FAILED

    @property
    def noticed_by(self) -> str:
        """The first test that failed, or a statement that none did."""
        failed = [line.split(" - ")[0] for line in self.printed.splitlines() if line.startswith("FAILED ")]
        return failed[0].removeprefix("FAILED ") if failed and self.noticed else "NOTHING"


@contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the checkout in which code may be broken. It is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="adjourn-safeguards-"))
    try:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                # With its bytecode, which Python does not use for a module that was changed since.
                shutil.copytree(source, folder / name)
            elif source.exists():
                shutil.copy(source, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def broken(safeguard: Safeguard, code: str) -> str:
    """The module without the safeguard. Raises `LookupError` unless its text stands there exactly once."""
    if (found := code.count(safeguard.text)) != 1:
        where = f"{safeguard.file} contains the text of {safeguard.rule!r}"
        raise LookupError(f"{where} {found} times, and not once: update the safeguard")
    return code.replace(safeguard.text, safeguard.instead)


def attempt(safeguard: Safeguard, folder: Path, *, sound: bool = True) -> Trial:
    """Run the tests of a safeguard in the copy, without it, and first (if `sound`) with it."""
    passes = not sound or _pytest(safeguard, folder).returncode == 0
    module = folder / safeguard.file
    code = module.read_text()
    module.write_text(broken(safeguard, code))
    try:
        ran = _pytest(safeguard, folder)
    finally:
        module.write_text(code)
    return Trial(safeguard, passes, ran.returncode, ran.stdout)


def _pytest(safeguard: Safeguard, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *safeguard.tests]
    # The copy comes before the installed package, in pytest and in every worker that a test starts.
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
