"""Redis: parking records, the sentinel and live events; and that nobody fails because Redis does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis

from adjourn.schemas.actions import Origin, PendingAction
from adjourn.schemas.errors import StoreUnavailableError
from adjourn.store.events import Events
from adjourn.store.parking import Parking
from adjourn.store.redis import connect
from tests.waiting import wait_until

NOBODY_LISTENS = "redis://127.0.0.1:1/0"


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def parking(client: redis.Redis) -> Parking:
    return Parking(client)


@pytest.fixture
def events(client: redis.Redis) -> Events:
    return Events(client)


def action(id: str) -> PendingAction:
    return PendingAction(
        id=id,
        name="send.approval",
        prompt="Send \x00 it?",
        input={"rows": [1, None, "\N{GRINNING FACE}"]},
        resume_schema={"type": "object"},
        status="pending",
        origin=Origin(
            tool="send",
            wait_point="approval",
            tool_call_id="call_1",
            message_id="run-1:2",
            run_id="run-1",
            thread_id="thread-1",
            block_path=("agent", "send"),
        ),
        opened_at=datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        answerers=("ann",),
    )


# --- parking ---------------------------------------------------------------------------------------


def test_records_come_back_as_they_went_until_they_are_dropped(parking: Parking) -> None:
    parking.put([action("act_1"), action("act_2")])
    assert parking.get("act_1") == action("act_1")
    parking.drop(["act_1", "act_nobody_has"])
    assert parking.get("act_1") is None
    assert parking.get("act_2") == action("act_2")
    parking.put([])
    parking.drop([])


def test_records_expire(parking: Parking, client: redis.Redis) -> None:
    parking.put([action("act_1")], expiry=100)
    (key,) = client.keys()
    assert 90 < int(str(client.ttl(key))) <= 100
    parking.put([action("act_2")], expiry=0.01)
    wait_until(lambda: parking.get("act_2") is None)


def test_a_record_that_cannot_be_read_is_as_good_as_none(parking: Parking, client: redis.Redis) -> None:
    parking.put([action("act_1")])
    (key,) = client.keys()
    for text in ("no json", '{"id": "act_1"}', ""):
        client.set(key, text)
        assert parking.get("act_1") is None
    client.delete(key)
    client.lpush(key, "another type")
    assert parking.get("act_1") is None


def test_the_sentinel_tells_of_a_loss(parking: Parking, client: redis.Redis) -> None:
    assert not parking.intact()
    parking.mark()
    assert parking.intact()
    client.flushdb()
    assert not parking.intact()


def test_parking_goes_on_without_redis() -> None:
    with connect(NOBODY_LISTENS) as gone:
        parking = Parking(gone)
        parking.put([action("act_1")])
        assert parking.get("act_1") is None
        parking.drop(["act_1"])
        parking.mark()
        assert parking.intact(), "nothing can be rebuilt in a Redis that is down"


# --- events ----------------------------------------------------------------------------------------


def test_events_are_read_in_order_and_from_where_the_reader_was(events: Events) -> None:
    assert events.read("thread-1") == []
    for number in range(3):
        events.publish("thread-1", {"kind": "item", "number": number, "text": "\x00"})
    events.publish("thread-2", {"kind": "other"})
    read = events.read("thread-1")
    assert [event for _, event in read] == [{"kind": "item", "number": n, "text": "\x00"} for n in range(3)]
    assert events.read("thread-1", read[0][0]) == read[1:]
    assert events.read("thread-1", read[-1][0]) == []


def test_a_reader_waits_for_the_next_event(events: Events, client: redis.Redis) -> None:
    events.publish("thread-1", {"n": 1})
    ((after, _),) = events.read("thread-1")

    def publish_when_waited_for() -> None:
        wait_until(lambda: int(client.info("clients")["blocked_clients"]) > 0)
        events.publish("thread-1", {"n": 2})

    publisher = threading.Thread(target=publish_when_waited_for)
    publisher.start()
    read = wait_until(lambda: events.read("thread-1", after, block_ms=60_000))
    publisher.join()
    assert [event for _, event in read] == [{"n": 2}]


def test_a_wait_without_events_ends(events: Events) -> None:
    assert events.read("thread-1", block_ms=10) == []


def test_streams_are_capped_and_expire(events: Events, client: redis.Redis) -> None:
    for number in range(1500):
        events.publish("thread-1", {"n": number})
    (key,) = client.keys()
    assert int(str(client.xlen(key))) < 1200
    assert 0 < int(str(client.ttl(key))) <= 3600
    read, after = [], "0"
    while page := events.read("thread-1", after):
        read += [event["n"] for _, event in page]
        after = page[-1][0]
    assert read[-1] == 1499
    assert read == [*range(read[0], 1500)]


def test_publishing_goes_on_without_redis_and_reading_says_so() -> None:
    with connect(NOBODY_LISTENS) as gone:
        events = Events(gone)
        events.publish("thread-1", {"kind": "item"})
        with pytest.raises(StoreUnavailableError) as caught:
            events.read("thread-1")
    assert caught.value.store == "Redis"


def test_the_pool_is_sized_and_waits(redis_url: str) -> None:
    with connect(redis_url, max_connections=2) as client:
        pool = client.connection_pool
        assert isinstance(pool, redis.BlockingConnectionPool)
        assert pool.max_connections == 2
        options = pool.connection_kwargs
        for name in ("socket_timeout", "socket_connect_timeout", "health_check_interval", "socket_keepalive"):
            assert options[name], name


def test_a_connection_that_was_closed_while_idle_is_replaced(redis_url: str) -> None:
    with connect(redis_url, max_connections=1) as client, connect(redis_url) as killer:
        events = Events(client)
        events.publish("thread-1", {"n": 1})
        killer.client_kill_filter(_id=str(client.client_id()))
        events.publish("thread-1", {"n": 2})
        assert [event for _, event in events.read("thread-1")] == [{"n": 1}, {"n": 2}]
