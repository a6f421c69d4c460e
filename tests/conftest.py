"""What every test may ask for: real servers, fresh databases, real processes.

One PostgreSQL and one Valkey serve a whole run, whatever number of pytest-xdist workers it has: all of them
use one data folder, so the first that needs the servers starts them and the last one out stops them. Tests
that want to stop or kill a server take `own_servers`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import redis

from adjourn.store.scratch import ScratchDatabases
from adjourn.worker.embedded.servers import EmbeddedServers, wait_until_stopped
from tests.crash.forkserver import ForkServer
from tests.deployment import QUICK, Deployment, deployment
from tests.forked import can_be_forked
from tests.no_servers import no_servers
from tests.processes import ChildProcess
from tests.servers import RabbitNode, find_rabbitmq

ROOT = pytest.StashKey[Path]()
CHILDREN = pytest.StashKey[list[ChildProcess]]()
CONNECTIONS = 400
"""Several workers, with a pool each, for every process that runs tests."""
LOG_CHARACTERS_SHOWN = 20_000
NOT_SHARED = ("flushall", "swapdb", "config|set")
"""Commands of the shared Redis that would disturb the tests beside this one: it refuses them."""

NEED_SERVERS = {"servers", "server_folder", "rabbitmq_node", "broker_url", "process"}
"""A test that uses one of these, itself or through other fixtures, is marked `servers`; `make test-fast` leaves it out.

`broker_url` stands for the fixtures that it asks for while the test runs; `process` starts programs, which takes as
long as a server does.
"""

ProcessFactory = Callable[..., ChildProcess]
Deploy = Callable[..., AbstractContextManager[Deployment]]


# --- the run ---------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durable", action="store_true", help="let the tests' PostgreSQL wait for the disk (slower)")


def pytest_configure(config: pytest.Config) -> None:
    if (given := getattr(config, "workerinput", {}).get("adjourn_root")) is not None:
        config.stash[ROOT] = Path(given)
        return
    root = Path(tempfile.mkdtemp(prefix="adjourn-tests-"))
    # Run by root, the servers are somebody else, who has to pass through; pytest's own folders bar the way.
    root.chmod(0o711)
    config.stash[ROOT] = root


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["adjourn_root"] = str(node.config.stash[ROOT])


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or ROOT not in config.stash:
        return
    servers = config.stash[ROOT] / "servers"
    if servers.exists():
        wait_until_stopped(servers)
    shutil.rmtree(config.stash[ROOT])


def pytest_report_header() -> str | None:
    if find_rabbitmq() is None:
        return "adjourn: rabbitmq-server is not found, so the RabbitMQ tests are left out (Redis is tested)"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Long tests first: what one process would be left with at the end, nobody could share.
    items.sort(key=_limit_of, reverse=True)
    for item in items:
        if NEED_SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("servers")
    if find_rabbitmq() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("rabbitmq")]
    if left_out and os.environ.get("CI") == "true":
        raise pytest.UsageError("rabbitmq-server is not found; on CI the RabbitMQ tests may not be left out")
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _limit_of(item: pytest.Item) -> float:
    """The time limit of a test that has one of its own: those take longest."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield
    if report.failed:
        for child in item.stash.get(CHILDREN, []):
            report.sections.append((f"log of {child}", child.log[-LOG_CHARACTERS_SHOWN:]))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    with no_servers(str(item.nodeid)) if item.get_closest_marker("servers") is None else nullcontext():
        return (yield)


# --- servers ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def run_folder(pytestconfig: pytest.Config) -> Path:
    """A folder that all processes of this test run share, and that servers run by root can get to."""
    return pytestconfig.stash[ROOT]


@pytest.fixture(scope="session")
def durable(pytestconfig: pytest.Config) -> bool:
    """Whether PostgreSQL waits for the disk. Not by default: tests kill clients, not servers."""
    return bool(pytestconfig.getoption("--durable"))


@pytest.fixture(scope="session")
def servers(run_folder: Path, durable: bool) -> Iterator[EmbeddedServers]:
    """The shared PostgreSQL and Valkey. Never stop or flush them: other tests are using them."""
    with EmbeddedServers(run_folder / "servers", durable=durable, max_connections=CONNECTIONS) as shared:
        with redis.Redis.from_url(shared.redis_url) as client:
            client.execute_command("ACL", "SETUSER", "default", *(f"-{command}" for command in NOT_SHARED))
        yield shared


