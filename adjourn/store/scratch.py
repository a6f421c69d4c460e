"""Databases that tests make and throw away: fresh ones from a template, a clock that can be moved, and a
process that dies at a write.

Nothing that serves a deployment may import this. It makes and drops databases by name, so it keeps to names
that begin with its own prefix, and it moves the clock of no other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.engine import make_url

from adjourn.schemas.errors import ConfigurationError
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.migrations import head, upgrade
from adjourn.store.postgres.database import Database
from adjourn.store.scratch_reset import Reset

PREFIX: Final = "adjourn_scratch_"
_LOCK: Final = 7_236_104_859_233_002
"""Advisory lock on the making of the template, next to that of the migrations."""

MOST_ROWS: Final = 5_000
"""A database that has had more rows than this is dropped: until a vacuum, statements read past the deleted ones."""

# Waits for the end of each, or the database could not be renamed.
DISCONNECT: Final = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()
"""
NAME = sa.text("select current_database() as name")
AHEAD = sa.text("select extract(epoch from adjourn.adjourn_now() - clock_timestamp())::float8 as seconds")
DUE = sa.text("""
select id, due, updated_at, parent_run_id from adjourn.runs
where status = 'queued' and due is not null and due_at <= adjourn.adjourn_now()
order by due_at, id
""")


class ScratchDatabases:
    """Makes databases with the schema of today on one PostgreSQL, by copying a template that is migrated once.

    A database that was used is emptied and used again.

    Any number of processes may do so at once. `admin_url` names any database of the server, and a role that
    may create others. Raises psycopg's errors: a test that has no database has no use for a nicer one.
    """

    def __init__(self, admin_url: str) -> None:
        self._url = make_url(admin_url)
        self._admin = psycopg.connect(
            self._url.set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
        )
        self._template = f"{PREFIX}template_{head()}"
        self._reset: Reset | None = None
        self._idle: list[_Copy] = []

    def close(self) -> None:
        """Drop the databases that wait for their next use, and disconnect."""
        while self._idle:
            self._drop(self._idle.pop().name)
        self._admin.close()

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a migrated, empty database that nobody else has.

        At the end it is emptied for its next use, under another name: a process that is left over finds no database
        at this URL. A database whose schema or settings were changed is dropped.
        """
        copy = self._idle.pop() if self._idle else self._new_copy()
        try:
            yield self._url_of(copy.name)
        finally:
            self._take_back(copy)

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The URL of a database without any schema, for tests of the migrations themselves."""
        with self._made("CREATE DATABASE {}") as url:
            yield url

    @contextmanager
    def _made(self, statement: str, *names: str) -> Iterator[str]:
        name = _new_name()
        self._run(statement, name, *names)
        try:
            yield self._url_of(name)
        finally:
            self._drop(name)

    def _new_copy(self) -> _Copy:
        self._make_template_once()
        name = _new_name()
        self._run("CREATE DATABASE {} TEMPLATE {}", name, self._template)
        if self._reset is None:
            with self._connected(name) as connection:
                self._reset = Reset.of(connection)
        return _Copy(name)

    def _take_back(self, used: _Copy) -> None:
        copy = _Copy(_new_name())
        try:
            self._admin.execute(DISCONNECT, [used.name])
            self._run("ALTER DATABASE {} RENAME TO {}", used.name, copy.name)
        except psycopg.Error:
            self._drop(used.name)  # with whoever is still connected to it
            return
        rows = self._emptied(copy.name)
        if rows is None or used.rows + rows > MOST_ROWS:
            self._drop(copy.name)
        else:
            self._idle.append(copy._replace(rows=used.rows + rows))

    def _emptied(self, name: str) -> int | None:
        """How many rows a database had, which has none any more; None if it cannot be made as new."""
        assert self._reset is not None, "there is no used copy without a new one before it"
        try:
            with self._connected(name) as connection:
                return self._reset.apply(connection)
        except psycopg.Error:
            return None

    def _drop(self, name: str) -> None:
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        url = self._url.set(drivername="postgresql", database=name)
        return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)

    def _make_template_once(self) -> None:
        self._admin.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            if self._admin.execute("SELECT FROM pg_database WHERE datname = %s", [self._template]).rowcount:
                return
            # Renamed when it is whole, so that a migration that fails leaves no template behind.
            unfinished = f"{self._template}_unfinished"
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", unfinished)
            self._run("CREATE DATABASE {}", unfinished)
            upgrade(self._url_of(unfinished))
            self._run("ALTER DATABASE {} RENAME TO {}", unfinished, self._template)
        finally:
            self._admin.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])

    def _run(self, statement: str, *names: str) -> None:
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)


class _Copy(NamedTuple):
    """A copy of the template."""

    name: str
    rows: int = 0
    """How many it has had so far, which PostgreSQL still keeps until it is vacuumed."""


def _new_name() -> str:
    return PREFIX + uuid.uuid4().hex


def move_clock(db: Database, seconds: float) -> None:
    """Move the clock of a scratch database on, from where it is, for every statement of every connection.

    Raises `ConfigurationError` for a database that is not from here: its clock is real.
    """
    name = str(db.one(NAME, {}).name)
    if not name.startswith(PREFIX):
        problem = f"{name!r} is none that a test made, so its clock stays"
        raise ConfigurationError("database", problem, "use a fresh one")
    ahead = db.one(AHEAD, {}).seconds + seconds
    db.execute(
        sa.text(
            "create or replace function adjourn.adjourn_now() returns timestamptz language sql as "
            f"$$ select clock_timestamp() + interval '{ahead:f} seconds' $$"
        ),
        {},
    )


class DueRun(NamedTuple):
    """A run that a worker would take now."""

    wakeup: WakeUp
    updated_at: datetime
    parent_run_id: str | None


def due(db: Database) -> list[DueRun]:
    """The runs that are due now, oldest first: what all wake-ups that were ever published come to, without a broker."""
    rows = db.execute(DUE, {}, repeatable=True)
    return [DueRun(WakeUp(run_id=row.id, due=row.due), row.updated_at, row.parent_run_id) for row in rows]
