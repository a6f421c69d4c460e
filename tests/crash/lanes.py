"""A lane: one database, one Redis database and one broker, on which one trial at a time is run.

Owns what a trial needs of them: a fresh start, the passing of time, and what is left at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import psycopg
import redis
from kombu import Connection
from kombu.exceptions import ChannelError
from pydantic import SecretStr

from adjourn import Client
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.tasks.host.services import Door
from adjourn.tasks.host.wakeups import QUEUES, RESUME_QUEUE
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import Settings
from tests.crash import ledger
from tests.crash.publisher import Publisher

ALL_QUEUES: Final = (*QUEUES.values(), RESUME_QUEUE)
AN_HOUR: Final = 3600.0
"""More than any lease, any pause between wake-ups and any visibility time-out."""
SWEEP_SECONDS: Final = 0.1
TABLES: Final = ("threads", "runs", "items", "actions", "child_groups", "early_answers", "dead_letters")


class Lane:
    """The servers of one trial at a time."""

    def __init__(self, database_url: str, redis_url: str, broker_url: str | None = None) -> None:
        self.settings = Settings(
            database_url=SecretStr(database_url),
            redis_url=SecretStr(redis_url),
            broker_url=None if broker_url is None else SecretStr(broker_url),
            app="tests.crash.app:app",
            concurrency=8,
            database_pool_size=10,
            resume_threads=1,
            tuning=Tuning(sweep_seconds=SWEEP_SECONDS),
        )
        self.sql = psycopg.connect(ledger.plain_url(self.settings.database), autocommit=True)
        self.db = Database(self.settings.database, pool_size=2)
        self.redis: Any = redis.Redis.from_url(self.settings.redis)
        self._parking = Parking(connect(self.settings.redis), self.db.signing_key)
        self.events = Events(connect(self.settings.redis), self.db.signing_key)
        self.client = Client(self.settings)
        self._broker: Connection = wakeup_broker(self.settings).connection()
        self.publisher = Publisher(wakeup_broker(self.settings), self._broker)
        self.dirty = True
        """Whether a trial may have left messages: a good one leaves none."""
        self._moved = 0.0
        self.sql.execute(ledger.SCHEMA.encode())

    @property
    def on_redis(self) -> bool:
        return self.settings.broker_is_redis

    def close(self) -> None:
        self.sql.close()
        self.db.dispose()
        self.redis.close()
        self.client.close()
        self._broker.release()

    def reset(self) -> None:
        """Forget whatever the trial before has left."""
        for table in TABLES:
            self.sql.execute(f"delete from adjourn.{table}".encode())
        self.sql.execute("delete from crash.ledger; delete from crash.signals")
        self.redis.flushdb()
        self._parking.mark()  # or the first sweep would take this Redis for one that has lost everything
        if self.dirty and not self.on_redis:
            for name in ALL_QUEUES:
                with self._channel() as channel:
                    channel.queue_delete(name)
        self.publisher.begin()
        self.dirty = False

    # --- time --------------------------------------------------------------------------------

    def move_clock(self, seconds: float) -> None:
        """Move the database's clock on, for every statement of every process."""
        self._moved += seconds
        self.sql.execute(
            "create or replace function adjourn.adjourn_now() returns timestamptz language sql as "
            f"$$ select clock_timestamp() + interval '{self._moved} seconds' $$".encode()
        )

    def is_connected(self, application_name: str) -> bool:
        """Whether Postgres still serves this process: a statement that it sent before its death may be running."""
        query = "select from pg_stat_activity where datname = current_database() and application_name = %s"
        return self.sql.execute(query.encode(), (application_name,)).rowcount > 0

    def is_busy(self, application_name: str) -> bool:
        """Whether Postgres is in the midst of a statement of this process."""
        query = "select from pg_stat_activity where application_name = %s and state = 'active'"
        return self.sql.execute(query.encode(), (application_name,)).rowcount > 0

    def pass_time(self) -> None:
        """Let an hour go by since the only worker died: its leases are over, and what it held is anybody's."""
        self.move_clock(AN_HOUR)
        self.give_back()

    def give_back(self) -> None:
        """Make what was taken from the broker and not settled look as if that had been an hour ago."""
        if not self.on_redis:
            return  # a broken connection is all that RabbitMQ waits for
        client = self.redis
        for entry in client.lrange("adjourn.resume.taken", 0, -1):
            client.hset("adjourn.resume.taken.seen", hashlib.sha1(entry).hexdigest(), "0")

    # --- what others do ------------------------------------------------------------------------

    def door(self, *, notify: bool) -> Door:
        """What a process without the app judges answers with. It waits for no verdict."""
        door: Door = self.client._door
        tuning = door.tuning.model_copy(update={"verdict_seconds": 0.0})
        return replace(door, tuning=tuning, wakeups=door.wakeups if notify else _Mute())

    def forge_record(self, action: PendingAction) -> None:
        """Write a parking record that lets in somebody else, as anybody can who has this Redis."""
        record = action.model_copy(update={"answerers": ("somebody else",)})
        self.redis.set(f"adjourn:parking:{action.id}", record.model_dump_json())

    @contextmanager
    def damaged(self, table: str, column: str, where: str) -> Iterator[None]:
        """Inside, one value cannot be read; afterwards it is as it was."""
        rows = self.sql.execute(f"select {column}::text from adjourn.{table} where {where}".encode()).fetchall()
        assert len(rows) == 1, f"{len(rows)} rows of {table} where {where}"
        self._put(table, column, where, "{")
        try:
            yield
        finally:
            self._put(table, column, where, str(rows[0][0]))

    def contradict(self, run_id: str) -> None:
        """Let the row of a run say that less is recorded of it than there is: nothing more can be recorded."""
        self.sql.execute(b"update adjourn.runs set seq = 1 where id = %s", (run_id,))

    def lose_waits(self, run_id: str) -> None:
        """Delete the actions of a run."""
        self.sql.execute(b"delete from adjourn.actions where run_id = %s", (run_id,))

    def _put(self, table: str, column: str, where: str, value: str) -> None:
        self.sql.execute(f"update adjourn.{table} set {column} = %s where {where}".encode(), (value,))

    # --- what is there -------------------------------------------------------------------------

    def waiting(self) -> dict[str, int]:
        """Messages that nobody has taken, by queue; empty queues are left out."""
        counts = {name: self._size(name) for name in ALL_QUEUES}
        return {name: count for name, count in counts.items() if count}

    def unsettled(self) -> dict[str, int]:
        """Messages that were taken and not acknowledged, as far as the broker's data shows it."""
        if not self.on_redis:
            return {}
        taken = "adjourn.resume.taken"
        count = self.redis.llen(taken)
        return {taken: count} if count else {}

    def answers(self) -> int:
        """Answers on the resume queue, taken or not, as far as the broker's data shows it."""
        return self._size(RESUME_QUEUE) + sum(
            count for name, count in self.unsettled().items() if name.startswith(RESUME_QUEUE)
        )

    def is_indexed(self, action_id: str) -> bool:
        """Whether the parking index has a record of an action."""
        return self._parking.get(action_id) is not None

    def count(self, table: str) -> int:
        """How many rows a table of Adjourn's has."""
        row = self.sql.execute(f"select count(*) from adjourn.{table}".encode()).fetchone()
        return int(row[0]) if row else 0

    def untold(self) -> int:
        """Runs that have ended, and whose parents and children have yet to be notified."""
        row = self.sql.execute(b"select count(*) from adjourn.runs where unpropagated").fetchone()
        return int(row[0]) if row else 0

    def kept(self) -> int:
        """Answers that were kept and not judged. A receipt whose reader has died stays for an hour."""
        row = self.sql.execute(b"select count(*) from adjourn.early_answers where receipt is null").fetchone()
        return int(row[0]) if row else 0

    def children(self, run_id: str) -> list[str]:
        """Ids of the runs that a run has started, by their messages."""
        query = """
            select r.id from adjourn.runs r join adjourn.items i on i.run_id = r.id and i.seq = 1
            where r.parent_run_id = %s order by i.body
        """
        return [str(row[0]) for row in self.sql.execute(query.encode(), (run_id,)).fetchall()]

    def is_paused(self, run_id: str) -> bool:
        """Whether a model of a run is left alone, so that the run is due later."""
        query = """
            select from adjourn.runs
            where id = %s and status = 'queued' and retry_at is not null and due_at > adjourn.adjourn_now()
        """
        return self.sql.execute(query.encode(), (run_id,)).rowcount > 0

    def outputs(self, run_id: str) -> int:
        """How many outputs are recorded of a run."""
        query = "select from adjourn.items where run_id = %s and kind = 'output'"
        return self.sql.execute(query.encode(), (run_id,)).rowcount

    def refused(self) -> int:
        """How many messages were refused. One that came again after a crash is written down again, and is one."""
        row = self.sql.execute("select count(distinct (action_id, body)) from adjourn.dead_letters").fetchone()
        return int(row[0]) if row else 0

    def _size(self, queue: str) -> int:
        if self.on_redis:
            return int(self.redis.llen(queue))
        try:
            with self._channel() as channel:
                return int(channel.queue_declare(queue, passive=True).message_count)
        except ChannelError:
            return 0  # no such queue

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        # One per question: AMQP closes a channel that asks for what is not there.
        channel: Any = self._broker.channel()
        try:
            yield channel
        finally:
            channel.close()


class _Mute:
    """Wake-ups of a process that dies before it sends them."""

    def publish(self, wakeup: WakeUp) -> None:
        """Nobody hears of it."""

    def notify_readers(self, action_id: str) -> None:
        """Nobody hears of it."""
