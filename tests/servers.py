"""A RabbitMQ node of the tests' own."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import wait_until

RABBITMQ_FOLDERS = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/opt/homebrew/sbin", "/usr/local/sbin")
"""Searched before the path. Debian's /usr/sbin has a wrapper that always uses the system's own node, so it is last."""


def find_rabbitmq() -> str | None:
    """The program that starts a RabbitMQ node, None where it is not installed."""
    return shutil.which(
        "rabbitmq-server", path=os.pathsep.join((*RABBITMQ_FOLDERS, os.environ.get("PATH", os.defpath)))
    )


class RabbitNode:
    """A private RabbitMQ node on free ports, with its data, its cookie and its port mapper in one folder."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._port, self._http_port, self._dist_port, self._mapper_port = _free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir()
        (self._folder / "enabled_plugins").write_text("[rabbitmq_management].")
        (self._folder / "rabbitmq-env.conf").touch()
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self._port}\n"
            "management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self._http_port}\n"
            "disk_free_limit.absolute = 50MB\n"
            "vm_memory_high_watermark.absolute = 1GB\n"
        )
        with (self._folder / "output.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program], stdout=log, stderr=log, env=self._environment(), start_new_session=True
            )
        wait_until(self._answers, what=f"RabbitMQ to answer; its log is in {self._folder}")

    def stop(self) -> None:
        """Kill it: nothing in it is worth a clean shutdown, which takes seconds."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The port mapper detaches itself from the node; it goes once it has noticed that the node is gone.
        if mapper := shutil.which("epmd"):
            wait_until(lambda: self._mapper_has_gone(mapper), what="the end of the Erlang port mapper")

    @contextmanager
    def fresh_vhost(self) -> Iterator[str]:
        """The URL of a virtual host that nobody else has; it is deleted, with its queues, at the end."""
        name = f"test-{uuid.uuid4().hex}"
        self._request("PUT", f"vhosts/{name}")
        self._request("PUT", f"permissions/{name}/guest", b'{"configure": ".*", "write": ".*", "read": ".*"}')
        try:
            yield f"amqp://guest:guest@127.0.0.1:{self._port}/{name}"
        finally:
            self._request("DELETE", f"vhosts/{name}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output.log").read_text()
        with suppress(OSError):
            self._request("GET", "vhosts")
            return True
        return False

    def _request(self, method: str, path: str, body: bytes = b"") -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self._http_port}/api/{path}", data=body, method=method)
        request.add_header("Authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()

    def _mapper_has_gone(self, mapper: str) -> bool:
        subprocess.run([mapper, "-port", str(self._mapper_port), "-kill"], capture_output=True, check=False)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._mapper_port)) != 0

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "HOME": str(self._folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": "adjourn-tests@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "logs"),
            "RABBITMQ_PID_FILE": str(self._folder / "node.pid"),
            # Without these its schedulers spin, and take the processor from what is being tested.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }


def _free_ports(count: int) -> list[int]:
    """Ports that were free together a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
