"""The door to Redis (or Valkey): one pool per process, sized and with every time-out set.

Knows no key. The defaults of the client wait for ever on a dead peer, and retry for many seconds
where our callers would rather go on without Redis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SOCKET_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 3.0
_POOL_SECONDS: Final = 5.0
_HEALTH_CHECK_SECONDS: Final = 30
_RETRIES: Final = 1
"""A pooled connection that was closed while it lay idle is replaced; more is not waited for."""

Command = tuple[str | int, ...]
"""A command of Redis: its name and its arguments."""


def connect(url: str, max_connections: int = 20) -> redis.Redis:
    """A client for `url` (`redis://`, `rediss://` or `unix://`); connects when first used."""
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=_POOL_SECONDS,
        socket_timeout=SOCKET_SECONDS,
        socket_connect_timeout=_CONNECT_SECONDS,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),  # a socket file has no peer to lose
        health_check_interval=_HEALTH_CHECK_SECONDS,
        retry=Retry(NoBackoff(), _RETRIES),
        decode_responses=True,
        protocol=2,
    )
    return redis.Redis.from_pool(pool)


class Announcer:
    """A way into the server of `client` for what may be lost: it sends commands and waits for no reply.

    Every command seems to succeed. A connection that is found broken before it is used is replaced;
    what was on its way when one breaks is lost, and nobody is told.
    """

    def __init__(self, client: redis.Redis) -> None:
        pool = client.connection_pool
        talking: Any = pool.connection_class
        silent = type(f"OneWay{talking.__name__}", (_OneWay, talking), {})
        options = {**pool.connection_kwargs, "health_check_interval": 0}  # a check is a question
        one_way_pool: Any = redis.BlockingConnectionPool
        self._pool = one_way_pool(
            connection_class=silent, max_connections=pool.max_connections, timeout=_POOL_SECONDS, **options
        )

    def send(self, commands: Sequence[Command]) -> None:
        """Send these, together and in order. Raises `redis.RedisError` if not even that can be done."""
        # Not a pipeline of the client's, which costs as much again for the replies that never come.
        connection = self._pool.get_connection()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
        finally:
            self._pool.release(connection)

    def close(self) -> None:
        self._pool.disconnect()


class _OneWay:
    """A connection on which the server has been told not to reply."""

    def on_connect_check_health(self, check_health: bool = True) -> None:
        connection: Any = super()
        connection.on_connect_check_health(check_health=check_health)
        connection.send_command("CLIENT", "REPLY", "OFF")
        self._silent = True

    def read_response(self, *args: Any, **options: Any) -> Any:
        if getattr(self, "_silent", False):
            return None
        connection: Any = super()
        return connection.read_response(*args, **options)

    def disconnect(self, *args: Any, **options: Any) -> None:
        self._silent = False  # the next one greets the server anew, and listens while it does
        connection: Any = super()
        connection.disconnect(*args, **options)
