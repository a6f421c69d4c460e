"""Scratch databases: whatever a test leaves behind, the next one finds a database that is as new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.store import scratch
from adjourn.store.postgres.answers import dead_letters
from adjourn.store.postgres.database import Database
from adjourn.store.scratch import AHEAD, ScratchDatabases, move_clock
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.conftest import NOT_SHARED
from tests.store.steps import Steps

OID = sa.text("select oid from pg_database where datname = current_database()")
TABLES = sa.text("select oid::regclass::text as name from pg_class where relkind = 'r' and oid >= 16384 order by oid")
SEQUENCES = sa.text("select sequencename as name, last_value from pg_sequences order by 1")

Use = Callable[[Database], object]


@pytest.fixture
def own(servers: EmbeddedServers) -> Iterator[ScratchDatabases]:
    made = ScratchDatabases(servers.database_url)
    yield made
    made.close()


def used(own: ScratchDatabases, use: Use) -> int:
    """Use a database and give it back. Returns its oid, which it keeps under all its names."""
    with own.fresh() as url:
        db = Database(url)
        use(db)
        oid = int(db.one(OID, {}).oid)
        db.dispose()
    return oid


def contents(db: Database) -> dict[str, Any]:
    """All that a deployment changes in its database."""
    names = [row.name for row in db.execute(TABLES, {})]
    assert "adjourn.runs" in names
    found: dict[str, Any] = {name: db.execute(sa.text(f"select * from {name}"), {}) for name in names}
    found["sequences"] = db.execute(SEQUENCES, {})
    found["clock"] = round(db.one(AHEAD, {}).seconds)
    return found


def statement(text: str) -> Use:
    return lambda db: db.execute(sa.text(text), {})


def leave_rows(db: Database) -> None:
    steps = Steps(db)
    steps.parked()
    steps.end(steps.claimed())
    dead_letters.add(db, status="malformed", detail="junk", body=b"junk", channel="test")


@pytest.mark.parametrize(
    "use",
    [
        leave_rows,
        lambda db: move_clock(db, 3_600),
        statement("select nextval('adjourn.build_places')"),
        statement("insert into adjourn.builds values ('b', 7, adjourn.adjourn_now())"),
    ],
    ids=["rows", "clock", "sequence", "build"],
)
def test_what_a_deployment_does_is_undone(own: ScratchDatabases, use: Use) -> None:
    seen = []

    def look_and_use(db: Database) -> None:
        seen.append(contents(db))
        use(db)
        assert contents(db) != seen[-1]

    assert used(own, look_and_use) == used(own, look_and_use), "the database was used twice"
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "change",
    [
        "create table adjourn.more (x int)",
        "create schema more",
        "create index more on adjourn.runs (agent)",
        "drop index adjourn.builds_order",
        "alter table adjourn.runs add column more int",
        "alter table adjourn.runs alter column agent drop not null",
        "alter table adjourn.runs alter column agent set default 'x'",
        "alter table adjourn.runs add constraint more check (agent <> '')",
        "create function adjourn.more() returns int language sql as 'select 1'",
        "create view adjourn.more as select 1 as one",
        "create rule more as on delete to adjourn.runs do instead nothing",
        "delete from adjourn.meta",
        "update adjourn.meta set value = 'another'",
        "update adjourn.alembic_version set version_num = 'another'",
    ],
)
def test_a_database_that_was_changed_otherwise_is_not_used_again(own: ScratchDatabases, change: str) -> None:
    changed = used(own, statement(change))
    assert used(own, contents) != changed


def test_a_setting_of_the_database_goes_with_it(own: ScratchDatabases) -> None:
    def set_it(db: Database) -> None:
        name = db.one(sa.text("select current_database() as name"), {}).name
        db.execute(sa.text(f"alter database {name} set work_mem = '1MB'"), {})

    changed = used(own, set_it)
    assert used(own, contents) != changed


def test_whoever_is_left_over_does_not_come_back(own: ScratchDatabases) -> None:
    with own.fresh() as url:
        left_over = Database(url)
        left_over.ping()
        plain = psycopg.connect(url.replace("+psycopg", ""))
        plain.execute("lock table adjourn.runs")  # and never commits
    with own.fresh() as next_url:
        assert next_url != url
        Steps(db := Database(next_url)).start()
        db.dispose()
        with pytest.raises(psycopg.OperationalError, match=r"terminating connection|closed"):
            plain.execute("select 1")
        with pytest.raises(StoreUnavailableError, match="does not exist"):
            left_over.ping()
    left_over.dispose()


def test_a_database_that_had_many_rows_is_dropped(own: ScratchDatabases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_ROWS", 20)
    oids = [used(own, leave_rows) for _ in range(4)]
    assert len(set(oids)) > 1
    assert len(set(oids)) < len(oids)


def test_nothing_is_left_when_all_is_over(servers: EmbeddedServers) -> None:
    own = ScratchDatabases(servers.database_url)
    oids = {used(own, leave_rows), used(own, statement("create schema more")), used(own, leave_rows)}
    own.close()
    with psycopg.connect(servers.database_url.replace("+psycopg", "")) as admin:
        there = {row[0] for row in admin.execute("select oid::bigint from pg_database")}
    assert there.isdisjoint(oids)


@pytest.mark.parametrize("command", NOT_SHARED)
def test_the_shared_redis_refuses_what_would_disturb_other_tests(redis_url: str, command: str) -> None:
    with redis.Redis.from_url(redis_url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(
            *command.split("|"), *{"swapdb": ("0", "1"), "config|set": ("save", "")}.get(command, ())
        )
