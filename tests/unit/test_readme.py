"""`tests/README.md` names every file of tests, and what each one shows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: file.stem)
def test_each_file_is_listed_with_its_first_line(file: Path) -> None:
    says = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].replace("\n", " ").replace("|", "/")
    assert says, "a file of tests says what it shows"
    listed = (TESTS / "README.md").read_text()
    assert f"## `{file.parent.relative_to(TESTS)}/`" in listed
    assert f"| `{file.name}` | {says} |" in listed
