"""Kombu's RabbitMQ transport, with bodies left as they came.

Kombu inflates a body whose headers ask for it while it builds the message, before anybody has
seen its size. Here the header is dropped: a compressed body is judged, and refused, as it is.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import pyamqp


class Message(pyamqp.Message):
    """A message whose body is never inflated."""

    def __init__(self, msg: Any, channel: Any = None, **options: Any) -> None:
        headers = msg.properties.get("application_headers")
        if headers:
            headers.pop("compression", None)
        super().__init__(msg, channel=channel, **options)


class Channel(pyamqp.Channel):
    Message = Message


class Connection(pyamqp.Connection):
    Channel = Channel


class Transport(pyamqp.Transport):
    """Plain AMQP."""

    Connection = Connection


class SSLTransport(pyamqp.SSLTransport):
    """AMQP over TLS."""

    Connection = Connection
