"""Live events: one capped, expiring stream in Redis per thread, and with them the parking index.

Each entry has one field, `events`: a JSON array of events (`adjourn.schemas.records.events`) that were
written together, signed for its thread. They make a viewer look sooner; what happened is in Postgres. Best effort, so
nobody who publishes fails because Redis does. An entry that this deployment did not sign has no events to tell, and
has a viewer look in Postgres.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import redis

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.internal.signatures import signed, verified
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.events import EVENTS, Event, RefreshEvent
from adjourn.store.redis.connection import SOCKET_SECONDS, Announcer, Command
from adjourn.store.redis.parking import forgetting, keeping

log = logging.getLogger(__name__)

STREAM: Final = "adjourn:events:"
START: Final = "0"
"""Before the oldest entry that is kept."""
MAX_EVENT_BYTES: Final = 65_536
"""A larger event is left to Postgres: what is kept of a thread has to stay small."""
_FIELD: Final = "events"
_KEPT: Final = 1000
"""Entries kept per thread, about: more than a client misses while it reconnects."""
_EXPIRY_SECONDS: Final = 3600
_BATCH: Final = 100
_PAUSE_SECONDS: Final = 30.0
"""How long a Redis that hangs is not told anything: each try takes a socket's time-outs, and a turn waits for it."""
_LONGEST_BLOCK_MS: Final = int(SOCKET_SECONDS * 1000 / 2)
"""A read that waits longer than the socket may would look like a dead server."""


class Entry(NamedTuple):
    """What was published at once."""

    id: str
    """Of Redis. Entries are read on from it."""
    events: tuple[Event, ...]
    """Empty if they cannot be read: another version wrote them."""


class Events:
    """The streams in one Redis.

    What is published may be lost, so nobody waits for Redis to say that it was not. `key` gives the deployment's
    signing key (`Database.signing_key`), and may raise `StoreUnavailableError`.
    """

    def __init__(self, client: redis.Redis, key: Callable[[], bytes]) -> None:
        self._redis = client
        self._key = key
        self._announcer = Announcer(client)
        self._paused_until = 0.0

    def close(self) -> None:
        """Close the connections that are made for publishing; the client's own are its own."""
        self._announcer.close()

    def publish(
        self,
        thread_id: str,
        events: Sequence[Event],
        *,
        opened: Sequence[PendingAction] = (),
        ended: Sequence[str] = (),
    ) -> bool:
        """Append events to the stream of a thread, as one entry.

        False if Redis is down, which is logged, or hung within the last seconds, when nothing is tried. True
        is no promise: what a broken connection swallowed is not known here.

        With the same commands the parking index gets the records of the actions that were `opened`
        and loses those of the ids that `ended`: before the events, whose readers may answer at once.
        """
        if not (events or opened or ended):
            return True
        if time.monotonic() < self._paused_until:
            return False
        try:
            key = self._key()
            self._announcer.send([*keeping(opened, key), *forgetting(ended), *_appending(thread_id, events, key)])
        except (redis.RedisError, StoreUnavailableError) as error:
            if isinstance(error, redis.TimeoutError):
                self._paused_until = time.monotonic() + _PAUSE_SECONDS
            log.warning(
                "events not published", extra={"thread_id": thread_id, "count": len(events), "error": str(error)}
            )
            return False
        return True

    def read(self, thread_id: str, after_id: str = START, block_ms: int = 0) -> list[Entry]:
        """Entries after `after_id`.

        Waits up to `block_ms` milliseconds, and no longer than half a socket's time-out, for a
        first one; then returns what there is, perhaps nothing. Raises `StoreUnavailableError`.
        """
        block = min(block_ms, _LONGEST_BLOCK_MS) or None
        try:
            streams: Any = self._redis.xread({STREAM + thread_id: after_id}, count=_BATCH, block=block)
        except redis.RedisError as error:
            raise StoreUnavailableError("Redis", str(error)) from error
        if not streams:
            return []
        [(_, entries)] = streams
        return [Entry(id, _events_of(fields, thread_id, self._key())) for id, fields in entries]

    def last_id(self, thread_id: str) -> str:
        """Of the newest entry; `START` if there is none. Raises `StoreUnavailableError`."""
        try:
            newest: Any = self._redis.xrevrange(STREAM + thread_id, count=1)
        except redis.RedisError as error:
            raise StoreUnavailableError("Redis", str(error)) from error
        return str(newest[0][0]) if newest else START


def _appending(thread_id: str, events: Sequence[Event], key: bytes) -> list[Command]:
    """The commands that publish `events`, if there are any."""
    if not events:
        return []
    stream, texts = STREAM + thread_id, (_text(event) for event in events)
    entry = signed(f"[{','.join(texts)}]", key, _purpose(thread_id))
    return [
        ("XADD", stream, "MAXLEN", "~", _KEPT, "*", _FIELD, entry),
        ("EXPIRE", stream, _EXPIRY_SECONDS),
    ]


def _text(event: Event) -> str:
    text = event.model_dump_json()
    if len(text) <= MAX_EVENT_BYTES:
        return text
    return RefreshEvent(id=event.id, run_id=event.run_id).model_dump_json()


def _purpose(thread_id: str) -> str:
    """What an entry is signed for. One that is copied within its thread tells what has a place there already."""
    return f"events 1 {thread_id}"


def _events_of(fields: dict[str, str], thread_id: str, key: bytes) -> tuple[Event, ...]:
    text = verified(str(fields.get(_FIELD, "")), key, _purpose(thread_id))
    try:
        return () if text is None else EVENTS.validate_json(text)
    except ValueError:
        return ()
