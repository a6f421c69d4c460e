"""The tests' own servers: that what one test does there does not reach another."""

from __future__ import annotations

import sys

import kombu
import pytest
import redis

from tests.conftest import ProcessFactory
from tests.waiting import WaitedInVainError, wait_until


@pytest.mark.parametrize("turn", [1, 2])
def test_redis_is_empty_for_each_test(redis_url: str, turn: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", turn)


@pytest.mark.parametrize("turn", [1, 2])
def test_a_broker_carries_messages_and_is_empty_for_each_test(broker_url: str, turn: int) -> None:
    with kombu.Connection(broker_url) as connection, connection.SimpleQueue("letters") as queue:
        with pytest.raises(queue.Empty):
            queue.get(block=False)
        queue.put({"turn": turn})
        assert queue.get(timeout=10).payload == {"turn": turn}
        queue.put({"left": turn})


def test_a_process_is_seen_and_killed(process: ProcessFactory) -> None:
    child = process([sys.executable, "-c", "print('up'); import threading; threading.Event().wait()"])
    child.wait_for_log("up")
    assert child.exit_code is None
    child.kill()
    assert child.exit_code == -9


def test_a_process_that_ends_early_is_not_waited_for(process: ProcessFactory) -> None:
    child = process([sys.executable, "-c", "raise SystemExit('no')"])
    with pytest.raises(AssertionError, match="never said 'up'; it said:\nno"):
        child.wait_for_log("up")


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(WaitedInVainError, match=r"for: rain; the last look said \[\]"):
        wait_until(list, timeout=0.05, what="rain")
