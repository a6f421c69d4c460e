"""Worlds for the cases. Each is checked when its test is over (`tests.cases.checks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from adjourn import App, Tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.tasks.blocks.block import Block
from tests.cases.checks import check
from tests.cases.crashes import Outage
from tests.conftest import Deploy
from tests.deployment import QUICK, Deployment
from tests.world import World, world

Build = Callable[..., World]
Plant = Callable[..., World]


@pytest.fixture
def build(database_url: str, redis_url: str) -> Iterator[Build]:
    """Makes the world of a test: `build(*tools, model=…)`. All worlds of one test are on one database."""
    made: list[World] = []
    with ExitStack() as stack:

        def make(*tools: Tool[..., Any], model: Any, tuning: Tuning = Tuning(), **agent: Any) -> World:
            made.append(
                stack.enter_context(world(database_url, redis_url, *tools, model=model, tuning=tuning, **agent))
            )
            return made[-1]

        yield make
        for each in made:
            assert not each.wakeups.waiting, "a wake-up was left undelivered"
        if made:
            check(made[-1])


@pytest.fixture
def plant(database_url: str, redis_url: str) -> Iterator[Plant]:
    """Makes the world of a test of blocks: `plant(*blocks)`. It is checked like those of `build`."""
    made: list[World] = []
    with ExitStack() as stack:

        def make(*blocks: Block) -> World:
            made.append(World(App(blocks=blocks), database_url, redis_url))
            stack.callback(made[-1].close)
            return made[-1]

        yield make
        for each in made:
            assert not each.wakeups.waiting, "a wake-up was left undelivered"
        if made:
            check(made[-1])


@pytest.fixture
def outage() -> Outage:
    """Kills a world's process at a write of the test's choice."""
    return Outage()


@pytest.fixture
def live(deploy: Deploy) -> Iterator[Deployment]:
    """A deployment of `tests.cases.held_app`, without any worker yet."""
    # Its tests count what was done: a lease must outlast the pauses of a busy machine.
    tuning = {**QUICK["tuning"], "lease_seconds": 4}
    with deploy(app="tests.cases.held_app:app", concurrency=4, tuning=tuning) as made:
        yield made
