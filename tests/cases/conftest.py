"""Worlds for the cases. Each is checked when its test is over (`tests.cases.checks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from adjourn import Tool
from adjourn.schemas.policy import Policy
from tests.cases.checks import check
from tests.cases.crashes import Outage
from tests.deployment import Deployment, deployment
from tests.processes import ChildProcess
from tests.world import World, world

Build = Callable[..., World]


@pytest.fixture
def build(database_url: str, redis_url: str) -> Iterator[Build]:
    """Makes the world of a test: `build(*tools, model=…)`. All worlds of one test are on one database."""
    made: list[World] = []
    with ExitStack() as stack:

        def make(*tools: Tool[..., Any], model: Any, policy: Policy = Policy(), **agent: Any) -> World:
            made.append(
                stack.enter_context(world(database_url, redis_url, *tools, model=model, policy=policy, **agent))
            )
            return made[-1]

        yield make
        for each in made:
            assert not each.hints.waiting, "a hint was left undelivered"
        if made:
            check(made[-1])


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    """Kills a world's process at a write of the test's choice."""
    return Outage(monkeypatch)


@pytest.fixture
def live(
    process: Callable[..., ChildProcess], database_url: str, redis_url: str, tmp_path: Path
) -> Iterator[Deployment]:
    """A deployment of `tests.cases.held_app`, in which the dead are found while a test can wait."""
    with deployment(
        process,
        tmp_path,
        database_url=database_url,
        redis_url=redis_url,
        app="tests.cases.held_app:app",
        concurrency=4,
        policy=Policy(lease_seconds=2, sweep_seconds=0.2),
    ) as made:
        yield made
