"""The command line as such: help, wrong use, and errors in one line. Nothing here reaches a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from adjourn import __version__
from adjourn.schemas.records.published import NAMES
from adjourn.worker.cli.program import app

COMMANDS = (
    "demo",
    "dev",
    "worker",
    "migrate",
    "run",
    "retry",
    "threads",
    "fork",
    "show",
    "pending",
    "action",
    "answer",
    "cancel",
    "fail",
    "credential",
    "schema",
    "doctor",
    "check",
    "prune",
)
ASKING = [
    ["worker", "--app", "reports:app"],
    ["migrate"],
    ["run", "reporter", "go"],
    ["retry", "run_1"],
    ["threads"],
    ["fork", "thr_1"],
    ["show", "run_1"],
    ["check", "run_1"],
    ["pending"],
    ["action", "act_1"],
    ["answer", "act_1", "{}"],
    ["cancel", "act_1"],
    ["fail", "act_1", "lost"],
]


def adjourn(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "APP"):
        monkeypatch.delenv(f"ADJOURN_{name}", raising=False)
    monkeypatch.setenv("ADJOURN_DATA_DIR", str(tmp_path / "nothing-here"))
    yield
    structlog.reset_defaults()


def test_every_command_is_listed() -> None:
    listed = adjourn("--help").stdout.partition("Commands:")[2]
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    said = adjourn(command, "--help")
    assert said.exit_code == 0
    assert f"adjourn {command}" in said.stdout.partition("Example:")[2]


def test_the_version_is_told() -> None:
    assert adjourn("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("args", [["show"], ["pending", "--nonsense"], ["nonsense"], ["threads", "--limit", "0"]])
def test_a_wrong_use_exits_with_2(args: list[str]) -> None:
    said = adjourn(*args)
    assert said.exit_code == 2
    assert said.stdout == ""
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("args", ASKING, ids=lambda args: args[0])
def test_what_is_not_configured_is_one_line(args: list[str]) -> None:
    said = adjourn(*args)
    assert said.exit_code == 1
    assert said.stdout == ""
    assert said.stderr.startswith("Error: ADJOURN_DATABASE_URL: is not set, and no embedded servers are running; ")
    assert said.stderr.count("\n") == 1


def test_dev_needs_an_app() -> None:
    said = adjourn("dev")
    assert (said.exit_code, said.stderr.partition(";")[0]) == (1, "Error: ADJOURN_APP: is not set")


def test_a_setting_that_is_not_understood_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJOURN_CONCURRENCY", "many")
    said = adjourn("pending")
    assert said.exit_code == 1
    assert said.stderr.startswith("Error: ADJOURN_CONCURRENCY: ")


def test_doctor_says_that_nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJOURN_DATABSE_URL", "postgresql://localhost/x")
    said = adjourn("doctor", "--json")
    assert said.exit_code == 1
    findings = json.loads(said.stdout)
    assert [(each["what"], each["status"]) for each in findings] == [("settings", "warning"), ("settings", "wrong")]
    assert "ADJOURN_DATABSE_URL" in findings[0]["detail"]


def test_a_schema_is_printed_by_name_or_all_at_once() -> None:
    assert json.loads(adjourn("schema", "answer").stdout)["title"] == "Answer"
    assert sorted(json.loads(adjourn("schema").stdout)) == sorted(NAMES)
    assert adjourn("schema", "question").exit_code == 2


def test_schemas_are_written_to_a_folder(tmp_path: Path) -> None:
    assert adjourn("schema", "--out", str(tmp_path / "out")).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"{name}.json" for name in NAMES)
