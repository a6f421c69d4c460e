"""The Redis transport against real Valkey: foreign entries, and readers that die at the worst moment."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection, Exchange, Queue

from adjourn.worker.embedded.servers import EmbeddedServers
from tests.conftest import ProcessFactory
from tests.waiting import wait_until

QUEUE = "adjourn.test"
TAKEN = "adjourn.test.taken"
VISIBILITY_SECONDS = 1
NO_END = -1
"""What Redis says of a key that does not expire."""
OPTIONS = {
    "visibility_timeout": VISIBILITY_SECONDS,
    "taken_key": TAKEN,
}
FOREIGN = [
    b"",
    b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00]\x94K\x01a.",
    b"not json",
    b"17",
    b"null",
    b"[]",
    b'{"properties": 1}',
    b'{"body": {"a": 1}, "properties": {}}',
    b'{"body": "x", "properties": {"body_encoding": "rot13"}}',
    b'{"body": "x", "properties": {"body_encoding": "base64"}}',
    b'{"body": "x", "properties": [1]}',
    rb'{"body": "\ud800", "properties": {}}',
    b'{"body": "x", "properties": {}, "headers": [1]}',
    b'{"a": {"__type__": "nothing", "__value__": 1}}',
    b"[" * 10_000,
    b"\xff\xfe",
]


class Reader:
    """Collects what a queue brings, acknowledging nothing."""

    def __init__(self, url: str, transport: str, prefetch: int = 100, **options: Any) -> None:
        name = f"adjourn.store.redis.transport:{transport}"
        self.connection = Connection(url, transport=name, transport_options={**OPTIONS, **options})
        self.messages: list[Any] = []
        queue = Queue(QUEUE, exchange=Exchange(""), routing_key=QUEUE)
        self.consumer = self.connection.Consumer([queue], on_message=self.messages.append, prefetch_count=prefetch)

    def read(self, count: int) -> list[Any]:
        """Wait until `count` messages have come."""

        def enough() -> bool:
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=0.1)
            return len(self.messages) >= count

        wait_until(enough, what=f"{count} messages")
        return self.messages


@contextmanager
def reader(url: str, transport: str = "TakingTransport", **options: Any) -> Iterator[Reader]:
    made = Reader(url, transport, **options)
    with made.connection, made.consumer:
        yield made


def envelope(body: str, tag: str) -> str:
    properties = {"delivery_tag": tag, "delivery_info": {"exchange": "gone", "routing_key": "elsewhere"}}
    return json.dumps({"body": body, "content-type": "application/json", "headers": {}, "properties": properties})


@pytest.mark.parametrize("transport", ["Transport", "TakingTransport"])
def test_foreign_entries_arrive_as_they_are_and_the_next_message_is_served(redis_url: str, transport: str) -> None:
    with redis.Redis.from_url(redis_url) as client, reader(redis_url, transport) as reading:
        for entry in FOREIGN:
            client.lpush(QUEUE, entry)
        client.lpush(QUEUE, envelope('{"fine": true}', "1"))
        messages = reading.read(len(FOREIGN) + 1)
        assert [message.body or b"" for message in messages[:-1]] == FOREIGN
        assert messages[-1].body == b'{"fine": true}'
        for message in messages:
            message.ack()
        assert not client.exists(QUEUE, TAKEN)


def test_a_body_is_never_inflated(redis_url: str) -> None:
    compressed = json.loads(envelope("eJwDAAAAAAE=", "1"))
    compressed["headers"] = {"compression": "application/x-gzip"}
    with redis.Redis.from_url(redis_url) as client, reader(redis_url) as reading:
        client.lpush(QUEUE, json.dumps(compressed))
        assert reading.read(1)[0].body == b"eJwDAAAAAAE="


def test_messages_of_a_publisher_with_one_tag_for_all_are_kept_apart(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        with reader(redis_url) as reading:
            client.lpush(QUEUE, envelope("first", "same"), envelope("second", "same"))
            first, _ = reading.read(2)
            first.ack()
            assert client.llen(TAKEN) == 1
        # The reader has left without acknowledging the second: it is back, on this queue.
        with reader(redis_url) as reading:
            assert [message.body for message in reading.read(1)] == [b"second"]


def test_a_message_with_an_end_takes_its_own_list_along_and_nobody_elses(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client, reader(redis_url) as reading:
        producer = reading.connection.Producer()

        def publish(queue: str, seconds: float | None) -> int:
            producer.publish(b"x", routing_key=queue, expiration=seconds)
            return int(client.pttl(queue))

        assert 0 < publish("receipts", 100) <= 100_000
        assert 100_000 < publish("receipts", 1000) <= 1_000_000, "the last one counts"
        assert client.llen("receipts") == 2
        assert publish("kept", None) == publish("kept", 100) == NO_END


KILLED = """
import os, signal, sys
from adjourn.store.redis import transport as redis_transport
from tests.store.test_redis_transport import Reader

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "taken":
    redis_transport.enveloped = die
