"""What tests of the store ask for: a database of their own behind the store's own door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adjourn.store.postgres.database import Database
from tests.store.steps import Steps


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture
def steps(db: Database) -> Steps:
    """The steps of a run, with everything filled in that a test does not care for."""
    return Steps(db)
