"""Kombu's Redis transport, made safe for what other programs push, and for crashes.

Kombu parses a list entry before anybody can refuse it: foreign bytes raise in the middle of its
event loop, and the entry is gone. Here every entry is turned into a well-formed envelope before
kombu sees it; bytes that are no envelope become the body of one, and whoever consumes the queue
judges them. An entry of the resume queue is moved to a second list, in the one step that takes it,
and stays there until what came of it is settled.

Owns nothing of what messages mean. Knows kombu's internals, which is why it is one small file.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Sequence
from itertools import count
from queue import Empty
from typing import Any, ClassVar, Final

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import dumps

# The published types of kombu leave its transports out.
_VirtualQoS: Any = virtual.QoS
_Channel: Any = kombu_redis.Channel
_Transport: Any = kombu_redis.Transport

log = logging.getLogger(__name__)

FOREIGN_CONTENT_TYPE: Final = "application/octet-stream"
"""Of a body that came without an envelope."""
_ITEM: Final = "adjourn-item"
"""The key under which an envelope keeps the entry that it was made of."""

_tags: Final = count(1)
"""Delivery tags mean something within this process alone."""


def enveloped(item: bytes, queue: str) -> dict[str, Any]:
    """The list entry as an envelope that kombu can make a message of, whatever the entry is.

    Where the message goes back to, and its delivery tag, are always ours: a publisher that uses
    one tag for all its messages would otherwise have them overwrite each other while they are
    unacknowledged. The `compression` header goes, so that kombu never inflates a body.
    """
    envelope = _envelope(item) or {
        "body": base64.b64encode(item).decode(),
        "content-type": FOREIGN_CONTENT_TYPE,
        "content-encoding": "binary",
        "headers": {},
        "properties": {"body_encoding": "base64"},
    }
    envelope["headers"].pop("compression", None)
    envelope["properties"]["delivery_tag"] = str(next(_tags))
    envelope["properties"]["delivery_info"] = {"exchange": "", "routing_key": queue}
    envelope["properties"]["priority"] = 0
    envelope[_ITEM] = item
    return envelope


def _envelope(item: bytes) -> dict[str, Any] | None:
    """The entry as kombu would read it, or None if kombu would choke on it."""
    try:
        # Not kombu's parser, which makes objects of what names a type.
        envelope = json.loads(item.decode())
        properties = envelope["properties"]
        body = envelope["body"]
        encoding = properties.get("body_encoding")
        if not isinstance(body, str) or encoding not in (None, "base64"):
            return None
        # Either would otherwise fail when kombu builds the message.
        if encoding:
            base64.b64decode(body)
        else:
            body.encode()
        headers = dict(envelope.get("headers") or {})
        return {**envelope, "headers": headers, "properties": dict(properties)}
    except Exception:
        # Not a list of the ways to be malformed: whatever a parser raises here, kombu's would have
        # raised inside the event loop.
        return None


class _QoS(_VirtualQoS):  # type: ignore[misc]
    """Remembers in this process what it has taken, and gives it back as far as Redis can be reached."""

    channel: Any
    _delivered: Any

    def restore_unacked(self) -> list[Any]:
        """What cannot be given back comes again by itself, and kombu hears of none.

        It would write that, answers and all, to a file in the folder for temporary files.
        """
        self._flush()
        try:
            self._give_back()
        except (redis.RedisError, OSError) as error:
            log.info("taken messages not given back", extra={"error": str(error)})
        self._delivered.clear()
        return []

    def _give_back(self) -> None:
        super().restore_unacked()


_PUT_FOR_A_WHILE: Final = """
local length = redis.call('LPUSH', KEYS[1], ARGV[1])
if length == 1 or redis.call('PTTL', KEYS[1]) >= 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
"""
"""An entry on a list that goes, whole, when nobody has read it and nothing has come for so long.

