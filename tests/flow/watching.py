"""A viewer of a thread for tests, and an agent that gives it something to see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from pydantic import BaseModel

from adjourn import Context, WaitPoint, tool
from adjourn.schemas.records.events import (
    Cursor,
    EndEvent,
    Event,
    ItemEvent,
    ParkedEvent,
)
from adjourn.store.redis.events import Events
from adjourn.tasks.models.scripted import ScriptedModel
from adjourn.tasks.streaming.viewer import Viewer
from adjourn.worker.client.client import Client
from adjourn.worker.config.settings import load_settings
from tests.waiting import wait_until
from tests.world import World

NOBODY_LISTENS = "redis://127.0.0.1:1/0"
LOOK = 0.2
"""Seconds after which a viewer in a thread asks whether it is to leave."""
YES = {"approved": True}


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Approval)


@tool(wait_points=[approval])
def ask_twice(ctx: Context) -> str:
    """Ask two times."""
    for question in ("Sure?", "Really?"):
        ctx.ask(approval, Ask(prompt=question))
    return "asked"


def script(*steps: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(list(steps), **options)


def seen(w: World, thread_id: str, after: str | None = None, events: Events | None = None) -> list[Event]:
    """What is recorded after an event, as a viewer gets it that does not wait."""
    cursor = Cursor() if after is None else Cursor.parse(after)
    return list(Viewer(w.store, events or w.services.events, thread_id, cursor).read(0))


class Watching:
    """A viewer in a thread, while it is entered."""

    def __init__(self, w: World, thread_id: str, after: str | None = None, events: Events | None = None) -> None:
        self.seen: list[Event] = []
        self._leave = threading.Event()
        cursor = Cursor() if after is None else Cursor.parse(after)
        self._viewer = Viewer(w.store, events or w.services.events, thread_id, cursor)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._leave.is_set():
            self.seen.extend(self._viewer.read(LOOK))

    def until(self, holds: Callable[[list[Event]], object]) -> list[Event]:
        """Wait until what was seen is what is wanted, and return it."""
        wait_until(lambda: holds(list(self.seen)), what="the events")
        return list(self.seen)

    def until_end(self, reason: str, count: int = 1) -> list[Event]:
        return self.until(lambda events: shapes(events).count(reason) >= count)


def client_of(w: World) -> Client:
    return Client(load_settings(database_url=w.database_url, redis_url=w.redis_url))


def thread_of(w: World, run_id: str) -> str:
    return w.run(run_id).thread_id


def played(w: World) -> tuple[str, list[Event]]:
    """A run from its start over two parks to its end, as a viewer saw it that was there all the time."""
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        watching.until(bool)
        w.settle()
        for parks in (1, 2):
            watching.until_end("parked", parks)
            w.answer(w.the_action(run_id), YES)
        return run_id, watching.until_end("completed")


def without_parks(events: list[Event]) -> list[Event]:
    """What is recorded: that a run parked is a state, and over when it goes on."""
    return [event for event in events if not isinstance(event, ParkedEvent)]


def shapes(events: list[Event]) -> list[str]:
    names: list[str] = []
    for event in events:
        match event:
            case ItemEvent():
                names.append(event.item.kind)
            case EndEvent():
                names.append(event.reason)
            case _:
                names.append(event.kind)
    return names
