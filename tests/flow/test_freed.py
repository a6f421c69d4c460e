"""What a turn has loaded is freed when the turn ends, and not only when Python looks for garbage in circles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from adjourn.schemas.items import Item
from adjourn.tasks.models.scripted import call, say
from tests.cases.tools import YES, asking, counting
from tests.world import Counters, scripted, world


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """How many items of any run are in memory."""
    return sum(isinstance(each, Item) for each in gc.get_objects())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", ["entry", "inline"])
def test_nothing_of_a_turn_lives_on(database_url: str, redis_url: str, way: str) -> None:
    fx = Counters()
    model = scripted([call("ask", x=1), call("count")], say("done"))
    with world(database_url, redis_url, asking(way, fx), counting("count", fx), model=model) as w:
        before = alive()
        run_id = w.start()
        assert alive() == before
        w.answer(w.the_action(run_id), YES)
        assert w.run(run_id).status == "completed"
        assert alive() == before
