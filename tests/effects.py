"""What tools of worker processes did, and where they are held: a folder that they share with the test."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Final

from tests.waiting import POLL_SECONDS

FOLDER: Final = "TEST_EFFECTS_FOLDER"
"""The variable that tells a worker process the folder."""


class Effects:
    """Notes, in the order of their writing by whatever process, and holds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = folder / "notes"
        self._notes.touch()

    @classmethod
    def of_this_process(cls) -> Effects:
        return cls(Path(os.environ[FOLDER]))

    @property
    def environment(self) -> dict[str, str]:
        return {FOLDER: str(self._folder)}

    def note(self, name: str) -> None:
        """Durable before it returns, as far as a kill of the process goes."""
        with self._notes.open("ab", buffering=0) as file:
            file.write(f"{name} {os.getpid()}\n".encode())

    def count(self, name: str) -> int:
        return len(self.pids(name))

    def pids(self, name: str) -> list[int]:
        """The processes that noted it, in order."""
        notes = [line.split(" ") for line in self._notes.read_text().splitlines()]
        return [int(pid) for noted, pid in notes if noted == name]

    def release(self, name: str) -> None:
        """Let everybody go on who is held at `name`, or comes there later."""
        (self._folder / f"released-{name}").touch()

    def is_released(self, name: str) -> bool:
        return (self._folder / f"released-{name}").exists()

    def hold(self, name: str) -> None:
        """Note it, and come back once it is released."""
        self.note(name)
        pause = threading.Event()
        while not self.is_released(name):
            pause.wait(POLL_SECONDS)

    async def hold_async(self, name: str) -> None:
        self.note(name)
        while not self.is_released(name):  # noqa: ASYNC110 (another process releases it)
            await asyncio.sleep(POLL_SECONDS)
