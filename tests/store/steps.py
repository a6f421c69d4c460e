"""The durable steps of a run, one short call each, and ways to make two of them meet."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from adjourn.schemas.internal.state import Answered, Claim, End, Park, Requeue, Started, Write, Written
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import ActionState, NewAction, Origin
from adjourn.schemas.records.ids import new_action_id, new_call_id, new_claim_token, new_run_id, new_thread_id
from adjourn.schemas.records.items import EndItem, ItemBody, OutputItem, ResponseItem, SuspensionItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall, Usage
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.scratch import move_clock
from tests.waiting import wait_until

T = TypeVar("T")
U = TypeVar("U")

LEASE_SECONDS = 60.0
WAKEUP_RETRY_SECONDS = 30.0
SUSPECT_DEATHS = 3


def tuned(db: Database, **numbers: float) -> Database:
    """The same database for a deployment with other numbers."""
    other = copy.copy(db)
    other.tuning = Tuning(**numbers)
    return other


class Steps:
    """Steps on one database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    # --- steps -----------------------------------------------------------------------------------

    def start(
        self, *, run_id: str | None = None, thread_id: str | None = None, enqueue: bool = False, text: str = "go"
    ) -> Started:
        return runs.start(
            self.db,
            run_id=run_id or new_run_id(),
            thread_id=thread_id or new_thread_id(),
            agent="agent",
            text=text,
            limits=Limits(),
            enqueue=enqueue,
        )

    def claim(self, run_id: str, *, suspect: bool = False, token: str | None = None) -> Claim:
        """Claim a run that has to be due."""
        claim = self.try_claim(run_id, suspect=suspect, token=token)
        assert claim is not None
        return claim

    def try_claim(self, run_id: str, *, suspect: bool = False, token: str | None = None) -> Claim | None:
        return runs.claim(self.db, run_id, suspect=suspect, token=token or new_claim_token())

    def claimed(self, **start: Any) -> Claim:
        """A new run, claimed."""
        return self.claim(self.start(**start).run_id)

    def write(
        self,
        claim: Claim,
        *items: ItemBody,
        opens: tuple[NewAction, ...] = (),
        becomes: Park | Requeue | End | None = None,
        **totals: Any,
    ) -> Written:
        write = Write(items=items, actions=opens, becomes=becomes, **totals)
        return runs.write(self.db, claim.run.id, claim.token, claim.revision, write)

    def open(
        self, claim: Claim, *, count: int = 1, becomes: Park | None = None, **fields: Any
    ) -> tuple[list[str], Written]:
        """Open waits, in one write."""
        opened = tuple(self.new_action(claim, **fields) for _ in range(count))
        written = self.write(claim, *map(suspension, opened), opens=opened, becomes=becomes)
        return [action.id for action in opened], written

    def parked(self, *, count: int = 1, **fields: Any) -> tuple[str, list[str]]:
        """A run that is parked on `count` actions: its id and theirs."""
        claim = self.claimed()
        ids, written = self.open(claim, count=count, becomes=Park(), **fields)
        assert written.status == "parked"
        return claim.run.id, ids

    def end(self, claim: Claim, output: Any = "done") -> Written:
        return self.write(claim, EndItem(status="completed"), becomes=End(status="completed", output=output))

    def answer(
        self, action_id: str, resume: str | None = '{"ok": true}', *, answer_id: str = "answer-1", **fields: Any
    ) -> Answered:
        given: dict[str, Any] = {
            "status": "submitted",
            "resume": resume,
            "reason": None,
            "message": None,
            "digest": f"digest of {resume}",
            "answered_by": "ann",
            **fields,
        }
        return actions.answer(self.db, action_id=action_id, answer_id=answer_id, **given)

    def new_action(self, claim: Claim, **fields: Any) -> NewAction:
        call_id = fields.pop("call_id", None) or new_call_id()
        origin = Origin(
            tool="send",
            wait_point="approval",
            tool_call_id=call_id,
            message_id=f"{claim.run.id}:2",
            run_id=claim.run.id,
            thread_id=claim.run.thread_id,
            block_path=("agent", "send"),
        )
        given: dict[str, Any] = {
            "id": new_action_id(self.db.signing_key()),
            "name": "send.approval",
            "input": {"prompt": "Send it?"},
            "resume_schema": {"type": "object"},
            "style": "inline",
            "ordinal": 0,
            "digest": "digest of the question",
            "fingerprint": {"input": "f"},
            **fields,
        }
        return NewAction(origin=origin, **given)

    # --- looking ---------------------------------------------------------------------------------

    def run(self, run_id: str) -> Run:
        run = runs.get(self.db, run_id)
        assert run is not None
        return run

    def action(self, action_id: str) -> ActionState:
        state = actions.get(self.db, action_id)
        assert state is not None
        return state

    def kinds(self, run_id: str) -> list[str]:
        """The kinds of a run's items, after making sure that they are numbered from 1 without a gap."""
        items = runs.items(self.db, run_id)
        assert [item.seq for item in items] == [*range(1, len(items) + 1)]
        return [item.body.kind for item in items]

    def row(self, run_id: str) -> Any:
        """The stored row of a run, all columns."""
        return self.db.one(sa.text("select * from adjourn.runs where id = :id"), {"id": run_id})

    def advance(self, seconds: float) -> None:
        """Move the database's clock on, for all who use it."""
        move_clock(self.db, seconds)


