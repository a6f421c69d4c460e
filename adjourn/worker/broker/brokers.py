"""How queues are reached: transport, options and queue type for each kind of broker, from the URL alone.

Owns every number that kombu needs and the reason for it. Connects to nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from kombu import Connection, Exchange, Queue

from adjourn.worker.config.settings import Settings

SOCKET_TIMEOUT_SECONDS: Final = 15
"""The default waits for ever, and a worker whose broker was unplugged would never notice."""
CONNECT_TIMEOUT_SECONDS: Final = 5
HEALTH_CHECK_SECONDS: Final = 10
"""An idle connection is tested before use after this: firewalls drop idle connections silently."""
SPARE_CONNECTIONS: Final = 20
"""Beside one per thread: consuming, restoring, publishing."""


@dataclass(frozen=True)
class Broker:
    """One way to one broker."""

    url: str = field(repr=False)
    transport: str
    options: dict[str, Any]
    quorum: bool
    """RabbitMQ: queues are replicated and durable. Redis has no queue types."""
    tls: dict[str, Any] | None = None

    def connection(self) -> Connection:
        """A connection, not yet opened."""
        return Connection(
            self.url,
            transport=self.transport,
            transport_options=dict(self.options),
            ssl=self.tls or False,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
        )

    def queue(self, name: str) -> Queue:
        """A durable queue on the default exchange.

        The default exchange routes by queue name without any stored binding, so a broker that
        lost everything (`FLUSHALL`) still takes the next message, and nothing is looked up to publish.
        """
        arguments = {"x-queue-type": "quorum"} if self.quorum else None
        return Queue(name, exchange=Exchange(""), routing_key=name, durable=True, queue_arguments=arguments)


def wakeup_broker(settings: Settings) -> Broker:
    """The broker as the Celery worker uses it."""
    # Nothing is written down as taken: what a dead worker had taken is in the rows, and the sweep publishes it
    # again before any visibility timeout would. A worker that stops gives back what it has not begun.
    return _broker(settings, "Transport", {"max_connections": settings.concurrency + SPARE_CONNECTIONS})


def resume_broker(settings: Settings) -> Broker:
    """The broker as a reader of the resume queue uses it."""
    options = {
        "visibility_timeout": settings.resume_visibility_seconds,
        "taken_key": "adjourn.resume.taken",
        "max_connections": SPARE_CONNECTIONS,
    }
    return _broker(settings, "TakingTransport", options)


def _broker(settings: Settings, redis_transport: str, redis_options: dict[str, Any]) -> Broker:
    url = settings.broker
    scheme = urlsplit(url).scheme
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if scheme == "rediss" else None
    if settings.broker_is_redis:
        options = {
            "socket_timeout": SOCKET_TIMEOUT_SECONDS,
            "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": HEALTH_CHECK_SECONDS,
            **redis_options,
        }
        return Broker(url, f"adjourn.store.redis.transport:{redis_transport}", options, quorum=False, tls=tls)
    name = "SSLTransport" if scheme == "amqps" else "Transport"
    # Publishers wait for the broker's word that a message is on a quorum queue.
    options = {"confirm_publish": True}
    return Broker(url, f"adjourn.worker.broker.amqp_transport:{name}", options, quorum=True)
