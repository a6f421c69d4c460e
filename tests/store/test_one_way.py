"""What is published without waiting for a reply: it arrives, and a Redis that hangs holds nobody up for long."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest
import redis

from adjourn.schemas.records.events import RefreshEvent
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events

EVENT = RefreshEvent(id="1-1", run_id="run_1")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_what_is_published_arrives_in_order_and_a_killed_connection_is_replaced(redis_url: str) -> None:
    name = uuid.uuid4().hex  # other tests have connections to the same server
    client = connect(f"{redis_url}?client_name={name}")
    events = Events(client, lambda: b"key")
    try:
        assert events.publish("one", [EVENT])
        killed = [each["id"] for each in client.client_list() if each["name"] == name and each["cmd"] != "client|list"]
        for id in killed:
            client.client_kill_filter(_id=id)
        assert len(killed) == 1, "the one that published"
        while not client.exists("adjourn:events:two"):  # what was on its way into the broken one may be lost
            events.publish("two", [EVENT])
        assert [entry.events for entry in events.read("one")] == [(EVENT,)]
    finally:
        events.close()
        client.close()


def test_a_redis_that_hangs_is_tried_once_and_then_left_alone(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adjourn.store.redis.connection.SOCKET_SECONDS", 0.05)
    client = connect(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
    events = Events(client, lambda: b"key")
    assert not events.publish("one", [EVENT])
    listening.setblocking(False)
    while True:  # forget the tries so far
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            break
    assert not events.publish("one", [EVENT])
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_a_socket_file_is_an_address_too() -> None:
    with pytest.raises(redis.ConnectionError):
        connect("unix:///nowhere/redis.sock").ping()
