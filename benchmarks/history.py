"""`python -m benchmarks.history`: what the next turn of a run costs when 10, 100 or 1,000 items are recorded of it.

A turn is the claim with everything that it loads, the decision, the request to the model, and the write of what
the model said; the model itself takes no time, and there is no Redis in it. Beside it runs a floor written by hand,
which loads and parses as many messages and appends one. Both take their turns by turns in one process, on one real
PostgreSQL, each on runs that nobody has touched since they were made. The exit code is 1 if a turn on the longest
history costs more than `MOST` times the floor's, or writes more than on the shortest.

What a turn costs is processor time, of this process and of the sessions that work for it: the time on the clock is
shown beside it, and is that of everything else that the machine does as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
import psycopg

from adjourn import Agent, App, ScriptedModel, tool
from adjourn.schemas.internal.state import Requeue, Write
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.ids import new_call_id, new_run_id, new_thread_id
from adjourn.schemas.records.items import ItemBody, OutputItem, ResponseItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.migrations import upgrade
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresStore
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.host.loop import ModelLoop
from adjourn.tasks.host.services import Services
from adjourn.worker.embedded.servers import EmbeddedServers
from adjourn.worker.process.assembly import tune_gc
from benchmarks.figures import Spread, short, table
from benchmarks.floor_peer import CLAIM, FINISH, START, TABLES
from benchmarks.servers import Servers
from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude

SIZES: Final = (10, 100, 1_000)
MOST: Final = 2.0
"""Times the floor, on the longest history."""
SAME: Final = 1.2
"""A turn that writes no more than on the shortest history writes at most so many times as much: pages differ."""
TEXT: Final = "The whale sings, and the others answer from a long way off. " * 3
HEAD: Final = (
    "items",
    "ours, CPU ms",
    "floor, CPU ms",
    "ours / floor",
    "ours, ms",
    "floor, ms",
    "ours, bytes of WAL",
    "floor, bytes of WAL",
)


class Turns:
    """Turns of one side: how long they took, and what they wrote, in bytes of WAL."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.written: list[float] = []
        self.cpu_seconds = 0.0
        """Of all of them."""

    def row(self) -> tuple[float, float, float]:
        """Of one: milliseconds of CPU and on the clock, and bytes."""
        cpu = 1e3 * self.cpu_seconds / len(self.seconds)
        return cpu, 1e3 * Spread.of(self.seconds).median, Spread.of(self.written).median


class Ours:
    """Runs of an agent, with a history that is as long as one likes."""

    def __init__(self, database_url: str) -> None:
        self.db = Database(database_url)
        app = App(agents=[Agent("agent", ScriptedModel(lambda request: "Done.", strict=False), tools=[listen])])
        tuning, nowhere = Tuning(), cast(Any, _Nowhere())
        self.services = Services(
            store=PostgresStore(self.db),
            parking=nowhere,
            events=nowhere,
            wakeups=nowhere,
            tuning=tuning,
            app=app,
            loop=ModelLoop(),
            leases=LeaseKeeper(PostgresStore(self.db), tuning),
        )

    def close(self) -> None:
        self.services.leases.stop()
        self.services.loop.stop()
        self.db.dispose()

    def make(self, items: int) -> str:
        """A run with so many items whose next turn is due."""
        run_id = new_run_id()
        given: dict[str, Any] = {"agent": "agent", "text": TEXT, "limits": None, "enqueue": False}
        runs.start(self.db, run_id=run_id, thread_id=new_thread_id(), **given)
        runs.claim(self.db, run_id, suspect=False, token="made")
        recorded: list[ItemBody] = []
        while len(recorded) < items - 1:
            call = ToolCall(id=new_call_id(), tool="listen", args={"to": "whales"})
            recorded += [ResponseItem(text=TEXT, calls=(call,)), OutputItem.model_validate(_output(call))]
        runs.write(self.db, run_id, "made", 0, Write(items=tuple(recorded), becomes=Requeue()))
        return run_id

    def turn(self, run_id: str) -> None:
        drive(self.services, WakeUp(run_id=run_id, due="turn"))

    def check(self, run_id: str) -> None:
        run = runs.get(self.db, run_id)
        assert run is not None
        assert run.status == "completed", f"the turn was not taken: {run.status} {run.error}"