def response(*calls: str, **fields: Any) -> ResponseItem:
    return ResponseItem(text="", calls=tuple(ToolCall(id=id, tool="send", args={}) for id in calls), **fields)


def suspension(action: NewAction) -> SuspensionItem:
    return SuspensionItem(call_id=action.origin.tool_call_id, action_id=action.id, name=action.name)


def output(call_id: str = "call_1", content: Any = "sent") -> OutputItem:
    return OutputItem(call_id=call_id, tool="send", outcome="success", content=content)


def usage(tokens: int) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=2 * tokens, requests=1)


# --- two at once ---------------------------------------------------------------------------------


def at_once(*works: Callable[[], T]) -> list[T]:
    """Do all of `works` at the same time, each on a thread and a connection of its own; their results in order."""
    barrier = threading.Barrier(len(works))

    def meet(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(meet, work) for work in works]]


def both(one: Callable[[], T], other: Callable[[], U]) -> tuple[T, U]:
    """`at_once` for two works of different kinds."""
    first, second = at_once(cast(Callable[[], Any], one), cast(Callable[[], Any], other))
    return first, second


class Slow:
    """A statement that has run and not committed: what it wrote is locked, and nobody sees it yet."""

    def __init__(self, db: Database, pool: ThreadPoolExecutor, connection: sa.Connection) -> None:
        self._db, self._pool, self._connection = db, pool, connection

    def run(self, statement: sa.TextClause, params: dict[str, Any]) -> Any:
        return self._connection.execute(statement, params).first()

    def then(self, work: Callable[[], T]) -> Future[T]:
        """Begin `work` on another connection; returns when it stands before a lock."""
        future = self._pool.submit(work)
        wait_until(lambda: future.done() or _is_waiting(self._db), what="a statement to wait for a lock")
        assert not future.done(), f"it did not wait, but gave {future.result()}"
        return future

    def commit(self) -> None:
        self._connection.commit()


@contextmanager
def slow_transaction(db: Database, database_url: str) -> Iterator[Slow]:
    """A transaction of statements of the store, held open until `commit`."""
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with ThreadPoolExecutor(4) as pool, engine.connect() as connection:
        yield Slow(db, pool, connection)
    engine.dispose()


def _is_waiting(db: Database) -> bool:
    query = sa.text("""
        select count(*) as waiting from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
    """)
    return bool(db.one(query, {}).waiting)
