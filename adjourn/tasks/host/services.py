"""What the tasks of one process work with. Built once per process by `adjourn.worker`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.protocol import Store
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.blocks.app import App
from adjourn.tasks.host.builds import Build
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.host.loop import ModelLoop


class WakeUps(Protocol):
    """Where wake-ups go."""

    def publish(self, wakeup: WakeUp) -> None:
        """Tell a worker that a run is due. Best effort: a wake-up that is lost is repeated by the sweep."""

    def notify_readers(self, action_id: str) -> None:
        """Tell a reader of the resume queue that an answer is kept for this action. Best effort: the sweep looks."""


class ToolProcess(Protocol):
    """A process that runs one attempt of a tool body."""

    @property
    def channel(self) -> socket.socket:
        """This end of the channel."""

    @property
    def has_ended(self) -> bool: ...

    def kill(self) -> None:
        """Kill the process and what it has started, at once. Usable from any thread, and more than once."""

    def end(self, seconds: float) -> str:
        """Wait so many seconds for its end, then kill it and what is left of what it has started.

        Returns how it ended: a signal or an exit code. A second call only returns that.
        """


class ToolProcesses(Protocol):
    """Starts processes for tools that ask for one (`own_process=True`)."""

    def start(self) -> ToolProcess:
        """Start a process that imports the app and waits for its order. Raises `OSError`."""


@dataclass(frozen=True)
class Door:
    """What judging an answer takes. Without an app only the pinned schema is checked."""

    store: Store
    parking: Parking
    events: Events
    wakeups: WakeUps
    tuning: Tuning
    app: App | None


@dataclass(frozen=True)
class Services(Door):
    """What driving a run takes."""

    app: App
    loop: ModelLoop
    leases: LeaseKeeper
    tool_processes: ToolProcesses | None = None
    """Starts the processes of tools that ask for one. Without it, as in tests of an app that is an object, such a
    tool runs in this process, where it cannot be killed."""
    build: Build | None = None
    """What this process has registered as. None: it counts as the newest build, and leaves no run to others."""