class Floor:
    """Rows of messages, read and written by hand."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True, prepare_threshold=0)

    def close(self) -> None:
        self._connection.close()

    def make(self, items: int) -> str:
        run_id = str(uuid4())
        said = [_message(number) for number in range(items)]
        self._do(START, id=run_id, input="{}", message=json.dumps(said[0]))
        with self._connection.cursor() as cursor:
            rows = [(run_id, number, json.dumps(each)) for number, each in enumerate(said) if number]
            cursor.executemany("insert into messages (thread, seq, body) values (%s, %s, %s)", rows)
        return run_id

    def turn(self, run_id: str) -> None:
        version, messages, _ = self._do(CLAIM, id=run_id).fetchone()
        said = {"role": "assistant", "content": "Done."}
        given = {"places": [len(messages)], "bodies": [json.dumps(said)], "output": json.dumps(said)}
        self._do(FINISH, id=run_id, version=version, **given)

    def check(self, run_id: str) -> None:
        (state,) = self._do("select state from runs where id = %(id)s", id=run_id).fetchone()
        assert state == "done"

    def _do(self, query: str, **values: Any) -> Any:
        return self._connection.execute(cast(Any, query), values)


class _Nowhere:
    """Redis and the broker, left out of it on both sides."""

    def put(self, records: Sequence[PendingAction]) -> None: ...

    def drop(self, ids: Sequence[str]) -> None: ...

    def publish(self, *what: Any, **more: Any) -> None: ...


@tool
def listen(to: str) -> str:
    """Listen to somebody."""
    return TEXT


def _output(call: ToolCall) -> dict[str, Any]:
    return {"call_id": call.id, "tool": call.tool, "outcome": "success", "content": TEXT}


def _message(number: int) -> dict[str, Any]:
    """As long as ours: what the model said, with a call, and what that came to."""
    if number % 2 == 0:
        return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": TEXT}
    call = {"id": f"call_{number}", "name": "listen", "args": {"to": "whales"}}
    return {"role": "assistant", "content": TEXT, "tool_calls": [call]}


def measure(sides: dict[str, Ours | Floor], items: int, turns: int, servers: Servers) -> dict[str, Turns]:
    """Turns on histories of so many items, by turns. The sides are named by their databases."""
    taken = {name: Turns() for name in sides}
    made = [{name: side.make(items) for name, side in sides.items()} for _ in range(turns)]
    for name in sides:
        taken[name].cpu_seconds -= _session_seconds(servers, name)
    for ids in made:
        for name, side in sides.items():
            turn, before = taken[name], servers.totals(name).wal_bytes
            cpu, clock = time.process_time(), time.perf_counter()
            side.turn(ids[name])
            turn.seconds.append(time.perf_counter() - clock)
            turn.cpu_seconds += time.process_time() - cpu
            turn.written.append(servers.totals(name).wal_bytes - before)
    for name, side in sides.items():
        taken[name].cpu_seconds += _session_seconds(servers, name)
        for ids in made:
            side.check(ids[name])
    return taken


def _session_seconds(servers: Servers, database: str) -> float:
    """Processor time that the sessions of a database have had."""
    times = [psutil.Process(pid).cpu_times() for pid in servers.session_pids(database)]
    return float(sum(each.user + each.system for each in times))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--turns", type=int, default=60, help="turns of each side on each length (default: 60)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    watch = Stopwatch()
    rows: list[tuple[str, ...]] = []
    findings: list[str] = []
    wal: dict[int, float] = {}
    tune_gc()  # as a worker does
    with tempfile.TemporaryDirectory() as folder, EmbeddedServers(Path(folder)) as embedded:
        servers = Servers(embedded)
        upgrade(servers.make_database("ours"))
        floor_url = servers.make_database("floor")
        with psycopg.connect(floor_url, autocommit=True) as connection:
            connection.execute(cast(Any, TABLES))
        sides: dict[str, Ours | Floor] = {
            "ours": Ours(servers.database_url("ours", scheme="postgresql+psycopg")),
            "floor": Floor(floor_url),
        }
        for items in SIZES:
            taken = measure(sides, items, options.turns, servers)
            (ours, our_time, wal[items]), (floor, its_time, its_wal) = taken["ours"].row(), taken["floor"].row()
            figures = (ours, floor, ours / floor, our_time, its_time, wal[items], its_wal)
            rows.append((f"{items:,}", *map(short, figures)))
            if items == SIZES[-1] and ours > MOST * floor:
                findings.append(f"a turn on {items:,} items costs {short(ours / floor)} times the floor's")
        for side in sides.values():
            side.close()
        servers.close()
    if wal[SIZES[-1]] > SAME * wal[SIZES[0]]:
        findings.append(f"a turn on {SIZES[-1]:,} items writes {wal[SIZES[-1]]} bytes, on {SIZES[0]} {wal[SIZES[0]]}")
    print(table(HEAD, rows))
    summary = watch.summary(
        command_line("benchmarks.history", arguments),
        "Length of a history",
        {"turns": options.turns * len(SIZES)},
        findings=findings,
        tables=[Table(name="One turn", head=HEAD, rows=tuple(rows))],
    )
    return conclude(summary, options.json)


if __name__ == "__main__":
    sys.exit(main())
