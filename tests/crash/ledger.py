"""What really happened, written by the tools and models themselves, outside of Adjourn.

One row per start of a body, per answer that a tool got, per effect and per model request, each
committed at once on a connection of its own, with the database's clock. The checker holds it
against the history of the run. `signals` are how a driver lets a waiting tool go on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import psycopg

from adjourn.worker.config.settings import load_settings
from tests.waiting import wait_until

Kind = Literal["body", "answer", "effect", "once", "reserved", "model"]

SCHEMA: Final = """
create schema crash;
create table crash.ledger (
    id bigint generated always as identity primary key,
    at timestamptz not null default adjourn.adjourn_now(),
    kind text not null, run_id text not null, call_id text not null, name text not null, value text
);
create table crash.signals (name text primary key);
"""
_WRITE: Final = "insert into crash.ledger (kind, run_id, call_id, name, value) values (%s, %s, %s, %s, %s)"
_READ: Final = "select at, kind, run_id, call_id, name, value from crash.ledger order by id"


class Row(NamedTuple):
    """One thing that happened. `call_id` is the message count of the request for a model."""

    at: datetime
    kind: Kind
    run_id: str
    call_id: str
    name: str
    value: str | None


Around = Callable[[str], AbstractContextManager[Any]]

around: Around = nullcontext
"""What each row is written inside of: in a process under trial, a point."""

_lock = threading.Lock()
_connection: tuple[int, psycopg.Connection[Any]] | None = None


def write(kind: Kind, run_id: str, call_id: str, name: str, value: str | None = None) -> None:
    """Say that something happens now."""
    with around(f"{kind}:{name}"):
        _execute(_WRITE, (kind, run_id, call_id, name, value))


def wait_for_signal(name: str) -> None:
    """Return when the driver has given the signal, now or before."""
    wait_until(lambda: _execute("select from crash.signals where name = %s", (name,)), what=f"signal {name}")


def is_signalled(name: str) -> bool:
    """Whether the driver has given the signal."""
    return bool(_execute("select from crash.signals where name = %s", (name,)))


def wait_for_suspension(run_id: str) -> None:
    """Return when the run has asked something, as `wait_for_output` does for its outputs."""
    query = "select from adjourn.items where run_id = %s and kind = 'suspension'"
    wait_until(lambda: _execute(query, (run_id,)), what=f"a suspension in {run_id}")


def has_effect(call_id: str) -> bool:
    """Whether a call has taken effect: what another system would say about it."""
    return bool(_execute("select from crash.ledger where kind = 'effect' and call_id = %s", (call_id,)))


def has_effects(run_id: str) -> bool:
    """Whether anything of a run has taken effect."""
    return bool(_execute("select from crash.ledger where kind = 'effect' and run_id = %s", (run_id,)))


def wait_for_output(run_id: str) -> None:
    """Return when a call of the run has its output, so that tools side by side end in one order in each trial."""
    query = "select from adjourn.items where run_id = %s and kind = 'output'"
    wait_until(lambda: _execute(query, (run_id,)), what=f"an output in {run_id}")


def read(connection: psycopg.Connection[Any]) -> list[Row]:
    return [Row(*row) for row in connection.execute(_READ)]


def signal(connection: psycopg.Connection[Any], name: str) -> None:
    """Let whoever waits for it go on; harmless when it was given before."""
    connection.execute("insert into crash.signals values (%s) on conflict do nothing", (name,))


def is_own(query: object) -> bool:
    """Whether a statement is one of the ledger's."""
    return isinstance(query, bytes)


def plain_url(url: str) -> str:
    """A URL of SQLAlchemy's as psycopg takes it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def _execute(statement: str, params: tuple[Any, ...]) -> int:
    """Run a statement on this process's own connection; returns the row count."""
    global _connection
    with _lock:
        if _connection is None or _connection[0] != os.getpid():
            url = plain_url(load_settings().database)
            _connection = (os.getpid(), psycopg.connect(url, autocommit=True))
        return _connection[1].execute(statement.encode(), params).rowcount
