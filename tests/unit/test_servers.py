"""The tests' own servers: that what one test does there does not reach another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import kombu
import psycopg
import pytest
import redis

from tests import conftest
from tests.conftest import ProcessFactory
from tests.waiting import LIMIT_SECONDS, WaitedInVainError, wait_until


@pytest.mark.parametrize("turn", [1, 2])
def test_redis_is_empty_for_each_test(redis_url: str, turn: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", turn)


@pytest.mark.parametrize("turn", [1, 2])
def test_a_database_is_migrated_and_empty_for_each_test(database_url: str, turn: int) -> None:
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT count(*) FROM adjourn.runs").fetchone() == (0,)
        connection.execute("INSERT INTO adjourn.meta VALUES ('left', %s)", [str(turn)])


@pytest.mark.parametrize("turn", [1, 2])
def test_a_broker_carries_messages_and_is_empty_for_each_test(broker_url: str, turn: int) -> None:
    with kombu.Connection(broker_url) as connection, connection.SimpleQueue("letters") as queue:
        with pytest.raises(queue.Empty):
            queue.get(block=False)
        queue.put({"turn": turn})
        assert queue.get(timeout=LIMIT_SECONDS).payload == {"turn": turn}
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


@contextmanager
def without_rabbitmq(ci: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conftest, "find_rabbitmq", lambda: None)
        patch.setenv("CI", ci)
        yield


class Item:
    """A collected test, as far as choosing tests looks at one."""

    def __init__(self, *markers: str) -> None:
        self.markers = markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def test_without_rabbitmq_its_tests_are_left_out_and_the_header_says_so() -> None:
    left_out: list[Item] = []
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)))
    on_redis, on_rabbitmq = Item(), Item("rabbitmq")
    items = [on_redis, on_rabbitmq]
    with without_rabbitmq(ci=""):
        conftest.pytest_collection_modifyitems(config, items)
        assert "RabbitMQ tests are left out" in (conftest.pytest_report_header() or "")
    assert (items, left_out) == ([on_redis], [on_rabbitmq])


def test_without_rabbitmq_ci_fails() -> None:
    with without_rabbitmq(ci="true"), pytest.raises(pytest.UsageError, match="may not be left out"):
        conftest.pytest_collection_modifyitems(SimpleNamespace(), [Item("rabbitmq")])