elif sys.argv[2] == "enveloped":
    redis_transport.virtual.Message.__init__ = die
reading = Reader(sys.argv[1], "TakingTransport")
with reading.connection, reading.consumer:
    reading.read(1)
    die()
"""


@pytest.mark.parametrize("moment", ["taken", "enveloped", "handed over"])
def test_a_message_survives_the_death_of_its_reader(redis_url: str, process: ProcessFactory, moment: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.lpush(QUEUE, envelope("precious", "1"))
        child = process([sys.executable, "-c", KILLED, redis_url, moment])
        assert child.wait() == -9
        assert client.llen(QUEUE) == 0
        with reader(redis_url) as reading:
            reading.read(1)

            def nothing_left() -> bool:
                # It may come twice, when it is not known how far the dead reader had got.
                for message in reading.read(1):
                    if not message.acknowledged:
                        message.ack()
                return not client.exists(QUEUE, TAKEN)

            wait_until(nothing_left, what="nothing to be left")
            assert {message.body for message in reading.messages} == {b"precious"}


OTHER_CLOCK = """
import signal, sys, time
real, ahead = time.time, float(sys.argv[2])
time.time = lambda: real() + ahead
import kombu.transport.redis
from tests.store.test_redis_transport import Reader
reading = Reader(sys.argv[1], "TakingTransport")
with reading.connection, reading.consumer:
    reading.read(1)
    print("taken", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_what_a_reader_with_another_clock_had_taken_comes_back(
    redis_url: str, process: ProcessFactory, ahead: int
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.lpush(QUEUE, envelope("precious", "1"))
        child = process([sys.executable, "-c", OTHER_CLOCK, redis_url, str(ahead)])
        child.wait_for_log("taken")
        child.kill()
        with reader(redis_url) as reading:
            assert [message.body for message in reading.read(1)] == [b"precious"]
            reading.messages[0].ack()


def test_a_reader_with_another_clock_leaves_others_what_they_have_taken(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(redis_url) as client, reader(redis_url, visibility_timeout=3600) as reading:
        client.lpush(QUEUE, envelope("mine", "1"))
        reading.read(1)
        qos = reading.connection.default_channel.qos
        qos.restore_visible()
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 7200)
        qos.restore_visible()
        assert (client.llen(TAKEN), client.llen(QUEUE)) == (1, 0)


def test_two_entries_of_the_same_bytes_are_two_messages(redis_url: str) -> None:
    same = envelope("same", "1")
    with redis.Redis.from_url(redis_url) as client, reader(redis_url) as reading:
        client.lpush(QUEUE, same, same)
        first, second = reading.read(2)
        first.ack()
        assert client.lrange(TAKEN, 0, -1) == [same.encode()]
        second.ack()
        assert not client.exists(TAKEN)


def test_what_is_requeued_or_given_back_is_taken_next_and_in_its_order(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.lpush(QUEUE, *(envelope(body, "1") for body in ("first", "second", "third")))
        with reader(redis_url, prefetch=2) as reading:
            first, second = reading.read(2)
            assert (first.body, second.body) == (b"first", b"second")
        with reader(redis_url, prefetch=1) as reading:
            (first,) = reading.read(1)
            assert first.body == b"first"
            first.requeue()
            assert [message.body for message in reading.read(2)] == [b"first", b"first"]
        bodies = [json.loads(entry)["body"] for entry in client.lrange(QUEUE, 0, -1)]
        assert bodies == ["third", "second", "first"]


def test_what_is_rejected_is_gone(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client, reader(redis_url) as reading:
        client.lpush(QUEUE, envelope("unwanted", "1"))
        reading.read(1)[0].reject()
        assert not client.exists(QUEUE, TAKEN)


@pytest.mark.parametrize("transport", ["Transport", "TakingTransport"])
def test_what_cannot_be_given_back_is_written_to_no_file(
    own_servers: Callable[..., EmbeddedServers],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    transport: str,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    servers = own_servers()
    with redis.Redis.from_url(servers.redis_url) as client:
        client.lpush(QUEUE, envelope("precious", "1"))
    with reader(servers.redis_url, transport) as reading:
        reading.read(1)
        servers.stop()
        reading.connection.default_channel.qos.restore_unacked_once()
    assert list(tmp_path.iterdir()) == []
