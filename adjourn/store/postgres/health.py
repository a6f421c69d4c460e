"""What the two servers say about themselves, for whoever checks a deployment. Reads; judges nothing."""

from __future__ import annotations

import redis
import sqlalchemy as sa

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.record import Record
from adjourn.store.postgres.database import Database

POSTGRES = sa.text(
    "select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major"
)


class PostgresHealth(Record):
    """Of PostgreSQL."""

    version: str
    major: int


class RedisHealth(Record):
    """Of Redis, or of Valkey, which calls itself by both names."""

    server: str
    version: str
    eviction: str
    """`maxmemory-policy`: what is thrown away when memory is short."""
    append_only: bool
    """Whether it writes its append-only file, and so keeps what is on the queues over a restart."""


def postgres_health(db: Database) -> PostgresHealth:
    """Raises `StoreUnavailableError`."""
    row = db.one(POSTGRES, {}, repeatable=True)
    return PostgresHealth(version=row.version, major=row.major)


def redis_health(client: redis.Redis) -> RedisHealth:
    """Asks by INFO, which hosted servers allow where they forbid CONFIG. Raises `StoreUnavailableError`."""
    try:
        said = client.info()
    except redis.RedisError as error:
        raise StoreUnavailableError("Redis", str(error)) from error
    return RedisHealth(
        server=said.get("server_name", "redis"),
        version=said.get("valkey_version", said["redis_version"]),
        eviction=said["maxmemory_policy"],
        append_only=bool(said["aof_enabled"]),
    )
