"""Where points are tapped: psycopg's statements, redis-py's commands, kombu's messages.

Installed once in each process under trial. Knows the insides of those three libraries, so that
the code under trial needs to know nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import kombu.messaging
import psycopg
import redis.client
import sqlalchemy as sa
from kombu.message import Message

import adjourn.store.postgres
import adjourn.store.redis.connection
from adjourn.store.postgres.database import _sql as driver_sql
from adjourn.store.redis import transport as redis_transport
from tests.crash import ledger
from tests.crash.points import Points

_KEYS_BY_START: Final = ("adjourn:parking:", "adjourn:events:", "adjourn.receipts.")
"""Keys that end in an id, which is another in every trial."""


_GREETINGS: Final = (
    "select pg_catalog.version()",
    "select current_schema()",
    "show transaction isolation level",
    "show standard_conforming_strings",
    "",
)
"""What SQLAlchemy asks of the first connection of a process."""
_ROUTING_KEY: Final = 6
"""Its place among the arguments of kombu's `_publish`."""

# Untyped, for what is tapped here is replaced.
_Cursor: Any = psycopg.Cursor
_Channel: Any = redis_transport.Channel
_TakingChannel: Any = redis_transport.TakingChannel
_TakingQoS: Any = redis_transport._TakingQoS
_Redis: Any = redis.client.Redis
_Pipeline: Any = redis.client.Pipeline
_Announcer: Any = adjourn.store.redis.connection.Announcer
_Producer: Any = kombu.messaging.Producer
_Consumer: Any = kombu.messaging.Consumer


class Deliveries:
    """How many messages this process was given and has not acknowledged, by queue."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, queue: str, count: int) -> None:
        with self._lock:
            self._held[queue] += count

    def held(self, queue: str | None = None) -> int:
        with self._lock:
            return self._held.total() if queue is None else self._held[queue]


def install(points: Points) -> Deliveries:
    """Make points of everything that this process does from now on. Returns the count of what it holds."""
    deliveries = Deliveries()
    _tap_sql(points)
    _tap_redis(points)
    _tap_takes(points)
    _tap_messages(points, deliveries)
    _tap_restores(points)
    return deliveries


# --- SQL -------------------------------------------------------------------------------------


def statement_names() -> dict[str, str]:
    """The statements of the store by the text that the driver is given: `module.CONSTANT`."""
    names: dict[str, str] = {}
    for module in pkgutil.walk_packages(adjourn.store.postgres.__path__, f"{adjourn.store.postgres.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, sa.TextClause):
                names.setdefault(driver_sql(value), f"{module.name.rpartition('.')[2]}.{name}")
    return names


def _tap_sql(points: Points) -> None:
    """Every statement, at the driver. Each commits by itself, so after it is after its commit."""
    names = statement_names()
    execute = _Cursor.execute
    renewals = 0

    def scope(query: Any) -> AbstractContextManager[None]:
        nonlocal renewals
        text = query if isinstance(query, str) else ""
        if ledger.is_own(query):
            return nullcontext()
        if names.get(text) == "claims.RENEW":
            renewals += 1
            if renewals > points.plan.leases:
                return points.muted()
        if text in _GREETINGS and not points.starting:
            return points.muted()
        return points(f"sql:{names.get(text, 'unnamed')}")

    def tapped(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        with scope(query):
            return execute(self, query, *args, **options)

    _Cursor.execute = tapped


# --- Redis -----------------------------------------------------------------------------------


def _tap_redis(points: Points) -> None:
    """Every command. A pipeline that is no transaction is sent command by command, so that a crash can fall between."""
    execute = _Redis.execute_command
    immediately = _Pipeline.immediate_execute_command
    pipeline = _Pipeline._execute_pipeline
    transaction = _Pipeline._execute_transaction
    announce = _Announcer.send

    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        with points(f"redis:{_command(args)}"):
            return execute(self, *args, **options)

    def immediate_execute_command(self: Any, *args: Any, **options: Any) -> Any:
        with points(f"redis:{_command(args)}"):
            return immediately(self, *args, **options)

    def execute_pipeline(self: Any, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        replies: list[Any] = []
        for command in commands:
            with points(f"redis:{_command(command[0])}"):
                replies += pipeline(self, connection, [command], raise_on_error)
        return replies

    def send(self: Any, commands: Any) -> None:
        for command in commands:
            with points(f"redis:{_command(command)}"):
                announce(self, [command])

    def execute_transaction(self: Any, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        with points("redis:" + "+".join(_command(args) for args, _ in commands)):
            replies: list[Any] = transaction(self, connection, commands, raise_on_error)
            return replies

    _Redis.execute_command = execute_command
    _Pipeline.immediate_execute_command = immediate_execute_command
    _Pipeline._execute_pipeline = execute_pipeline
    _Pipeline._execute_transaction = execute_transaction
    _Announcer.send = send


def _tap_takes(points: Points) -> None:
    """The moment in which a message has left its list for this reader, and nothing else has happened."""
    _Channel._read_taken = _tapped_take(points, "BRPOP", _Channel._read_taken)
    _TakingChannel._read_taken = _tapped_take(points, "BLMOVE", _TakingChannel._read_taken)


def _tapped_take(points: Points, command: str, take: Callable[..., Any]) -> Callable[..., Any]:
    """Readers send their command again and again; a point is only the reply that brings a message."""

    def read_taken(self: Any, **options: Any) -> Any:
        taken = take(self, **options)
        if taken is not None:
            with points(f"redis:{command} {taken[0]}"):
                pass
        return taken

    return read_taken


def _command(args: Any) -> str:
    name, *rest = (_text(each) for each in args)
    if name in ("EVAL", "EVALSHA"):
        rest = rest[2:]
    if name in ("MULTI", "EXEC", "UNWATCH", "SCRIPT") or not rest:
        return name
    key = next((start for start in _KEYS_BY_START if rest[0].startswith(start)), rest[0])
    return f"{name} {key.rstrip(':.')}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# --- messages ----------------------------------------------------------------------------------


def _tap_messages(points: Points, deliveries: Deliveries) -> None:
    publish = _Producer._publish
    receive = _Consumer._receive_callback

    def _publish(self: Any, *args: Any, **options: Any) -> Any:
        with points(f"publish:{_queue(args[_ROUTING_KEY])}"):
            return publish(self, *args, **options)

    def _receive_callback(self: Any, message: Any) -> Any:
        queue = message.delivery_info["routing_key"]
        if not self.no_ack:
            deliveries.add(queue, 1)
        with points(f"deliver:{_queue(queue)}"):
            return receive(self, message)

    def settled(kind: str, settle: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(self: Any, *args: Any, **options: Any) -> Any:
            queue = self.delivery_info["routing_key"]
            with points(f"{kind}:{_queue(queue)}"):
                result = settle(self, *args, **options)
            deliveries.add(queue, -1)
            return result

        return tapped

    _Producer._publish = _publish
    _Consumer._receive_callback = _receive_callback
    for kind in ("ack", "reject", "requeue"):
        setattr(Message, kind, settled(kind, getattr(Message, kind)))


def _queue(name: str) -> str:
    return next((start.rstrip(":.") for start in _KEYS_BY_START if name.startswith(start)), name)


# --- what comes and goes with the clock --------------------------------------------------------


def _tap_restores(points: Points) -> None:
    """Looks for what dead readers had taken: points only as often as the plan says."""
    restore = _TakingQoS.restore_visible
    looks = 0

    def restore_visible(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        with nullcontext() if looks <= points.plan.restores else points.muted():
            return restore(self, *args, **options)

    _TakingQoS.restore_visible = restore_visible
