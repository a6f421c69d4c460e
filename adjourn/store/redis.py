"""The door to Redis (or Valkey): one pool per process, sized and with every time-out set.

Knows no key. The defaults of the client wait for ever on a dead peer, and retry for many seconds
where our callers would rather go on without Redis.
"""

from __future__ import annotations

from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SOCKET_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 3.0
_POOL_SECONDS: Final = 5.0
_HEALTH_CHECK_SECONDS: Final = 30
_RETRIES: Final = 1
"""A pooled connection that was closed while it lay idle is replaced; more is not waited for."""


def connect(url: str, max_connections: int = 20) -> redis.Redis:
    """A client for `url` (`redis://`, `rediss://` or `unix://`); connects when first used."""
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=_POOL_SECONDS,
        socket_timeout=SOCKET_SECONDS,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_keepalive=True,
        health_check_interval=_HEALTH_CHECK_SECONDS,
        retry=Retry(NoBackoff(), _RETRIES),
        decode_responses=True,
        protocol=2,
    )
    return redis.Redis.from_pool(pool)
