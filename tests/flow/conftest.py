"""What the tests of blocks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from adjourn import App
from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.postgres.store import PostgresChildren
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


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the process that ends a run die right after: nobody is notified, and nothing is closed."""
    seq_of = PostgresChildren.seq_of

    def cut(run_id: str) -> None:
        monkeypatch.setattr(PostgresChildren, "seq_of", lambda store, id: None if id == run_id else seq_of(store, id))

    return cut
