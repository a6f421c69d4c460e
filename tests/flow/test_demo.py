"""`adjourn demo` as a stranger runs it: a process of its own, nothing configured, no terminal."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from os import kill
from pathlib import Path

import pytest

from adjourn.worker.embedded.servers import wait_until_stopped
from tests.processes import ChildProcess
from tests.waiting import wait_until


@pytest.fixture
def demo(process: Callable[..., ChildProcess], server_folder: Path) -> ChildProcess:
    return process([sys.executable, "-m", "adjourn", "demo", "--data-dir", str(server_folder / "demo")])


def _workers(log: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"Worker (\d+) starts", log)]


def _lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        kill(pid, 0)
        return True
    return False


def _nothing_is_left(server_folder: Path, log: str) -> bool:
    wait_until_stopped(server_folder / "demo")
    return not any(map(_lives, _workers(log)))


def test_the_demo_comes_to_its_end(demo: ChildProcess, server_folder: Path) -> None:
    assert demo.wait() == 0, demo.log
    first, second = _workers(demo.log)
    assert f"Worker {first} is killed with SIGKILL" in demo.log
    assert "receipt says: accepted" in demo.log
    assert f"The report is sent, by worker {second}." in demo.log
    kinds = re.findall(r"^ +\d  \S+ \S+  (\w+)", demo.log, re.MULTILINE)
    assert kinds == ["message", "response", "suspension", "resolution", "output", "response", "end"]
    assert _nothing_is_left(server_folder, demo.log)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(
    demo: ChildProcess, server_folder: Path, sign: signal.Signals
) -> None:
    log = demo.wait_for_log("starts, and agent")
    demo.send(sign)
    assert demo.wait() == 128 + sign
    assert "Traceback" not in demo.log
    assert _nothing_is_left(server_folder, log)


def test_a_killed_demo_takes_its_worker_and_servers_with_it(demo: ChildProcess, server_folder: Path) -> None:
    log = demo.wait_for_log("starts, and agent")
    demo.send(signal.SIGKILL)
    wait_until(lambda: _nothing_is_left(server_folder, log), what="the end of all that the demo had started")


def test_a_demo_that_cannot_start_says_why_in_one_line(process: Callable[..., ChildProcess], tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    demo = process([sys.executable, "-m", "adjourn", "demo", "--data-dir", str(in_the_way / "demo")])
    assert demo.wait() == 1
    assert "Traceback" not in demo.log
    assert demo.log.splitlines()[-1].startswith("Error: ADJOURN_DATA_DIR: cannot use ")
