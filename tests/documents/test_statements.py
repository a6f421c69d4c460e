"""The table of the statements is whole: every row has a test, and every test that it names is there."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
STATEMENTS: list[dict[str, Any]] = tomllib.loads((HERE / "statements.toml").read_text())["statement"]
LEAST = {"1": 50, "2": 48, "3": 40}
"""Statements of each document that the table has at least: none may be lost."""


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """The names of the tests in a module."""
    tree = ast.parse((TESTS / path).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement["id"])
def test_a_statement_has_tests_that_exist(statement: dict[str, Any]) -> None:
    assert statement.keys() <= {"id", "fact", "why", "tests"}
    assert statement["fact"].endswith(".")
    assert statement["tests"]
    for node in statement["tests"]:
        path, _, name = node.partition("::")
        assert (TESTS / path).is_file(), f"{node}: there is no such file"
        assert name in names_of_tests(path), f"{node}: there is no such test"


def test_no_statement_is_there_twice_or_lost() -> None:
    ids = [statement["id"] for statement in STATEMENTS]
    assert ids == sorted(set(ids))
    for document, least in LEAST.items():
        assert sum(id.startswith(f"{document}.") for id in ids) >= least
    facts = [statement["fact"] for statement in STATEMENTS]
    assert len(set(facts)) == len(facts)


def test_what_is_changed_on_purpose_says_why() -> None:
    assert all(len(statement["why"]) > 40 for statement in STATEMENTS if "why" in statement)
