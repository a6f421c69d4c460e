"""Live events: one capped, expiring stream in Redis per thread.

They make a client look sooner; what happened is in Postgres. Best effort, so nobody who publishes
fails because Redis does.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import redis

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.store.redis import SOCKET_SECONDS

log = logging.getLogger(__name__)

_STREAM: Final = "adjourn:events:"
_KEPT: Final = 1000
"""Events kept per thread, about: more than a client misses while it reconnects."""
_EXPIRY_SECONDS: Final = 3600
_BATCH: Final = 100
_LONGEST_BLOCK_MS: Final = int(SOCKET_SECONDS * 1000 / 2)
"""A read that waits longer than the socket may would look like a dead server."""


class Events:
    """The streams in one Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client

    def publish(self, thread_id: str, *events: dict[str, Any]) -> None:
        """Append events (JSON values only) to the stream of a thread. A Redis that is down is logged."""
        if not events:
            return
        key = _STREAM + thread_id
        pipeline = self._redis.pipeline(transaction=False)
        for event in events:
            pipeline.xadd(key, {"event": json.dumps(event)}, maxlen=_KEPT, approximate=True)
        pipeline.expire(key, _EXPIRY_SECONDS)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            log.warning(
                "events not published", extra={"thread_id": thread_id, "count": len(events), "error": str(error)}
            )

    def read(self, thread_id: str, after_id: str = "0", block_ms: int = 0) -> list[tuple[str, dict[str, Any]]]:
        """Events after `after_id` (`"0"`: from the oldest kept, `"$"`: only new ones), with their ids.

        Waits up to `block_ms` milliseconds, and no longer than half a socket's time-out, for a
        first one; then returns what there is, perhaps nothing. Raises `StoreUnavailableError`.
        """
        block = min(block_ms, _LONGEST_BLOCK_MS) or None
        try:
            streams: Any = self._redis.xread({_STREAM + thread_id: after_id}, count=_BATCH, block=block)
        except redis.RedisError as error:
            raise StoreUnavailableError("Redis", str(error)) from error
        if not streams:
            return []
        [(_, entries)] = streams
        return [(id, json.loads(fields["event"])) for id, fields in entries]
