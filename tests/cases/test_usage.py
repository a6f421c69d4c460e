"""Usage is counted once, however often a run waits."""

from __future__ import annotations

import pytest

from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import Usage
from adjourn.tasks.models.scripted import USAGE, call, say
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, YES, asking_twice
from tests.world import Counters, World, scripted


def recorded(w: World, run_id: str) -> Usage:
    """What the recorded responses say, summed up."""
    bodies = (item.body for item in w.items(run_id))
    return sum((body.usage for body in bodies if isinstance(body, ResponseItem)), Usage())


def times(count: int) -> Usage:
    """What so many requests of the scripted model use."""
    return sum([USAGE] * count, Usage())


@pytest.mark.parametrize("way", WAYS)
def test_usage_over_two_parks_is_that_of_the_requests_that_were_made(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking_twice(way, fx), model=scripted(call("ask_twice"), call("ask_twice"), say("done"), counters=fx))
    run_id = w.start()
    for answered in range(4):
        made = 1 + answered // 2
        assert (fx["model"], w.run(run_id).usage, recorded(w, run_id)) == (made, times(made), times(made))
        w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).status == "completed"
    assert (fx["model"], w.run(run_id).usage, recorded(w, run_id)) == (3, times(3), times(3))
