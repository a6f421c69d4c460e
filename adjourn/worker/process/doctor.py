"""Looks a deployment over: what is configured, what can be reached, what is set so that it will hurt.

Each look is a finding, whatever the others find. Changes nothing and starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, Literal

from adjourn.schemas.errors import AdjournError
from adjourn.schemas.records.record import Record
from adjourn.store import migrations
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.health import postgres_health, redis_health
from adjourn.store.redis.connection import connect
from adjourn.tasks.host.wakeups import QUEUES, RESUME_QUEUE
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.deployment import find_deployment
from adjourn.worker.config.settings import Settings, redacted, unknown_variables
from adjourn.worker.embedded.servers import DATA_DIR_VARIABLE
from adjourn.worker.process.assembly import load_app

OLDEST_POSTGRES: Final = 15


class Finding(Record):
    """One thing that was looked at."""

    what: str
    status: Literal["ok", "warning", "wrong"]
    detail: str


def examine(app: str | None = None) -> Iterator[Finding]:
    """Findings about the deployment of this environment, one by one as they are made."""
    for name in sorted({*unknown_variables(os.environ)} - {DATA_DIR_VARIABLE}):
        yield Finding(
            what="settings", status="warning", detail=f"{name} is no setting of ours; look for a typing mistake"
        )
    try:
        settings = find_deployment(app=app)
    except AdjournError as error:
        yield Finding(what="settings", status="wrong", detail=str(error))
        return
    for what, look in LOOKS.items():
        try:
            yield from look(settings)
        except AdjournError as error:
            yield Finding(what=what, status="wrong", detail=str(error))


def _database(settings: Settings) -> Iterator[Finding]:
    db = Database(settings.database, pool_size=1, application_name="adjourn-doctor")
    try:
        health = postgres_health(db)
        fit = health.major >= OLDEST_POSTGRES
        needed = "" if fit else f"; {OLDEST_POSTGRES} or newer is needed"
        yield Finding(
            what="database",
            status="ok" if fit else "wrong",
            detail=f"PostgreSQL {health.version} at {redacted(settings.database)}{needed}",
        )
        current, head = migrations.current(db), migrations.head()
        if current == head:
            yield Finding(what="migrations", status="ok", detail=f"at {head}, the newest")
        elif migrations.is_newer(current):
            yield Finding(what="migrations", status="ok", detail=f"at {current}, of a newer version than this one")
        else:
            found = f"at {current}" if current else "none was made"
            yield Finding(
                what="migrations", status="wrong", detail=f"{found}, the newest is {head}; run `adjourn migrate`"
            )
    finally:
        db.dispose()


def _redis(settings: Settings) -> Iterator[Finding]:
    with closing(connect(settings.redis, max_connections=1)) as client:
        health = redis_health(client)
    yield Finding(what="redis", status="ok", detail=f"{health.server} {health.version} at {redacted(settings.redis)}")
    if health.eviction != "noeviction":
        yield Finding(
            what="redis eviction",
            status="wrong",
            detail=f"maxmemory-policy is {health.eviction}, which throws messages away; set noeviction",
        )
    if settings.broker_is_redis and not health.append_only:
        yield Finding(
            what="redis persistence",
            status="warning",
            detail="appendonly is off: answers still on the queue are lost if it restarts; set appendonly yes",
        )


def _broker(settings: Settings) -> Iterator[Finding]:
    broker = wakeup_broker(settings)
    try:
        with broker.connection() as connection:
            channel: Any = connection.channel()
            declared: dict[str, Any] = {
                name: broker.queue(name)(channel).queue_declare() for name in (*QUEUES.values(), RESUME_QUEUE)
            }
    except Exception as error:  # of whichever driver the URL brought in
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0]
        yield Finding(
            what="broker",
            status="wrong",
            detail=f"cannot reach {redacted(settings.broker)} ({problem}); correct {settings.broker_setting}",
        )
        return
    yield Finding(what="broker", status="ok", detail=redacted(settings.broker))
    depths = ", ".join(f"{name} {queue.message_count}" for name, queue in declared.items())
    yield Finding(what="queues", status="ok", detail=f"waiting: {depths}")


def _app(settings: Settings) -> Iterator[Finding]:
    if settings.app is None:
        yield Finding(what="app", status="warning", detail="ADJOURN_APP is not set; a worker needs it, or --app")
        return
    app = load_app(settings.app)
    yield Finding(what="app", status="ok", detail=f"{settings.app} with {', '.join(app.blocks) or 'nothing'}")


LOOKS: Final[dict[str, Callable[[Settings], Iterator[Finding]]]] = {
    "database": _database,
    "redis": _redis,
    "broker": _broker,
    "app": _app,
}
