"""Brings a database to the schema that this version of the code needs.

Owns the schema's history (`versions/`). Does nothing on import; runs only when asked.

During a deploy, workers of the version before are still up, and restarted ones come up again: a migration keeps
that version working. It adds, and takes away only what the version before does not use any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from adjourn.store.postgres.database import Database, migration_engine

_LOCK: Final = 7_236_104_859_233_001
"""Advisory lock of migrations: any number that nobody else uses in the same database."""

# One migrates, the others wait here and then find nothing to do. The lock goes with the
# transaction, so a crash before the commit leaves neither a lock nor half a schema.
TAKE_TURN = sa.text(f"select pg_advisory_xact_lock({_LOCK})")

# A change of a table that somebody reads for long waits for that reader, and everybody else for the change. Then
# it fails, leaves nothing behind, and is to be tried again. Set after the turn is taken, which may take its time.
LIMIT_LOCKS = sa.text("select set_config('lock_timeout', :limit, true)")
LOCK_SECONDS: Final = 10

CREATE_SCHEMA = sa.text("create schema if not exists adjourn")

VERSION_TABLE = sa.text("select to_regclass('adjourn.alembic_version') is not null as there")
VERSION = sa.text("select version_num from adjourn.alembic_version")


def upgrade(database_url: str, revision: str = "head") -> None:
    """Bring the database to the newest schema, or to that of `revision`, in one transaction.

    Safe to call again and from many processes at once. A database that a newer version has migrated is
    left as it is. Raises `StoreUnavailableError` when the database cannot be reached, or somebody holds a table
    for so long that everybody would have to wait: then try again.
    """
    with migration_engine(database_url) as engine, engine.begin() as connection:
        connection.execute(TAKE_TURN)
        connection.execute(LIMIT_LOCKS, {"limit": f"{LOCK_SECONDS}s"})
        connection.execute(CREATE_SCHEMA)
        migrated = connection.execute(VERSION_TABLE).one().there
        if migrated and is_newer(connection.execute(VERSION).scalar()):
            return
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def current(db: Database) -> str | None:
    """The schema version of a database; `None` if it was never migrated."""
    if not db.one(VERSION_TABLE, {}).there:
        return None
    return str(db.one(VERSION, {}).version_num)


def head() -> str:
    """The schema version that this code needs."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def is_newer(revision: str | None) -> bool:
    """Whether a newer version of this code brought a database to `revision`: it is none that this version knows."""
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    return revision is not None and revision not in known


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
