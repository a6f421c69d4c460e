"""The deltas of one turn, on their way from the model to the viewers of its thread.

A model adds them on the loop, which must not wait for Redis. They are published by the thread that
drives the run, which has nothing to do until the response is there: some at a time, so that a
response costs a few commands and not one for each token. All of it is best effort.
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from adjourn.schemas.records.events import AttemptDiscarded, DeltaEvent, Event, ThreadPosition
from adjourn.schemas.records.runs import Run
from adjourn.schemas.strict_json import clean_text
from adjourn.store.redis.events import Events

PAUSE_SECONDS: Final = 0.1
"""What comes within this time goes out together..."""
FULL_CHARACTERS: Final = 2_000
"""...unless it is as much as this, which goes out at once."""


class Feed:
    """`Deltas` of one turn of the agent of `call_id`. Left by an error, it says that all it told is void.

    `place` says what the last item is that this process knows of the run: the turn has no response up to there.
    """

    def __init__(self, events: Events, run: Run, call_id: str, place: Callable[[], ThreadPosition]) -> None:
        self._events = events
        self._run = run
        self._call_id = call_id
        self._place = place
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._full = threading.Event()
        self._reached = True
        self._published = False
        """Whether anything of this attempt is out."""
        self._waiting: list[dict[str, Any]] = []
        self._discarded: list[str] = []
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.discard()
            self._publish()

    # --- on the loop -------------------------------------------------------------------------

    def add(self, part: int, text: str, tool: str | None = None) -> None:
        if not (isinstance(part, int) and isinstance(text, str) and isinstance(tool, str | None)):
            # Here it is an error of the model; where pieces are published, it would be one of the driver.
            raise TypeError(f"a delta is add(part: int, text: str, tool: str | None), not {part!r}, {text!r}, {tool!r}")
        text, tool = clean_text(text), None if tool is None else clean_text(tool)
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last["part"] == part:
                last["text"] += text
            else:
                self._waiting.append({"part": part, "tool": tool, "offset": self._length[part], "text": text})
            self._length[part] += len(text)
            self._characters += len(text)
            if self._characters >= FULL_CHARACTERS:
                self._full.set()
        self._some.set()

    def discard(self) -> None:
        with self._lock:
            if self._published:
                self._discarded.append(self._attempt)
            self._begin()
        self._some.set()

    def _begin(self) -> None:
        self._attempt = secrets.token_hex(4)
        self._published = False
        self._length: dict[int, int] = defaultdict(int)
        self._characters = 0
        self._waiting = []

    # --- in the thread that drives the run ---------------------------------------------------

    def follow(self, future: Future[Any]) -> None:
        """Publish what is added until the response is there. Its item says all that was not told by then."""
        future.add_done_callback(self._hurry)
        while not future.done():
            self._some.wait()
            self._full.wait(PAUSE_SECONDS)
            self._some.clear()
            self._full.clear()
            if not future.done():
                self._publish()

    def _hurry(self, _: Future[Any]) -> None:
        self._full.set()
        self._some.set()

    def _publish(self) -> None:
        """A Redis that is away is not waited for again: the turn must not take longer because of its viewers.

        Each event is an entry of its own, for the id of an entry is where a viewer goes on. There is
        more than one only where one part of a response ends and the next begins.
        """
        for event in self._taken():
            self._reached = self._reached and self._events.publish(self._run.thread_id, [event])

    def _taken(self) -> list[Event]:
        turn: dict[str, Any] = {"id": str(self._place()), "run_id": self._run.id, "call_id": self._call_id}
        with self._lock:
            events: list[Event] = [AttemptDiscarded(**turn, attempt=attempt) for attempt in self._discarded]
            events += [DeltaEvent(**turn, attempt=self._attempt, **each) for each in self._waiting]
            self._published = self._published or bool(self._waiting)
            self._waiting, self._discarded, self._characters = [], [], 0
        return events
