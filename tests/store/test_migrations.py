"""Migrations: twice, at the same time, and half-way."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.store import migrations
from adjourn.store.postgres.database import Database
from tests.golden.test_two_versions import NEXT, migrate_to_next
from tests.processes import ChildProcess
from tests.store.steps import Steps

UPGRADE = "import sys; from adjourn.store.migrations import upgrade; upgrade(sys.argv[1])"


def test_upgrade_brings_a_database_to_the_head_and_again_changes_nothing(empty_database_url: str) -> None:
    db = Database(empty_database_url)
    assert migrations.current(db) is None
    migrations.upgrade(empty_database_url)
    assert migrations.current(db) == migrations.head()
    key = db.signing_key()
    Steps(db).start(run_id="run-1")
    migrations.upgrade(empty_database_url)
    assert migrations.current(db) == migrations.head()
    assert (Steps(db).run("run-1").status, Database(empty_database_url).signing_key()) == ("queued", key)
    db.dispose()


def test_many_processes_upgrade_at_once(empty_database_url: str, process: Callable[..., ChildProcess]) -> None:
    children = [process([sys.executable, "-c", UPGRADE, empty_database_url]) for _ in range(4)]
    assert [child.wait() for child in children] == [0, 0, 0, 0]
    db = Database(empty_database_url)
    assert migrations.current(db) == migrations.head()
    assert len(db.signing_key()) == 32
    db.dispose()


def test_an_upgrade_that_fails_leaves_nothing_behind(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("create schema adjourn")
        admin.execute("create table adjourn.items (mine int)")
        with pytest.raises(Exception, match="already exists"):
            migrations.upgrade(empty_database_url)
        assert _tables(admin) == ["items"]
        admin.execute("drop table adjourn.items")
        migrations.upgrade(empty_database_url)
        assert "runs" in _tables(admin)


def test_an_upgrade_does_not_keep_everybody_waiting_for_somebody_who_reads(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.05)
    migrations.upgrade(empty_database_url)
    url = empty_database_url.replace("+psycopg", "")
    with psycopg.connect(url) as reader:
        reader.execute("select count(*) from adjourn.runs")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            migrate_to_next(empty_database_url, tmp_path, monkeypatch)
    shutil.rmtree(tmp_path / "migrations")
    migrate_to_next(empty_database_url, tmp_path, monkeypatch)
    db = Database(empty_database_url)
    assert migrations.current(db) == NEXT
    db.dispose()


def _tables(admin: psycopg.Connection[Any]) -> list[str]:
    rows = admin.execute("select table_name from information_schema.tables where table_schema = 'adjourn'").fetchall()
    return sorted(name for (name,) in rows)


def test_upgrade_of_a_server_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(StoreUnavailableError):
        migrations.upgrade(f"postgresql://someone@/nothing?host={tmp_path}")


def test_a_url_with_percent_signs(empty_database_url: str) -> None:
    """Alembic's configuration would read them as its own."""
    separator = "&" if "?" in empty_database_url else "?"
    migrations.upgrade(f"{empty_database_url}{separator}application_name=a%20b")
