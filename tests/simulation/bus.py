"""What lies between processes: a bus that loses, repeats, delays and reorders, and a Redis that forgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.events import Event
from adjourn.schemas.records.runs import WakeUp

if TYPE_CHECKING:
    from tests.simulation.world import World

LONGEST_DELAY_SECONDS = 120.0


@dataclass
class Sent:
    """An answer that somebody sent, and all that they heard of it."""

    to: str
    body: str
    kind: str
    value: Any
    by: str | None
    receipts: list[Receipt] = field(default_factory=list)


class Bus:
    """Messages on their way. In no order; whoever takes one says which."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.messages: list[tuple[datetime, WakeUp | Sent]] = []

    def notify_readers(self, action_id: str) -> None:
        """`WakeUps`. All processes here have the app, and keep nothing for each other."""

    def publish(self, wakeup: WakeUp) -> None:
        """`WakeUps`."""
        self._world.point(f"wake-up {wakeup.due}")
        if not self._world.happens(self._world.profile.wakeup_lost):
            self._put(wakeup)
        self._world.point("wake-up sent")

    def send(self, sent: Sent) -> None:
        if not self._world.happens(self._world.profile.answer_lost):
            self._put(sent)

    def back(self, message: WakeUp | Sent) -> None:
        """Nobody acknowledged it: it comes again."""
        self.messages.append((self._world.db.now, message))

    def take(self) -> WakeUp | Sent | None:
        """One of those that have arrived."""
        now, dice = self._world.db.now, self._world.dice
        arrived = [place for place, (at, _) in enumerate(self.messages) if at <= now]
        return self.messages.pop(dice.choice(arrived))[1] if arrived else None

    def hurry(self) -> None:
        """Everything arrives now."""
        self.messages = [(self._world.db.now, message) for _, message in self.messages]

    def _put(self, message: WakeUp | Sent) -> None:
        world = self._world
        for _ in range(2 if world.happens(world.profile.repeated) else 1):
            late = world.dice.uniform(0, LONGEST_DELAY_SECONDS) if world.happens(world.profile.delayed) else 0.0
            self.messages.append((world.db.now + timedelta(seconds=late), message))


class Index:
    """`Parking`, in a Redis that may lose a command, or everything."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._records: dict[str, PendingAction] = {}
        self._intact = False

    def put(self, records: Sequence[PendingAction], expiry: float = 0) -> None:
        if self._reached("put"):
            self._records.update((record.id, record) for record in records)

    def get(self, action_id: str) -> PendingAction | None:
        return self._records.get(action_id) if self._reached("get") else None

    def drop(self, ids: Sequence[str]) -> None:
        if self._reached("drop"):
            for id in ids:
                self._records.pop(id, None)

    def intact(self) -> bool:
        return not self._reached("intact") or self._intact

    def mark(self) -> None:
        if self._reached("mark"):
            self._intact = True

    def flush(self) -> None:
        self._records.clear()
        self._intact = False

    def _reached(self, command: str) -> bool:
        self._world.point(f"redis {command}")
        return not self._world.happens(self._world.profile.redis_lost)


class Events:
    """`Events` that nobody reads. What they tell the index reaches it, or not."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def publish(
        self,
        thread_id: str,
        events: Sequence[Event],
        *,
        opened: Sequence[PendingAction] = (),
        ended: Sequence[str] = (),
    ) -> bool:
        if opened:
            self._index.put(opened)
        self._index.drop(ended)
        return True
