"""Redis: parking records, the sentinel and live events; and that nobody fails because Redis does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.actions import Origin, PendingAction
from adjourn.schemas.records.events import RefreshEvent, event_of
from adjourn.schemas.records.items import Item, MessageItem
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import MAX_EVENT_BYTES, STREAM, Events
from adjourn.store.redis.parking import Parking
from tests.waiting import wait_until

NOBODY_LISTENS = "redis://127.0.0.1:1/0"


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with connect(redis_url) as client:
        yield client


def key() -> bytes:
    return b"the key of this deployment"


@pytest.fixture
def parking(client: redis.Redis) -> Parking:
    return Parking(client, key)


@pytest.fixture
def events(client: redis.Redis) -> Events:
    return Events(client, key)


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
        parking = Parking(gone, key)
        parking.put([action("act_1")])
        assert parking.get("act_1") is None
        parking.drop(["act_1"])
        parking.mark()
        assert parking.intact(), "nothing can be rebuilt in a Redis that is down"


def event(seq: int) -> RefreshEvent:
    return RefreshEvent(id=f"1-{seq}", run_id="run-1")


def item(seq: int, text: str) -> Item:
    return Item(run_id="run-1", seq=seq, at=datetime(2030, 1, 2, tzinfo=UTC), body=MessageItem(text=text))


# --- events ----------------------------------------------------------------------------------------


def test_events_are_read_in_order_and_from_where_the_reader_was(events: Events) -> None:
    assert events.read("thread-1") == []
    told = [event_of(item(seq, text="\x00 \N{GRINNING FACE}"), ordinal=1) for seq in (1, 2, 3)]
    events.publish("thread-1", told[:2])
    events.publish("thread-1", told[2:])
    events.publish("thread-1", [])
    events.publish("thread-2", [event(9)])
    first, second = events.read("thread-1")
    assert first.events + second.events == tuple(told)
    assert events.read("thread-1", first.id) == [second]
    assert events.read("thread-1", second.id) == []


def test_what_is_too_large_is_only_named(events: Events) -> None:
    large = event_of(item(1, text="x" * MAX_EVENT_BYTES), ordinal=1)
    events.publish("thread-1", [large])
    (entry,) = events.read("thread-1")
    assert entry.events == (RefreshEvent(id=large.id, run_id=large.run_id),)


def test_what_another_version_wrote_is_read_as_nothing(events: Events, client: redis.Redis) -> None:
    for fields in ({"event": "{}"}, {"events": "no json"}, {"events": '[{"kind": "unheard of"}]'}):
        client.xadd(STREAM + "thread-1", fields)  # type: ignore[arg-type]
    assert [entry.events for entry in events.read("thread-1")] == [(), (), ()]


def test_a_reader_waits_for_the_next_event(events: Events, client: redis.Redis) -> None:
    events.publish("thread-1", [event(1)])
    ((after, _),) = events.read("thread-1")

    def publish_when_waited_for() -> None:
        wait_until(lambda: int(client.info("clients")["blocked_clients"]) > 0)
        events.publish("thread-1", [event(2)])

    publisher = threading.Thread(target=publish_when_waited_for)
    publisher.start()
    read = wait_until(lambda: events.read("thread-1", after, block_ms=60_000))
    publisher.join()
    assert [entry.events for entry in read] == [(event(2),)]


def test_a_wait_without_events_ends(events: Events) -> None:
    assert events.read("thread-1", block_ms=10) == []


def test_streams_are_capped_and_expire(events: Events, client: redis.Redis) -> None:
    for number in range(1500):
        events.publish("thread-1", [event(number)])
    (key,) = client.keys()
    assert int(str(client.xlen(key))) < 1200
    assert 0 < int(str(client.ttl(key))) <= 3600
    read, after = [], "0"
    while page := events.read("thread-1", after):
        read += [event for entry in page for event in entry.events]
        after = page[-1].id
    assert read == [event(number) for number in range(1500 - len(read), 1500)]


def test_publishing_goes_on_without_redis_and_reading_says_so() -> None:
    with connect(NOBODY_LISTENS) as gone:
        events = Events(gone, key)
        assert not events.publish("thread-1", [event(1)])
        with pytest.raises(StoreUnavailableError) as caught:
            events.read("thread-1")
        with pytest.raises(StoreUnavailableError):
            events.last_id("thread-1")
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
        events = Events(client, key)
        events.publish("thread-1", [event(1)])
        killer.client_kill_filter(_id=str(client.client_id()))
        events.publish("thread-1", [event(2)])
        assert [entry.events for entry in events.read("thread-1")] == [(event(1),), (event(2),)]
