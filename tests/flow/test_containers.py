"""The servers of docker-compose.yml, tried with its own options: nothing that is queued there may get lost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from adjourn.worker.embedded.wheels import find_wheels
from adjourn.worker.process.doctor import examine
from tests.conftest import ProcessFactory
from tests.deployment import ROOT


@pytest.fixture
def valkey_url(process: ProcessFactory, tmp_path: Path) -> str:
    """A Valkey that was started with the command of the compose file."""
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["valkey"]["command"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    server = process([str(find_wheels().valkey_server), *command[1:], *given])
    server.wait_for_log("Ready to accept connections")
    return f"redis://127.0.0.1:{port}/0"


def test_the_doctor_finds_nothing_wrong_with_valkey(
    valkey_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADJOURN_DATABASE_URL", database_url)
    monkeypatch.setenv("ADJOURN_REDIS_URL", valkey_url)
    monkeypatch.delenv("ADJOURN_BROKER_URL", raising=False)
    found = {each.what: each.status for each in examine("tests.flow.gate_app:app")}
    assert set(found.values()) == {"ok"}, found
    assert {"redis", "broker"} <= set(found)
