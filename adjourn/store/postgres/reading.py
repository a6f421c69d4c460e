"""Reads that survive a damaged row: what is sound is returned, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import quoted

T = TypeVar("T")


def read(db: Database, statement: sa.TextClause, params: Mapping[str, Any], load: Callable[[Sequence[Any]], T]) -> T:
    """The rows of a statement that only reads, loaded by `load`.

    `load` raises `ValueError` where an item that is not JSON hides those beside it. Then the statement is sent
    once more with every item in a string of its own.
    """
    try:
        return load(db.execute(statement, params, repeatable=True))
    except ValueError:
        return load(db.execute(quoted(statement), params, repeatable=True))
