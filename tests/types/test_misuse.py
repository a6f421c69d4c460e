"""A wrong suspend payload and a wrong use of an answer do not type-check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.timeout(900)
MISUSE = Path(__file__).with_name("misuse.py")


def test_misuse_does_not_type_check() -> None:
    # With the options of `make lint`, whose cache saves most of the work.
    found, said, _ = api.run(["--strict", "--no-error-summary", str(MISUSE)])
    errors: dict[int, set[str]] = {}
    for line in found.splitlines():
        match = re.match(rf".*{MISUSE.name}:(\d+): error: .*\[([a-z-]+)\]$", line)
        if match:
            errors.setdefault(int(match[1]), set()).add(match[2])
    expected = {
        number: set(line.split("# error:")[1].split())
        for number, line in enumerate(MISUSE.read_text().splitlines(), 1)
        if "# error:" in line
    }
    assert errors == expected, found + said
