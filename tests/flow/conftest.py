"""What the tests of blocks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from adjourn import App
from adjourn.schemas.internal.tuning import Tuning
from adjourn.tasks.blocks.block import Block
from tests.world import Counters, World

Plant = Callable[..., World]


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def plant(database_url: str, redis_url: str) -> Iterator[Plant]:
    """Makes worlds whose app has these blocks: `plant(*blocks)`. All worlds of one test are on one database."""
    made: list[World] = []

    def make(*blocks: Block, tuning: Tuning = Tuning()) -> World:
        made.append(World(App(blocks=blocks), database_url, redis_url, tuning))
        return made[-1]

    yield make
    for each in made:
        each.close()
