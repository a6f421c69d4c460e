"""The faults: what can be done to the scene, and how it is undone.

Each is a generator: it strikes, says how many seconds it lasts, and heals what it did when it is resumed.
Meanwhile others keep off its target; faults of different targets overlap.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

import psycopg

from adjourn.schemas.records.runs import Due
from adjourn.tasks.host.wakeups import QUEUES
from tests.chaos.scene import LEASE_SECONDS, Scene, Slot

COPIES: Final = 10
"""Of each wake-up that is delivered again."""
SLOW_FSYNC_MICROSECONDS: Final = 20_000
LONGEST_FREEZE_SECONDS: Final = 7.0
"""Longer than our clients wait for Redis."""
MILLISECONDS: Final = 1000
LOCK_MILLISECONDS: Final = 200

Target = Literal["worker", "redis", "postgres"]
Strike = Callable[[Scene, Random, Any], Iterator[float]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `target` is what it has in its hands; of the workers it is one."""

    name: str
    target: Target
    weight: float
    strike: Strike
    needs_shim: bool = False


# --- workers -----------------------------------------------------------------------------------


def _kill(scene: Scene, dice: Random, slot: Slot) -> Iterator[float]:
    scene.end_worker(slot, signal.SIGKILL)
    yield dice.uniform(0, 1.5)
    scene.start_worker(slot)


def _kill_family(scene: Scene, dice: Random, slot: Slot) -> Iterator[float]:
    scene.end_worker(slot, signal.SIGKILL, with_children=True)
    yield dice.uniform(0, 1.5)
    scene.start_worker(slot)


def _stop(scene: Scene, dice: Random, slot: Slot) -> Iterator[float]:
    scene.end_worker(slot, signal.SIGTERM)
    yield 0
    scene.start_worker(slot)


def _stale(scene: Scene, dice: Random, slot: Slot) -> Iterator[float]:
    # Long enough, often, for another to have taken its runs over and finished them.
    yield from _paused(slot, LEASE_SECONDS + dice.uniform(0.5, 8))


def _pause(scene: Scene, dice: Random, slot: Slot) -> Iterator[float]:
    yield from _paused(slot, dice.uniform(0.1, LEASE_SECONDS / 2))


def _paused(slot: Slot, seconds: float) -> Iterator[float]:
    worker = slot.worker
    assert worker is not None
    worker.send(signal.SIGSTOP)
    yield seconds
    with suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGCONT)


# --- Redis -------------------------------------------------------------------------------------


def _flush(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    with scene.servers.redis() as client:
        client.flushall()
    yield 0


def _restart_redis(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    scene.servers.valkey.kill()
    yield dice.uniform(0, 1.5)
    scene.servers.valkey.start()
    scene.servers.valkey.wait_until_ready()


def _lose_redis(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    scene.servers.valkey.kill()
    scene.servers.forget()
    yield dice.uniform(0, 1.5)
    scene.servers.valkey.start()
    scene.servers.valkey.wait_until_ready()


def _freeze_redis(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    scene.servers.valkey.freeze()
    yield dice.uniform(0.5, LONGEST_FREEZE_SECONDS)
    scene.servers.valkey.thaw()


def _pause_redis(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    seconds = dice.uniform(0.2, 3)
    with scene.servers.redis() as client:
        client.client_pause(int(seconds * MILLISECONDS))
    yield seconds


def _drop_redis(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    with scene.servers.redis() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    yield 0


# --- PostgreSQL --------------------------------------------------------------------------------


def _restart_postgres(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    scene.servers.postgres.kill(signal.SIGQUIT)
    yield dice.uniform(0, 1.5)
    scene.servers.postgres.start(CHAOS_FSYNC_MICROSECONDS="0")
    scene.servers.postgres.wait_until_ready()


def _slow_postgres(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    scene.servers.postgres.kill(signal.SIGQUIT)
    scene.servers.postgres.start(LD_PRELOAD=str(scene.shim), CHAOS_FSYNC_MICROSECONDS=str(SLOW_FSYNC_MICROSECONDS))
    scene.servers.postgres.wait_until_ready()
    # Slow until the next restart; other faults of PostgreSQL may fall into that time.
    yield 0


def _drop_postgres(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    with psycopg.connect(scene.servers.psycopg_url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
    yield 0


def _lock_postgres(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    with psycopg.connect(scene.servers.psycopg_url) as connection:
        connection.execute("lock table adjourn.runs in access exclusive mode")
        yield dice.uniform(0.2, 2)


# --- messages ----------------------------------------------------------------------------------


def _repeat_wakeups(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    """Every wake-up that is on a queue now, ten times each and in any order.

    One that was repeated before is one: with copies of copies a queue that nobody reads for a while has no end.
    """
    with scene.servers.redis() as client:
        for queue in QUEUES.values():
            queued: Any = client.lrange(queue, 0, -1)
            wakeups = [*dict.fromkeys(queued)]
            copies = dice.sample(wakeups * COPIES, len(wakeups) * COPIES)
            if copies:
                client.rpush(queue, *copies)
    yield 0


def _untrue_wakeups(scene: Scene, dice: Random, _: None) -> Iterator[float]:
    """Wake-ups for runs that may not be due, ten times each and in any order."""
    # Another fault may hold the table's lock, and it is this thread that ends it.
    options = f"-c lock_timeout={LOCK_MILLISECONDS}"
    with psycopg.connect(scene.servers.psycopg_url, autocommit=True, options=options) as connection:
        ids = [row[0] for row in connection.execute("select id from adjourn.runs order by updated_at desc limit 20")]
    dues: list[Due] = ["turn", "reentry", "suspect"]
    chosen = [(run_id, dice.choice(dues)) for run_id in ids] * COPIES
    dice.shuffle(chosen)
    scene.publish_wakeups(chosen)
    yield 0


FAULTS: Final = (
    Fault("worker killed", "worker", 4, _kill),
    Fault("worker killed with its children", "worker", 2, _kill_family),
    Fault("worker told to stop", "worker", 1, _stop),
    Fault("worker stopped past its lease", "worker", 3, _stale),
    Fault("worker stopped for a moment", "worker", 1, _pause),
    Fault("Redis flushed", "redis", 2, _flush),
    Fault("Redis killed and restarted", "redis", 1, _restart_redis),
    Fault("Redis killed and restarted empty", "redis", 1, _lose_redis),
    Fault("Redis frozen", "redis", 1, _freeze_redis),
    Fault("Redis paused", "redis", 1, _pause_redis),
    Fault("Redis connections dropped", "redis", 2, _drop_redis),
    Fault("PostgreSQL restarted at once", "postgres", 2, _restart_postgres),
    Fault("PostgreSQL restarted, fsync slow", "postgres", 1, _slow_postgres, needs_shim=True),
    Fault("PostgreSQL connections dropped", "postgres", 2, _drop_postgres),
    Fault("PostgreSQL locked", "postgres", 1, _lock_postgres),
    Fault("wake-ups ten times, shuffled", "redis", 2, _repeat_wakeups),
    Fault("untrue wake-ups ten times, shuffled", "redis", 1, _untrue_wakeups),
)
