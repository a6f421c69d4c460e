"""The parking index and the live events, on a Redis in memory. For a real one see `tests/store/test_redis.py`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import fakeredis
import pytest

from adjourn.schemas.records.actions import Origin, PendingAction
from adjourn.schemas.records.events import RefreshEvent
from adjourn.store.redis.events import START, Events
from adjourn.store.redis.parking import Parking

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def action(id: str) -> PendingAction:
    origin = Origin(
        tool="t",
        wait_point="q",
        tool_call_id="call_1",
        message_id="run_1:2",
        run_id="run_1",
        thread_id="thr_1",
        block_path=("agent", "t"),
    )
    return PendingAction(
        id=id, name="t.q", input={"ü": None}, resume_schema={}, status="pending", origin=origin, opened_at=NOW
    )


def key() -> bytes:
    return b"the key of this deployment"


@pytest.fixture
def memory() -> Iterator[fakeredis.FakeRedis]:
    with fakeredis.FakeRedis(decode_responses=True) as client:
        yield client


def test_a_record_comes_back_as_it_went_and_goes_when_it_is_dropped(memory: fakeredis.FakeRedis) -> None:
    parking = Parking(memory, key)
    parking.put([action("act_1"), action("act_2")])
    assert parking.get("act_1") == action("act_1")
    parking.drop(["act_1"])
    assert parking.get("act_1") is None
    assert parking.get("act_2") == action("act_2")


def test_a_record_that_cannot_be_read_is_as_good_as_none(memory: fakeredis.FakeRedis) -> None:
    parking = Parking(memory, key)
    parking.put([action("act_1")])
    for name in memory.scan_iter():
        memory.set(name, b"\xff{")
    assert parking.get("act_1") is None


def test_a_record_does_not_stay_for_ever(memory: fakeredis.FakeRedis) -> None:
    Parking(memory, key).put([action("act_1")])
    assert all(memory.ttl(name) > 0 for name in memory.scan_iter())


def test_losing_everything_is_noticed(memory: fakeredis.FakeRedis) -> None:
    parking = Parking(memory, key)
    assert not parking.intact()
    parking.mark()
    assert parking.intact()
    memory.flushall()
    assert not parking.intact()


def test_events_come_in_order_and_once(memory: fakeredis.FakeRedis) -> None:
    events = Events(memory, key)
    told = [RefreshEvent(id=f"1-{seq}", run_id="run_1") for seq in (1, 2, 3)]
    for event in told:
        assert events.publish("thr_1", [event])
    events.publish("thr_2", [RefreshEvent(id="1-9", run_id="run_2")])
    first, *rest = events.read("thr_1")
    assert first.events == (told[0],)
    assert events.read("thr_1", first.id) == rest
    assert [entry.events for entry in rest] == [(told[1],), (told[2],)]
    assert events.last_id("thr_1") == rest[-1].id
    assert events.last_id("thr_3") == START
