"""The database's clock, stopped, and moved by hand: every worker of the database reads it."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from adjourn.store.postgres.database import Database


class StoppedClock:
    """Stops the clock when it is made."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.now: datetime = db.one(sa.text("select adjourn.adjourn_now() as now"), {}).now
        self.advance(0)

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self._db.execute(
            sa.text(
                "create or replace function adjourn.adjourn_now() returns timestamptz language sql as "
                f"$$ select timestamptz '{self.now.isoformat()}' $$"
            ),
            {},
        )
