"""Plays a document: every fenced block of it, from top to bottom, in one folder, as a reader would.

A Python block whose first line is `# name.py` is saved under that name; any other one is run. A
bash block is run; one that starts `adjourn dev` goes on in the background, and the URLs that it
prints are known to the blocks after it. JSON blocks have to be JSON. Other kinds are refused, so
that no document holds a block that nothing checks.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.crash.forkserver import ForkServer
from tests.processes import ChildProcess

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w/]+\.py)\n")
PRINTED_URL = re.compile(r"^\s*export (ADJOURN_\w+_URL)=(\S+)$", re.MULTILINE)
STAND_INS = Path(__file__).with_name("bin")
BLOCK_SECONDS = 300


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int
    kind: str
    text: str


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for match in FENCE.finditer(text):
        yield Block(text.count("\n", 0, match.start()) + 1, match[2], dedent(match[3]))


class Player:
    """A folder, an environment, and what runs in the background."""

    def __init__(self, folder: Path, env: dict[str, str], fork_server: ForkServer) -> None:
        self.folder = folder
        self._fork_server = fork_server
        scripts = Path(sys.executable).parent
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ADJOURN_")}
        self.env = {**inherited, **env, "PATH": f"{scripts}:{STAND_INS}:{os.environ['PATH']}"}
        self.background: list[ChildProcess] = []

    def play(self, block: Block) -> str:
        """Do what the block says; returns what it printed. Fails with the block's output."""
        if block.kind == "json":
            json.loads(block.text)
            return ""
        named = FILE_NAME.match(block.text)
        if block.kind == "python" and named:
            path = self.folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return self._run_python([str(path)], block)
        if block.kind == "python":
            return self._run_python(["-c", block.text], block)
        if block.kind == "bash" and block.text.startswith("adjourn dev"):
            self._start(block)
            return ""
        assert block.kind == "bash", f"line {block.line}: a block of kind {block.kind!r} is not played"
        return self._run(["bash", "-euo", "pipefail", "-c", block.text], block)

    def close(self) -> None:
        """End what runs in the background as its reader would, with Ctrl-C."""
        for child in self.background:
            child.send(signal.SIGINT)
            child.wait(BLOCK_SECONDS)

    def _run(self, argv: list[str], block: Block) -> str:
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=BLOCK_SECONDS, check=False
        )
        assert done.returncode == 0, f"line {block.line}:\n{block.text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _run_python(self, argv: list[str], block: Block) -> str:
        log = self.folder / "block.log"
        child = ChildProcess([sys.executable, *argv], self.env, log, self.folder, self._fork_server)
        try:
            code = child.wait(BLOCK_SECONDS)
        finally:
            child.kill()
        assert code == 0, f"line {block.line}:\n{block.text}\n{child.log}"
        return child.log

    def _start(self, block: Block) -> None:
        child = ChildProcess(["bash", "-c", f"exec {block.text}"], self.env, self.folder / "dev.log", self.folder)
        self.background.append(child)
        printed = child.wait_for_log("worker ready", BLOCK_SECONDS)
        self.env |= {name: url.strip("'\"") for name, url in PRINTED_URL.findall(printed)}
