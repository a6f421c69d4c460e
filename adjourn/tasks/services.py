"""What the tasks of one process work with. Built once per process by `adjourn.worker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from adjourn.schemas.policy import Policy
from adjourn.schemas.runs import Hint
from adjourn.store.database import Database
from adjourn.store.events import Events
from adjourn.store.parking import Parking
from adjourn.tasks.app import App
from adjourn.tasks.leases import LeaseKeeper
from adjourn.tasks.loop import ModelLoop


class Hints(Protocol):
    """Where hints go."""

    def publish(self, hint: Hint) -> None:
        """Tell a worker that a run is due. Best effort: a hint that is lost is repeated by the sweep."""

    def notify_readers(self, action_id: str) -> None:
        """Tell a reader of the resume queue that an answer is kept for this action. Best effort: the sweep looks."""


@dataclass(frozen=True)
class Door:
    """What judging an answer takes. Without an app only the pinned schema is checked."""

    db: Database
    parking: Parking
    events: Events
    hints: Hints
    policy: Policy
    app: App | None


@dataclass(frozen=True)
class Services(Door):
    """What driving a run takes."""

    app: App
    loop: ModelLoop
    leases: LeaseKeeper
