"""Kombu's Redis transport, made safe for what other programs push, and for crashes.

Kombu parses a list entry before anybody can refuse it: foreign bytes raise in the middle of its
event loop, and the entry is gone. Here every entry is turned into a well-formed envelope before
kombu sees it; bytes that are no envelope become the body of one, and whoever consumes the queue
judges them. The resume queue also closes the gap in which an entry has left the list but is not
yet written down as taken.

Owns nothing of what messages mean. Knows kombu's internals, which is why it is one small file.
"""

from __future__ import annotations

import base64
import logging
import time
import uuid
from functools import partial
from typing import Any, ClassVar, Final

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

# The published types of kombu leave its transports out.
_Redis: Any = redis.Redis
_Channel: Any = kombu_redis.Channel
_QoS: Any = kombu_redis.QoS
_Transport: Any = kombu_redis.Transport

log = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000
FOREIGN_CONTENT_TYPE: Final = "application/octet-stream"
"""Of a body that came without an envelope."""


def enveloped(item: bytes, queue: str) -> str:
    """The list entry as an envelope that kombu can read, whatever the entry is.

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
    envelope["properties"]["delivery_tag"] = str(uuid.uuid4())
    envelope["properties"]["delivery_info"] = {"exchange": "", "routing_key": queue}
    envelope["properties"]["priority"] = 0
    return dumps(envelope)


def _envelope(item: bytes) -> dict[str, Any] | None:
    """The entry as kombu would read it, or None if kombu would choke on it."""
    try:
        envelope = loads(item)
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
        # Not a list of the ways to be malformed: whatever a parser or a type hook of kombu's
        # raises here, it would have raised inside the event loop.
        return None


class _Quiet:
    """Gives back what was taken, as far as Redis can be reached."""

    _delivered: Any

    def restore_unacked(self, client: Any = None) -> list[Any]:
        """What cannot be given back comes again by itself, and kombu hears of none.

        It would write that, answers and all, to a file in the folder for temporary files.
        """
        qos: Any = super()
        try:
            qos.restore_unacked()
        except (redis.RedisError, OSError) as error:
            log.info("taken messages not given back", extra={"error": str(error)})
            self._delivered.clear()
        return []


class _HintQoS(_Quiet, virtual.QoS):  # type: ignore[misc]
    """Remembers in this process alone what is taken."""


class _EnvelopingRedis(_Redis):  # type: ignore[misc]
    """A client whose blocking pop returns envelopes."""

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        reply = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not reply:
            return reply
        key, item = reply
        return key, enveloped(item, bytes_to_str(key))


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

    priority_steps: ClassVar = [0]
    _shared: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.ack_emulation:
            self.QoS = _HintQoS

    def _get_client(self) -> Any:
        super()._get_client()  # refuses versions of redis-py that are too old
        return _EnvelopingRedis

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


class Transport(_Transport):  # type: ignore[misc]
    """For hints: an entry that is lost in a crash is published again by the sweep."""

    Channel = Channel
    # A server that refuses is one that may be reached again: it has become a replica, is loading, or is out of
    # memory. Whoever consumes connects anew upon these, and is stopped for good by any other error.
    connection_errors = (*_Transport.connection_errors, redis.ResponseError)


_TAKE: Final = """
local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], now[1] .. '.' .. string.format('%06d', now[2]), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if ARGV[3] then redis.call('LREM', KEYS[3], 1, ARGV[3]) end
"""

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
"""Puts back what was taken from the list and never written down: its reader died in between.

An entry is in that state for well under a millisecond, so one that is still there a visibility
timeout after it was first seen has no reader. A wrong guess only delivers it twice.
"""


class _TakingRedis(_EnvelopingRedis):
    """A client that moves an entry aside instead of popping it."""

    def __init__(self, *, channel: TakingChannel, **options: Any) -> None:
        super().__init__(**options)
        self._channel = channel

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        if command_name != "BRPOP":
            return super().parse_response(connection, command_name, **options)
        item = super().parse_response(connection, "BLMOVE", **options)
        if item is None:
            return None
        self._channel.taken_item = item
        return self._channel.polled_queue, enveloped(item, self._channel.polled_queue)


class _TakingQoS(_Quiet, _QoS):  # type: ignore[misc]
    """Writes a message down as unacknowledged, and drops the moved entry, in one step.

    When it was taken is told by Redis: a reader whose clock is an hour ahead would otherwise keep what
    it had taken for that hour after its death.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        channel = self.channel
        item, channel.taken_item = channel.taken_item, None
        info = message.delivery_info
        stored = dumps([message._raw, info["exchange"], info["routing_key"]])
        keys = (self.unacked_index_key, self.unacked_key, channel.taken_key)
        with channel.conn_or_acquire() as client:
            client.eval(_TAKE, len(keys), *keys, delivery_tag, stored, *([] if item is None else [item]))
        virtual.QoS.append(self, message, delivery_tag)

    def restore_visible(self, start: int = 0, num: int | None = None, interval: int = 1) -> None:
        channel = self.channel
        with channel.conn_or_acquire() as client:
            seconds, microseconds = client.time()
        ahead = seconds + microseconds / _MICROSECONDS - time.time()
        # Kombu compares with the clock of this machine.
        self.visibility_timeout = channel.visibility_timeout - ahead
        super().restore_visible(start=start, num=num, interval=interval)
        for queue in channel.active_queues:
            with channel.conn_or_acquire() as client:
                keys = (channel.taken_key, f"{channel.taken_key}.seen", queue)
                client.eval(_RESCUE, len(keys), *keys, channel.visibility_timeout)


class TakingChannel(Channel):
    """A channel of one queue, whose entries are in Redis at every moment: on the list, moved aside, or written down.

    Needs BLMOVE: Redis 6.2 or any Valkey.
    """

    QoS = _TakingQoS
    taken_key = "adjourn.taken"
    taken_item: bytes | None = None
    polled_queue = ""
    from_transport_options = (*_Channel.from_transport_options, "taken_key")

    def _get_client(self) -> Any:
        super()._get_client()
        return partial(_TakingRedis, channel=self)

    def _brpop_start(self, timeout: float | None = None) -> None:
        queues = self.active_queues
        if not queues:
            return
        self.polled_queue = queues[0]
        self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()
        wait = timeout or self.brpop_timeout or 0
        self.client.connection.send_command("BLMOVE", self.polled_queue, self.taken_key, "RIGHT", "LEFT", wait)


class TakingTransport(Transport):
    """For the resume queue: an answer survives the death of its reader at any instruction."""

    Channel = TakingChannel
