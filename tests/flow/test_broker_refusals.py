"""A Redis that answers with an error and not with an end of the connection.

It does so when it has become a replica, is loading its data, or is out of memory.
"""

from __future__ import annotations

import pytest

from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.waiting import LIMIT_SECONDS, wait_until

LOST = "re-establish connection"


def blocked(d: Deployment) -> list[int]:
    """Connections of this deployment on which somebody waits for a message."""
    db = str(d.redis.connection_pool.connection_kwargs["db"])
    return [int(each["id"]) for each in d.redis.client_list() if each["db"] == db and "b" in each["flags"]]


@pytest.mark.parametrize("times", [1, 3])
def test_a_redis_that_refuses_is_asked_again(deploy: Deploy, times: int) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        for time in range(1, times + 1):
            wait_until(lambda: len(blocked(d)) > 1, what="readers of the wake-ups and of the answers")
            for connection in blocked(d):
                d.redis.client_unblock(connection, error=True)
            wait_until(lambda time=time: worker.log.count(LOST) >= time, what="the loss")
        run = d.client.start("asker", "go")
        d.client.wait(run.id, until=("parked",), timeout=LIMIT_SECONDS)
        assert worker.exit_code is None
