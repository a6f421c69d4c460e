"""What a turn has loaded is freed when the turn ends, and not only when Python's cyclic collector runs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from adjourn.schemas.records.items import Item, StoredItem
from adjourn.schemas.records.record import Record
from adjourn.tasks.engine.history import History
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.cases.tools import YES, asking, counting
from tests.world import Counters, World, world

LOADED = (Record, Item, StoredItem, History)
"""Everything that a turn reads from the store: item bodies, actions and runs are records."""
ALWAYS_LOADED = {"MessageItem", "StoredItem", "History", "Run"}
"""A turn cannot work without these: proof that `alive` counts what turns load today."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    """How many objects of each loaded type are in memory."""
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, LOADED))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", ["entry", "inline"])
def test_nothing_of_a_turn_lives_on(database_url: str, redis_url: str, way: str) -> None:
    fx = Counters()
    during: list[Counter[str]] = []
    model = ScriptedModel(
        [[call("ask", x=1), call("count")], say("done")], on_request=lambda request: during.append(alive())
    )
    with world(database_url, redis_url, asking(way, fx), counting("count", fx), model=model) as w:

        def freed() -> bool:
            w.wakeups.published.clear()  # the test's own
            return alive() == before

        play(w, lambda: True)  # the agent keeps what it makes once, such as the specifications of its tools
        during.clear()
        w.wakeups.published.clear()
        before = alive()
        play(w, freed)
    assert len(during) == 2
    for each in during:
        assert set(each - before) >= ALWAYS_LOADED, "the test does not count what a turn loads"


def play(w: World, freed: Callable[[], bool]) -> None:
    run_id = w.start()
    assert freed()
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).status == "completed"
    assert freed()
