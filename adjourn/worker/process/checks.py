"""What is looked at before a worker starts, so that what is missing is one clear line and no traceback."""

from __future__ import annotations

from typing import Final

import structlog

from adjourn.schemas.errors import ConfigurationError, StoreUnavailableError
from adjourn.store import migrations
from adjourn.store.postgres.database import Database
from adjourn.store.redis.connection import connect
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import PREFIX, Settings, redacted

log = structlog.get_logger(__name__)

EXIT_CONFIGURATION: Final = 2
"""The exit code of a program whose settings point nowhere."""


def check(settings: Settings) -> None:
    """Reach the database, Redis and the broker once. Raises `ConfigurationError`, which names the setting."""
    _check_database(settings)
    _check_redis(settings)
    _check_broker(settings)


def _check_database(settings: Settings) -> None:
    url = settings.database
    db = Database(url, pool_size=1)
    try:
        db.ping()
        current, head = migrations.current(db), migrations.head()
    except StoreUnavailableError as error:
        raise _unreachable("DATABASE_URL", url, error, "start PostgreSQL, or correct the URL") from None
    finally:
        db.dispose()
    if migrations.is_newer(current):
        # In the middle of a deploy. What newer workers have written is left to them, run by run.
        log.warning("the database was migrated by a newer version", at=current, known=head)
    elif current != head:
        found = f"is at migration {current}" if current else "has no tables of ours"
        raise ConfigurationError(
            PREFIX + "DATABASE_URL", f"the database at {redacted(url)} {found}, not {head}", "run `adjourn migrate`"
        )


def _check_redis(settings: Settings) -> None:
    url = settings.redis
    client = connect(url, max_connections=1)
    try:
        client.ping()
    except Exception as error:
        raise _unreachable("REDIS_URL", url, error, "start Redis or Valkey, or correct the URL") from None
    finally:
        client.close()


def _check_broker(settings: Settings) -> None:
    connection = wakeup_broker(settings).connection()
    try:
        connection.connect()
    except Exception as error:
        name = settings.broker_setting.removeprefix(PREFIX)
        raise _unreachable(name, settings.broker, error, "start the broker, or correct the URL") from None
    finally:
        connection.release()


def _unreachable(name: str, url: str, error: Exception, remedy: str) -> ConfigurationError:
    """Any failure to connect, of any driver, as one line."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ConfigurationError(PREFIX + name, f"cannot reach {redacted(url)} ({reason})", remedy)
