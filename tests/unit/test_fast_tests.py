"""`make test-fast` runs the tests that need no server, and none of them can start one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from adjourn.worker.embedded.servers import EmbeddedServers
from tests.no_servers import SERVERS, ServerStartedError, no_servers

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("server", SERVERS)
def test_a_test_that_is_not_marked_cannot_start_a_server(server: str) -> None:
    with pytest.raises(ServerStartedError, match="test_a_test_that_is_not_marked"):
        subprocess.Popen([f"/usr/bin/{server}"])


def test_it_cannot_start_the_embedded_servers_either(run_folder: Path) -> None:
    with pytest.raises(ServerStartedError, match=r"supervisor\.py"):
        EmbeddedServers(run_folder / "never").__enter__()


def test_other_programs_are_started_and_asking_a_server_for_its_version_or_ending_it_is_no_start() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    for command in (["/nowhere/postgres", "--version"], ["/nowhere/epmd", "-port", "4369", "-kill"]):
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(command)


def test_a_marked_test_may_start_servers(request: pytest.FixtureRequest) -> None:
    with no_servers(""), pytest.raises(FileNotFoundError):
        subprocess.Popen(["/nowhere/postgres"])


def test_what_is_left_out_is_what_uses_a_server() -> None:
    expression = re.search(r"\ntest-fast:.*\n.* -m '(.+)'", (TOP / "Makefile").read_text())
    assert expression
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression[1]]
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/store/test_redis.py"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    chosen = {line.partition("::")[2] for line in collected.splitlines() if "::" in line}
    assert chosen == {"test_parking_goes_on_without_redis", "test_publishing_goes_on_without_redis_and_reading_says_so"}
