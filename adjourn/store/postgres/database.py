"""The door to Postgres: a pool of autocommit connections, and one way to run a statement.

Owns connections, their settings, and what becomes of a broken one. Knows no table. Every
statement is its own transaction: nothing here begins, commits or rolls back, so a step of a run
is either wholly there or not at all, and costs one round trip.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.rows import namedtuple_row
from psycopg.types.array import ListBinaryDumper
from sqlalchemy import event, exc
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.pool import NullPool

from adjourn.schemas.errors import ConfigurationError, StoreUnavailableError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.errors import ContradictedError

_CONNECT_SECONDS: Final = 10
_POOL_SECONDS: Final = 30
"""How long a thread waits for a connection when all are in use."""
_STATEMENT_MS: Final = 30_000
"""No statement of ours takes a second; one that takes this long is stuck behind something."""

_SESSION: Final = {
    # Every statement here is written for READ COMMITTED: a row that another has just changed is
    # read again, not refused.
    "default_transaction_isolation": "read\\ committed",
    "timezone": "UTC",
    "statement_timeout": str(_STATEMENT_MS),
    # All statements look rows up by index. Planning one again for each set of values costs more
    # than running it; and a plan made while the tables were empty must not stay a sequential scan.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}
_KEEPALIVE: Final = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

_STATEMENTS_KEPT: Final = 256
"""Several times as many as the store has."""
_DIALECT: Final = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_ADAPTERS: Final = psycopg.adapt.AdaptersMap(psycopg.adapters)
# Bodies of items go as arrays of JSON texts. In the text format psycopg escapes every quote of theirs in Python.
_ADAPTERS.register_dumper(list, ListBinaryDumper)
_INNER_TIME: Final = psycopg.adapters.get_loader(psycopg.adapters.types["timestamptz"].oid, psycopg.pq.Format.TEXT)
EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""Stand for a stored time that Python has no value for: `infinity`, a year before 1 or after 9999."""


