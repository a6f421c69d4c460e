"""Threads as seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from adjourn.schemas.internal.state import Park
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.threads import conversations as threads
from tests.store.steps import Steps, response


def test_a_snapshot_shows_runs_items_and_what_is_pending(db: Database, steps: Steps) -> None:
    first = steps.claimed(thread_id="thread-1", text="one")
    steps.write(first, response())
    steps.end(first)
    second = steps.claimed(thread_id="thread-1", text="two")
    (open_one, answered), _ = steps.open(second, count=2)
    steps.answer(answered)
    steps.parked()
    all_runs, items, pending = threads.snapshot(db, "thread-1")
    assert all_runs == (steps.run(first.run.id), steps.run(second.run.id))
    assert items == runs.items(db, first.run.id) + runs.items(db, second.run.id)
    assert pending == (steps.action(open_one).action,)


def test_a_snapshot_of_no_thread_is_empty(db: Database) -> None:
    assert threads.snapshot(db, "thread-nobody-has") == ((), (), ())


class Interrupted(Database):
    """A database in which something happens right after the first statement."""

    def __init__(self, url: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(url)
        self.statements = 0
        self._meanwhile = meanwhile

    def execute(
        self, statement: sa.TextClause, params: Mapping[str, Any], *, repeatable: bool = False
    ) -> Sequence[Any]:
        rows = super().execute(statement, params, repeatable=repeatable)
        self.statements += 1
        if self.statements == 1:
            self._meanwhile()
        return rows


def test_a_snapshot_is_of_one_moment(db: Database, steps: Steps, database_url: str) -> None:
    """A run that is answered while the snapshot is taken is shown as it was before, in every part."""
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim, becomes=Park())
    reading = Interrupted(database_url, partial(steps.answer, action_id))
    for status, kinds in (
        ("parked", ["message", "suspension"]),
        ("queued", ["message", "suspension", "resolution"]),
    ):
        (run,), items, pending = threads.snapshot(reading, claim.run.thread_id)
        assert (run.status, [item.body.kind for item in items]) == (status, kinds)
        assert [action.id for action in pending] == ([action_id] if status == "parked" else [])
    assert reading.statements >= 2, "the answer came while the first snapshot was taken"
    reading.dispose()


def test_threads_are_listed_newest_first_by_their_last_run(db: Database, steps: Steps) -> None:
    steps.end(steps.claimed(thread_id="thread-1"))
    run_id = steps.start(thread_id="thread-1").run_id
    steps.start(thread_id="thread-2")
    listed = threads.list(db)
    assert [(thread.thread_id, thread.status) for thread in listed] == [("thread-2", "queued"), ("thread-1", "queued")]
    assert (listed[1].run_id, listed[1].agent) == (run_id, "agent")
    assert threads.list(db, limit=1) == listed[:1]
    assert actions.pending(db) == []