@pytest.fixture(scope="session")
def databases(servers: EmbeddedServers) -> Iterator[ScratchDatabases]:
    """Makes fresh databases; most tests want `database_url` instead."""
    databases = ScratchDatabases(servers.database_url)
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def adjourn_servers(servers: EmbeddedServers) -> tuple[str, str]:
    """The fixture `adjourn`, which users have too, is on the servers of this run."""
    return servers.database_url, servers.redis_url


@pytest.fixture(scope="session")
def adjourn_databases(databases: ScratchDatabases) -> ScratchDatabases:
    return databases


@pytest.fixture
def database_url(databases: ScratchDatabases, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of this test's own, migrated and empty."""
    with databases.fresh() as url:
        yield url
        # Before the database is emptied: its processes would try to connect again.
        for child in request.node.stash.get(CHILDREN, []):
            child.kill()


@pytest.fixture
def empty_database_url(databases: ScratchDatabases) -> Iterator[str]:
    """A database of this test's own without any schema."""
    with databases.empty() as url:
        yield url


@pytest.fixture
def redis_url(servers: EmbeddedServers, worker_id: str) -> str:
    """An empty Redis database of this test's own, on a server that other tests use at the same time.

    So FLUSHDB is free to use and FLUSHALL is not, and CLIENT LIST and CLIENT KILL have to be narrowed to its `db`.
    """
    number = 0 if worker_id == "master" else int(worker_id.removeprefix("gw"))
    url = f"{servers.redis_url.removesuffix('/0')}/{number}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def server_folder(run_folder: Path) -> Iterator[Path]:
    """A folder for the data folder, named `servers`, of this test's own servers; run by root they can get to it."""
    folder = Path(tempfile.mkdtemp(prefix="own-", dir=run_folder))
    folder.chmod(0o711)
    yield folder
    if (folder / "servers").exists():
        wait_until_stopped(folder / "servers")
    shutil.rmtree(folder)


@pytest.fixture
def own_servers(server_folder: Path, durable: bool) -> Iterator[Callable[..., EmbeddedServers]]:
    """Start servers that nobody shares: `own_servers()`, or `own_servers(durable=True)`."""
    with ExitStack() as stack:

        def start(**options: Any) -> EmbeddedServers:
            return stack.enter_context(EmbeddedServers(server_folder / "servers", **{"durable": durable, **options}))

        yield start


@pytest.fixture(scope="session")
def rabbitmq_node(run_folder: Path, worker_id: str) -> Iterator[RabbitNode]:
    """A RabbitMQ node of this pytest process; most tests want `rabbitmq_url` or `broker_url` instead."""
    program = find_rabbitmq()
    assert program is not None, "a test that uses RabbitMQ must be marked so: @pytest.mark.rabbitmq"
    node = RabbitNode(program, run_folder / f"rabbitmq-{worker_id}")
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
def rabbitmq_url(rabbitmq_node: RabbitNode) -> Iterator[str]:
    """A RabbitMQ virtual host of this test's own. The test needs `@pytest.mark.rabbitmq`."""
    with rabbitmq_node.fresh_vhost() as url:
        yield url


@pytest.fixture(params=["redis", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A broker of this test's own; the test runs once on Redis and once on RabbitMQ."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


# --- processes -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fork_server(run_folder: Path, worker_id: str) -> Iterator[ForkServer]:
    """A process that has loaded all of Adjourn, and is forked wherever a test starts a process of it."""
    folder = run_folder / f"fork-{worker_id}"
    folder.mkdir()
    with ForkServer(folder) as server:
        yield server


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessFactory]:
    """Start real processes: `process([sys.executable, "-m", "adjourn", …], env={…})` gives a `ChildProcess`.

    Each is killed with SIGKILL at the end of the test, with all that it started; its log is shown if the test fails.
    """
    children = request.node.stash.setdefault(CHILDREN, [])

    def start(argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> ChildProcess:
        server = request.getfixturevalue("fork_server") if can_be_forked(argv, env or {}) else None
        child = ChildProcess(argv, env or {}, tmp_path / f"process-{len(children) + 1}.log", cwd, server)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()


# --- deployments -----------------------------------------------------------------------------


@pytest.fixture
def deploy(database_url: str, redis_url: str, process: ProcessFactory, tmp_path: Path) -> Deploy:
    """`with deploy() as d:` is a deployment of real workers that notice deaths quickly; none is started yet.

    Keyword arguments are settings. What holds for every case is checked when the `with` ends.
    """

    def make(**settings: Any) -> AbstractContextManager[Deployment]:
        named = {"database_url": database_url, "redis_url": redis_url, **QUICK, **settings}
        return deployment(process, tmp_path, **named)

    return make