A list that somebody else keeps for ever stays one: it was there, and had no end.
"""


class Channel(_Channel):  # type: ignore[misc]
    """A channel that survives foreign entries. All its messages have one priority.

    A message that is published with an `expiration` takes its list along (see `_PUT_FOR_A_WHILE`).
    """

    QoS = _QoS
    # Kombu would write down what is taken a second time, by the clock of its reader and under a lock that
    # outlives it.
    ack_emulation = False
    priority_steps: ClassVar = [0]
    _shared: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.QoS = type(self).QoS  # kombu has put its own there

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        expiration = message["properties"].get("expiration")
        if expiration is None:
            super()._put(queue, message, **options)
            return
        with self.conn_or_acquire() as client:
            client.eval(_PUT_FOR_A_WHILE, 1, queue, dumps(message), expiration)

    def _create_client(self, asynchronous: bool = False) -> Any:
        # Kombu makes a client for every command, which costs more than the command. A client holds
        # no connection of its own, so threads may share it, for as long as it is of the current pool.
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._shared is None or self._shared.connection_pool is not self.pool:
            self._shared = super()._create_client()
        return self._shared

    def _brpop_read(self, **options: Any) -> bool:
        """As kombu's, but that it is we who make an envelope of the entry."""
        try:
            try:
                taken = self._read_taken(**options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if taken is None:
                raise Empty
            queue, item = taken
            self._queue_cycle.rotate(queue)
            self.connection._deliver(enveloped(item, queue), queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _read_taken(self, **options: Any) -> tuple[str, bytes] | None:
        """The reply to the pop that was sent: of which queue, and the entry; None if it found nothing in time."""
        reply = self.client.parse_response(self.client.connection, "BRPOP", **options)
        return (reply[0].decode(), reply[1]) if reply else None


class Transport(_Transport):  # type: ignore[misc]
    """For wake-ups: an entry that is lost in a crash is published again by the sweep."""

    Channel = Channel
    # A server that refuses is one that may be reached again: it has become a replica, is loading, or is out of
    # memory. Whoever consumes connects anew upon these, and is stopped for good by any other error.
    connection_errors = (*_Transport.connection_errors, redis.ResponseError)


_GIVE_BACK: Final = """
for _, item in ipairs(ARGV) do
  if redis.call('LREM', KEYS[1], 1, item) == 1 then redis.call('RPUSH', KEYS[2], item) end
end
"""
"""Puts entries back to where they are taken next, but for those that somebody has put back already."""

_RESCUE: Final = """
local now = tonumber(redis.call('TIME')[1])
local present = {}
for _, item in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local digest = redis.sha1hex(item)
  local seen = redis.call('HGET', KEYS[2], digest)
  if not seen then
    redis.call('HSET', KEYS[2], digest, now)
    present[digest] = true
  elseif now - tonumber(seen) >= tonumber(ARGV[1]) then
    redis.call('LREM', KEYS[1], 1, item)
    redis.call('RPUSH', KEYS[3], item)
  else
    present[digest] = true
  end
end
for _, digest in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not present[digest] then redis.call('HDEL', KEYS[2], digest) end
end
"""
"""Puts back what was taken and not settled within the visibility timeout of being first seen here.

Its reader has died, or waits for a store that is away. A wrong guess only delivers it twice. Redis
tells the time: a reader whose clock is an hour ahead would otherwise keep what it had taken for that
hour after its death, or take from the others what they are at.
"""


class _TakingQoS(_QoS):
    """Settles entries: what is on the taken list is taken and not settled, and nothing else says so.

    An entry is known by its bytes. Of two with the same bytes it does not matter which one is
    removed: they say the same, and that has been judged.
    """

    def ack(self, delivery_tag: str) -> None:
        message = self._delivered.get(delivery_tag)
        if message is not None:
            with self.channel.conn_or_acquire() as client:
                client.lrem(self.channel.taken_key, 1, message._raw[_ITEM])
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not requeue:
            self.ack(delivery_tag)
            return
        message = self._delivered.get(delivery_tag)
        if message is not None:
            self._put_back([message])
        super().ack(delivery_tag)

    def restore_visible(self, *_: Any, **__: Any) -> None:
        channel = self.channel
        for queue in channel.active_queues:
            with channel.conn_or_acquire() as client:
                keys = (channel.taken_key, f"{channel.taken_key}.seen", queue)
                client.eval(_RESCUE, len(keys), *keys, channel.visibility_timeout)

    def _give_back(self) -> None:
        # The oldest last, so that it is taken first again.
        self._put_back([*reversed(self._delivered.values())])

    def _put_back(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        queue = messages[0].delivery_info["routing_key"]
        with self.channel.conn_or_acquire() as client:
            client.eval(_GIVE_BACK, 2, self.channel.taken_key, queue, *(message._raw[_ITEM] for message in messages))


class TakingChannel(Channel):
    """A channel of one queue, whose entries are in Redis at every moment: on its list, or on the one of the taken.

    Needs BLMOVE: Redis 6.2 or any Valkey.
    """

    QoS = _TakingQoS
    taken_key = "adjourn.taken"
    polled_queue = ""
    from_transport_options = (*_Channel.from_transport_options, "taken_key")

    def _brpop_start(self, timeout: float | None = None) -> None:
        queues = self.active_queues
        if not queues:
            return
        self.polled_queue = queues[0]
        self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()
        wait = timeout or self.brpop_timeout or 0
        self.client.connection.send_command("BLMOVE", self.polled_queue, self.taken_key, "RIGHT", "LEFT", wait)

    def _read_taken(self, **options: Any) -> tuple[str, bytes] | None:
        item = self.client.parse_response(self.client.connection, "BLMOVE", **options)
        return None if item is None else (self.polled_queue, item)


class TakingTransport(Transport):
    """For the resume queue: an answer survives the death of its reader at any instruction."""

    Channel = TakingChannel
