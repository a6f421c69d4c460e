"""The door to Postgres: one statement, one commit; and what becomes of broken connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from adjourn.schemas.errors import AdjournError, ConfigurationError, StoreUnavailableError
from adjourn.schemas.internal.state import Park
from adjourn.store.migrations import upgrade
from adjourn.store.postgres.database import Database
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.store.steps import Steps, both, output, response
from tests.waiting import wait_until

SLEEPERS = "from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
PID = sa.text("select pg_backend_pid() as pid")


@contextmanager
def database(url: str, **options: Any) -> Iterator[Database]:
    db = Database(url, **options)
    try:
        yield db
    finally:
        db.dispose()


@contextmanager
def counted(db: Database) -> Iterator[list[str]]:
    """The statements sent meanwhile."""
    sent: list[str] = []

    db.watch = sent.append
    yield sent
    db.watch = None


def admin(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def cycle(steps: Steps) -> None:
    """A run with one gate, from its start to its end."""
    run_id = steps.start().run_id
    claim = steps.claim(run_id)
    steps.write(claim, response("call_1"), turns=1)
    (action_id,), _ = steps.open(claim, becomes=Park(), call_id="call_1")
    steps.answer(action_id)
    claim = steps.claim(run_id)
    steps.write(claim, output())
    steps.end(claim)


def test_a_cycle_with_one_gate_is_eight_statements_and_eight_commits(database_url: str) -> None:
    with database(database_url, pool_size=1) as db, admin(database_url) as watcher:
        steps = Steps(db)
        cycle(steps)
        before = _commits(db, watcher)
        with counted(db) as sent:
            cycle(steps)
        after = _commits(db, watcher)
    assert len(sent) == 8
    assert after - before == 8 + 1, "eight of the cycle, and the one that asked for the count"


def _commits(db: Database, watcher: psycopg.Connection[Any]) -> int:
    """Commits of this database until the flush that this asks for; the watcher's own are not flushed meanwhile."""
    db.execute(sa.text("select pg_stat_force_next_flush()"), {})
    watcher.execute("set stats_fetch_consistency = none")
    row = watcher.execute("select xact_commit from pg_stat_database where datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def test_statements_are_prepared_and_run_in_read_committed(database_url: str) -> None:
    with database(database_url, pool_size=1) as db:
        steps = Steps(db)
        cycle(steps)
        with counted(db) as sent:
            cycle(steps)
        prepared = db.execute(sa.text("select generic_plans, custom_plans from pg_prepared_statements"), {})
        settings = {
            name: db.one(sa.text("select current_setting(:name) as value"), {"name": name}).value
            for name in ("transaction_isolation", "timezone", "jit", "application_name")
        }
    planned_once = [row for row in prepared if row.generic_plans > 1 and not row.custom_plans]
    assert len(planned_once) == len(set(sent)) == 6
    assert settings == {
        "transaction_isolation": "read committed",
        "timezone": "UTC",
        "jit": "off",
        "application_name": "adjourn",
    }


def test_a_connection_that_was_closed_while_idle_is_replaced_before_anything_is_sent(database_url: str) -> None:
    with database(database_url, pool_size=3) as db, admin(database_url) as killer:
        steps = Steps(db)
        claim = steps.claimed()
        for _ in range(3):
            killer.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
                "where application_name = 'adjourn' and datname = current_database()"
            )
            steps.write(claim, output())
        assert steps.kinds(claim.run.id) == ["message", "output", "output", "output"]


def test_a_connection_that_breaks_under_a_statement_is_an_error_unless_it_is_repeatable(database_url: str) -> None:
    suicide = sa.text("select pg_terminate_backend(pg_backend_pid())")
    with database(database_url) as db:
        with counted(db) as sent, pytest.raises(StoreUnavailableError) as caught:
            db.execute(suicide, {})
        assert len(sent) == 1
        assert caught.value.store == "PostgreSQL"
        with counted(db) as sent, pytest.raises(StoreUnavailableError):
            db.execute(suicide, {}, repeatable=True)
        assert len(sent) == 2
        assert db.one(PID, {}).pid


def test_a_repeatable_statement_survives_one_break(database_url: str) -> None:
    sleeps_unless_let_through = sa.text("""
        select 'through' as came,
            pg_sleep(case when exists (select from adjourn.meta where key = 'go') then 0 else 60 end)
    """)
    with database(database_url) as db, admin(database_url) as killer:

        def kill_the_sleeper() -> None:
            wait_until(lambda: killer.execute(f"select pid {SLEEPERS}").fetchall(), what="a statement that sleeps")
            killer.execute("insert into adjourn.meta values ('go', '')")
            killer.execute(f"select pg_terminate_backend(pid) {SLEEPERS}")

        came, _ = both(lambda: db.one(sleeps_unless_let_through, {}, repeatable=True).came, kill_the_sleeper)
    assert came == "through"


def test_a_server_that_is_not_there(tmp_path: Any) -> None:
    url = f"postgresql://someone:hunter2@/nothing?host={tmp_path}"
    with database(url) as db, pytest.raises(StoreUnavailableError) as caught:
        db.ping()
    message = str(caught.value)
    assert "hunter2" not in message
    assert "\n" not in message
    assert isinstance(caught.value, AdjournError)


def test_a_wrong_url_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Database("no url at all: hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError):
        Database("mysql://localhost/x")


def test_a_pool_that_is_used_up_is_an_error(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adjourn.store.postgres.database._POOL_SECONDS", 0.01)
    refused = pytest.raises(StoreUnavailableError, match="all connections stayed in use")
    with database(database_url, pool_size=1) as db, db.engine.connect(), refused:
        db.ping()


def test_new_connections_that_are_closed_at_once_are_an_outage(database_url: str) -> None:
    """As from a server that is restarted while it starts: the pool tries again, and gives up in its own words."""
    with database(database_url) as db:

        def closed(*_: object) -> None:
            raise sa.exc.DisconnectionError

        sa.event.listen(db.engine, "checkout", closed)
        with pytest.raises(StoreUnavailableError, match="closed at once"):
            db.ping()
        sa.event.remove(db.engine, "checkout", closed)
        db.ping()


def test_the_store_comes_back_with_its_server(own_servers: Callable[..., EmbeddedServers]) -> None:
    servers = own_servers()
    upgrade(servers.database_url)
    with database(servers.database_url) as db:
        key = db.signing_key()
        servers.stop()
        assert db.signing_key() == key
        with pytest.raises(StoreUnavailableError):
            db.ping()
        servers.start()
        db.ping()


def test_the_signing_key_is_the_database_s_own(database_url: str, empty_database_url: str) -> None:
    upgrade(empty_database_url)
    with database(database_url) as one, database(database_url) as same, database(empty_database_url) as other:
        assert len(one.signing_key()) == 32
        assert one.signing_key() == same.signing_key()
        assert one.signing_key() != other.signing_key()