class _AnyTime(psycopg.adapt.Loader):
    """Reads every time that PostgreSQL can hold. One that raises would hide all rows of its statement."""

    def __init__(self, oid: int, context: psycopg.abc.AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        assert _INNER_TIME is not None
        self._inner = _INNER_TIME(oid, context)

    def load(self, data: psycopg.abc.Buffer) -> datetime:
        try:
            time: datetime = self._inner.load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST
        return time


_ADAPTERS.register_loader("timestamptz", _AnyTime)
_UNAVAILABLE: Final = (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError)

SIGNING_KEY = sa.text("select value from adjourn.meta where key = 'signing_key'")
PING = sa.text("select 1 as one")
CLOCK = sa.text("select adjourn.adjourn_now() as now")


class Database:
    """Statements on one Postgres database, from any thread. Make it after a fork, never before.

    Connects when first used. All methods raise `StoreUnavailableError` when Postgres cannot be
    reached, does not answer in time, or every connection stays in use.
    """

    def __init__(
        self, url: str, tuning: Tuning | None = None, *, pool_size: int = 20, application_name: str = "adjourn"
    ) -> None:
        self.tuning = tuning or Tuning()
        """The numbers that the statements of this deployment go by."""
        self._engine = sa.create_engine(
            _parsed(url),
            isolation_level="AUTOCOMMIT",
            pool_size=pool_size,
            max_overflow=0,
            pool_use_lifo=True,
            pool_timeout=_POOL_SECONDS,
            pool_reset_on_return=None,
            connect_args={
                **_KEEPALIVE,
                "context": _ADAPTERS,
                "application_name": application_name,
                "options": " ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
                "prepare_threshold": 0,
            },
        )
        event.listen(self._engine, "checkout", _refuse_broken)
        self._signing_key: bytes | None = None
        self._key_lock = threading.Lock()
        self.watch: Callable[[str], None] | None = None
        """Called with every statement before it is sent, for tests and tools that count them."""

    @property
    def engine(self) -> Engine:
        """For tests that look at the pool; the store goes through `execute`."""
        return self._engine

    def execute(
        self, statement: sa.TextClause, params: Mapping[str, Any], *, repeatable: bool = False
    ) -> Sequence[Any]:
        """Run one statement and commit it. Returns its rows.

        A `repeatable` statement is sent once more if the connection breaks under it, when
        nobody can know whether it was done: say so only of a statement whose second run does
        no harm.
        """
        try:
            return self._execute(statement, params)
        except _BrokenError:
            if not repeatable:
                raise
        return self._execute(statement, params)

    def one(self, statement: sa.TextClause, params: Mapping[str, Any], *, repeatable: bool = False) -> Any:
        """Like `execute`, for the first row; `None` if there is none."""
        rows = self.execute(statement, params, repeatable=repeatable)
        return rows[0] if rows else None

    def ping(self) -> None:
        """Return if Postgres answers."""
        self.execute(PING, {}, repeatable=True)

    def clock(self) -> datetime:
        """The time, by the one clock that all workers share."""
        now: datetime = self.one(CLOCK, {}, repeatable=True).now
        return now

    def signing_key(self) -> bytes:
        """The key that action ids of this database are signed with. Read once."""
        with self._key_lock:  # a worker's threads want it at the same time, when it comes up
            if self._signing_key is None:
                self._signing_key = bytes.fromhex(self.one(SIGNING_KEY, {}, repeatable=True).value)
            return self._signing_key

    def dispose(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _execute(self, statement: sa.TextClause, params: Mapping[str, Any]) -> Sequence[Any]:
        sql = _sql(statement)
        if self.watch is not None:
            self.watch(sql)
        with _unavailable():
            pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        try:
            cursor = connection.cursor(row_factory=namedtuple_row).execute(sql, params)
            # Not `cursor.description`, which describes every column anew.
            return cursor.fetchall() if cursor.pgresult.nfields else ()
        except _UNAVAILABLE as error:
            if connection.closed:
                raise _BrokenError("PostgreSQL", _line(error)) from error
            raise StoreUnavailableError("PostgreSQL", _line(error), refused=True) from error
        except (psycopg.errors.UniqueViolation, psycopg.errors.NumericValueOutOfRange) as error:
            if error.diag.constraint_name not in (None, "items_pkey"):
                raise
            raise ContradictedError(_line(error)) from error
        finally:
            if connection.closed:
                pooled.invalidate()
            pooled.close()


@contextmanager
def migration_engine(url: str) -> Iterator[Engine]:
    """An engine for one transaction of migrations: no pool, no limit to how long a statement takes."""
    engine = sa.create_engine(_parsed(url), poolclass=NullPool, connect_args={**_KEEPALIVE})
    with _unavailable():
        yield engine


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        # The error would show the URL, password and all.
        raise ConfigurationError("database_url", "is not a URL", "use postgresql://user:password@host/name") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigurationError("database_url", "is not a PostgreSQL URL", "use postgresql://user:password@host/name")
    return parsed.set(drivername="postgresql+psycopg")


def _refuse_broken(connection: Any, _record: object, _proxy: object) -> None:
    """Refuse a pooled connection that was closed while it lay idle; the pool then makes another.

    An idle connection has nothing to read. If it has, it is the end of the stream, or the notice
    of the shutdown that caused it. Asked before anything is sent, so nothing can have been done
    twice; and it costs a system call where a ping would cost a round trip.
    """
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if poll.poll(0):
        raise exc.DisconnectionError


@contextmanager
def _unavailable() -> Iterator[None]:
    """Turn what the pool says about connections into one error without the URL."""
    try:
        yield
    except exc.TimeoutError as error:
        problem = f"all connections stayed in use for {_POOL_SECONDS} s"
        raise StoreUnavailableError("PostgreSQL", problem) from error
    except exc.InvalidRequestError as error:
        # The pool gives up if the new connection is closed as well, as by a server that starts up and stops again.
        raise StoreUnavailableError("PostgreSQL", "new connections are closed at once") from error
    except _UNAVAILABLE as error:
        raise StoreUnavailableError("PostgreSQL", _line(error)) from error
    except exc.DBAPIError as error:
        if not isinstance(error.orig, _UNAVAILABLE):
            raise
        raise StoreUnavailableError("PostgreSQL", _line(error.orig)) from error


class _BrokenError(StoreUnavailableError):
    """The connection broke under a statement, of which nobody can know whether it was done."""


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _sql(statement: sa.TextClause) -> str:
    """The statement as the driver takes it."""
    return str(statement.compile(dialect=_DIALECT))
