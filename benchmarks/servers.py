"""The servers that all peers share, and what they can tell about a peer: commits, disk syncs, statements.

Real PostgreSQL and Valkey (`adjourn.worker.embedded.servers`) with the durability they come with. A peer has
a database of its own in each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from redis import Redis

from adjourn.worker.embedded.servers import EmbeddedServers

STATEMENT = re.compile(r"^(?P<database>[^\t]*)\tLOG:  (?:execute [^:]+|statement): (?P<text>.*)$")
"""A logged statement, with the prefix that `logged` sets. Further lines of it begin with a tab."""


@dataclass(frozen=True)
class Totals:
    """What the server has counted since it started: of one database, but for the WAL, which is of all.

    `wal_syncs` are those that sessions waited for. Sessions report when they end or were idle for ten seconds.
    """

    commits: int
    wal_syncs: int
    wal_bytes: int

    def __sub__(self, before: Totals) -> Totals:
        return Totals(
            self.commits - before.commits, self.wal_syncs - before.wal_syncs, self.wal_bytes - before.wal_bytes
        )


class Servers:
    """Two running servers."""

    def __init__(self, embedded: EmbeddedServers) -> None:
        self._embedded = embedded
        self._admin = psycopg.connect(self.database_url("postgres"), autocommit=True)

    def close(self) -> None:
        self._admin.close()

    def database_url(self, name: str, *, scheme: str = "postgresql") -> str:
        parts = urlsplit(self._embedded.database_url)
        # An empty host has to be written out, or the two slashes before it get lost.
        return f"{scheme}://{parts.netloc}/{name}?{parts.query}"

    def redis_url(self, number: int) -> str:
        return urlunsplit(urlsplit(self._embedded.redis_url)._replace(path=f"/{number}"))

    def make_database(self, name: str) -> str:
        """A fresh, empty database; returns its URL."""
        self._admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        self._admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.database_url(name)

    def make_redis(self, number: int) -> str:
        """An emptied Redis database; returns its URL."""
        url = self.redis_url(number)
        with Redis.from_url(url) as redis:
            redis.flushdb()
        return url

    def durability(self) -> dict[str, str]:
        """The settings that decide whether a commit is one."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
        return {name: self._one(sql.SQL("show {}").format(sql.Identifier(name)))[0] for name in names}

    def checkpoint(self) -> None:
        """Write out what earlier work left behind, so that it does not weigh on what comes next."""
        self._admin.execute("checkpoint")

    def totals(self, database: str) -> Totals:
        (commits,) = self._one("select xact_commit from pg_stat_database where datname = %s", database)
        (syncs,) = self._one(
            "select sum(fsyncs)::bigint from pg_stat_io where object = 'wal' and backend_type = 'client backend'"
        )
        (written,) = self._one("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return Totals(commits, syncs, written)

    def sessions(self, database: str, application: str) -> tuple[int, int]:
        """How many sessions an application has in a database, and how many of them are in the midst of a
        statement or a transaction.
        """
        opened, busy = self._one(
            "select count(*), count(*) filter (where state <> 'idle') from pg_stat_activity"
            " where datname = %s and application_name = %s",
            database,
            application,
        )
        return opened, busy

    def session_pids(self, database: str) -> list[int]:
        """The server processes of the sessions of a database."""
        query = "select pid from pg_stat_activity where datname = %s"
        return [pid for (pid,) in self._admin.execute(query, (database,)).fetchall()]

    @contextmanager
    def logged(self, database: str) -> Iterator[Counter[str]]:
        """Counts every statement that runs in `database` meanwhile; the counter is filled at the end.

        The wheel has no pg_stat_statements, and the log misses nothing. Autovacuum is off meanwhile:
        it commits too.
        """
        log = self._embedded.data_dir / "logs" / "postgres.log"
        settings = {
            "log_statement": "all",
            "log_line_prefix": "%q%d\t",
            "log_parameter_max_length": "0",
            "autovacuum": "off",
        }
        counts: Counter[str] = Counter()
        for name, value in settings.items():
            self._set(name, sql.Literal(value))
        self._reload()
        start = log.stat().st_size
        try:
            yield counts
        finally:
            for name in settings:
                self._set(name, sql.SQL("default"))
            self._reload()
        counts.update(_statements(log, start, database))

    def _set(self, name: str, value: sql.Composable) -> None:
        self._admin.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value))

    def _reload(self) -> None:
        self._admin.execute("select pg_reload_conf()")
        # Sessions read the new settings before their next statement; ours shows that the signal is out.
        self._admin.execute("select pg_sleep(0.2)")

    def _one(self, query: sql.Composable | str, *values: Any) -> Any:
        return self._admin.execute(query, values).fetchone()  # type: ignore[arg-type]


def _statements(log: Path, start: int, database: str) -> Iterator[str]:
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    yield from statements(text, database)


def statements(log: str, database: str) -> Iterator[str]:
    """The statements of `database` in a server log, each on one line with single spaces."""
    # A statement goes on over the lines that begin with a tab.
    for entry in re.sub(r"\n\t", " ", log).splitlines():
        found = STATEMENT.match(entry)
        if found and found["database"] == database:
            yield " ".join(found["text"].split())
