"""One viewer of a thread: all its events, in order, each once, from wherever the viewer was.

Redis tells what is new, Postgres what was missed: at the beginning, where the next event of Redis
is not the one after the last, and after a quiet second. So a viewer outlives a Redis that is
flushed, trimmed or away. Owns the order and decides what is delivered; starts and writes nothing.

Runs of a thread are told one after the other: of the next, nothing before the one in front has ended.

What is asked below the run in front is told from Postgres alone; Redis only says when to look.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from adjourn.schemas.errors import NotFoundError, StoreUnavailableError
from adjourn.schemas.records.events import (
    THREAD_START,
    AttemptDiscarded,
    Cursor,
    DeltaEvent,
    EndEvent,
    Event,
    ItemEvent,
    ParkedEvent,
    RefreshEvent,
    ThreadPosition,
    nested,
)
from adjourn.schemas.records.items import FaultItem, ResponseItem, SuspensionItem
from adjourn.store.protocol import Store
from adjourn.store.redis.events import START, Entry, Events
from adjourn.store.results import NESTED_PER_PAGE, RUNS_PER_PAGE

QUIET_SECONDS: Final = 1.0
"""How long a viewer trusts in Redis before it looks for itself: Redis may have lost an entry."""


class Viewer:
    """A viewer that has seen everything up to `after`. For one thread of a process."""

    def __init__(self, store: Store, events: Events, thread_id: str, after: Cursor) -> None:
        self._store = store
        self._redis = events
        self._thread_id = thread_id
        self._place = after.place
        self._parked = after.parked
        # From the oldest entry, unless it is known better: a turn may have told deltas before this viewer came.
        self._entry = after.entry or START
        self._turns = _Turns(after.place)
        self._delegating: str | None = None
        """The run in front, if it waits for runs below it."""
        self._asked: set[str] = set()
        """The actions below that were told as open, and not how they ended."""
        self._looked = 0.0

    def read(self, timeout: float | None) -> Iterator[Event]:
        """Events as they come, for `timeout` seconds (`None`: for ever); with 0, those that are recorded.

        Raises `NotFoundError` for a thread without runs, and `StoreUnavailableError` if Postgres
        cannot be reached: then join again after the last event.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        yield from self._look()
        while True:
            left = QUIET_SECONDS if deadline is None else min(QUIET_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return
            yield from self._live(left)

    def _live(self, seconds: float) -> Iterator[Event]:
        """What Redis tells within some seconds; what Postgres has, if it tells nothing."""
        try:
            entries = self._redis.read(self._thread_id, self._entry, max(1, int(seconds * 1000)))
        except StoreUnavailableError:
            time.sleep(seconds)
            yield from self._look()
            return
        for entry in entries:
            self._entry = entry.id
            yield from self._told(entry)
        if not entries:
            was = self._place
            yield from self._look()
            if self._place != was:
                self._find_entry()
        elif self._is_below(entries):
            # Once for all of them, and after them: the id of what is told says that they have been seen.
            yield from self._look()

    def _is_below(self, entries: Sequence[Entry]) -> bool:
        """Whether something may have happened below that this viewer has not looked for."""
        if any(event.id == THREAD_START for entry in entries for event in entry.events):
            return True
        return bool(self._delegating or self._asked) and time.monotonic() - self._looked >= QUIET_SECONDS

    def _find_entry(self) -> None:
        """Redis did not tell what happened. If it is new, its ids may be lower than the last one that was read."""
        try:
            self._entry = self._redis.last_id(self._thread_id)
        except StoreUnavailableError:
            return

    # --- from Redis ------------------------------------------------------------------------------

    def _told(self, entry: Entry) -> Iterator[Event]:
        if not entry.events:
            yield from self._recorded()
        for event in entry.events:
            if isinstance(event, DeltaEvent | AttemptDiscarded):
                yield from self._delta(event, entry.id)
            elif not self._seen(event):
                if self._follows(event):
                    yield from self._deliver(event)
                else:
                    yield from self._recorded()

    def _seen(self, event: Event) -> bool:
        cursor = Cursor.parse(event.id)
        return (cursor.place, cursor.parked) <= (self._place, self._parked)

    def _follows(self, event: Event) -> bool:
        """Whether nothing lies between the last event and this one."""
        (run, seq), is_park, _ = Cursor.parse(event.id)
        last = self._place
        return not isinstance(event, RefreshEvent) and run == last.run and seq == last.seq + (0 if is_park else 1)

    def _delta(self, event: DeltaEvent | AttemptDiscarded, entry_id: str) -> Iterator[Event]:
        place = Cursor.parse(event.id).place
        if place > self._place:
            yield from self._recorded()
        if place <= self._place:
            # The id says what this viewer has seen, so that nothing comes twice to one that goes on from it.
            id = str(Cursor(self._place, self._parked, entry_id))
            for told in self._turns.told(event, place):
                yield told.model_copy(update={"id": id})

    # --- from Postgres ---------------------------------------------------------------------------

    def _look(self) -> Iterator[Event]:
        """Everything that is recorded by now, and what was asked below or has ended there."""
        yield from self._recorded()
        self._looked = time.monotonic()
        yield from self._below(self._delegating)

    def _below(self, run_id: str | None) -> Iterator[Event]:
        """What was asked below a run, if there is one, and how what was told before has ended."""
        more = run_id is not None or bool(self._asked)  # false for a thread without children: nothing is read
        while more:
            found = self._store.streams.below(run_id, self._asked)
            opened = [state.action.id for state in found if state.resolution is None]
            self._asked.difference_update(state.action.id for state in found)
            self._asked.update(opened)
            id = str(Cursor(self._place, self._parked, None if self._entry == START else self._entry))
            for state in found:
                yield nested(state, id)
            more = len(opened) == NESTED_PER_PAGE

    def _recorded(self) -> Iterator[Event]:
        """Everything that is recorded by now, up to the first run that has not ended."""
        while True:
            pages = self._store.streams.read(self._thread_id, self._place)
            if not pages:
                raise NotFoundError("thread", self._thread_id)
            for page in pages:
                for event in page.events:
                    yield from self._deliver(event)
                if page.events and self._place != page.last:
                    break  # its other items are on the next page
                if not page.ended:
                    self._delegating = page.run_id if page.delegates else None
                    if page.status == "parked" and not self._parked:
                        yield from self._deliver(ParkedEvent.of(page.run_id, page.last, page.updated_at))
                    return
            else:
                if len(pages) < RUNS_PER_PAGE:
                    return

    def _deliver(self, event: Event) -> Iterator[Event]:
        """Count an event that is no delta as seen. The place moves first: whoever has it will not get it again."""
        cursor = Cursor.parse(event.id)
        is_end = isinstance(event, EndEvent)
        if is_end:
            yield from self._below(None)  # before it, for who follows the run leaves with it
        self._place, self._parked = cursor.place, cursor.parked
        self._turns.recorded(event, cursor.place)
        if isinstance(event, ItemEvent) and isinstance(event.item, SuspensionItem):
            self._delegating = event.run_id  # a wait for a child, as far as is known until the next look
        elif is_end:
            self._delegating = None
        yield event


class _Turns:
    """What has become of the turns whose deltas a viewer sees."""

    def __init__(self, joined: ThreadPosition) -> None:
        self._since = joined
        """Deltas that were told before this place belong to turns of which nothing is known here."""
        self._closed: dict[tuple[str, str], ThreadPosition] = {}
        self._current: dict[tuple[str, str], str] = {}
        """The attempts that are told, by run and call."""
        self._void: set[str] = set()

    def recorded(self, event: Event, place: ThreadPosition) -> None:
        """A response or a fault ends what was told of its turn, an end all of it."""
        if isinstance(event, EndEvent):
            self._since = place
            for told in (self._closed, self._current, self._void):
                told.clear()
        elif isinstance(event, ItemEvent) and isinstance(event.item, ResponseItem | FaultItem):
            turn = (event.run_id, event.item.call_id)
            self._closed[turn] = place
            self._current.pop(turn, None)

    def told(
        self, event: DeltaEvent | AttemptDiscarded, place: ThreadPosition
    ) -> Iterator[DeltaEvent | AttemptDiscarded]:
        """The event, unless it is out of date; before it, that an attempt is void whose worker could not say so."""
        turn, attempt = (event.run_id, event.call_id), event.attempt
        if place < self._since or place < self._closed.get(turn, place) or attempt in self._void:
            return
        before = self._current.pop(turn, attempt)
        if before != attempt:
            self._void.add(before)
            yield AttemptDiscarded(id=event.id, run_id=event.run_id, call_id=event.call_id, attempt=before)
        if isinstance(event, AttemptDiscarded):
            self._void.add(attempt)
        else:
            self._current[turn] = attempt
        yield event
