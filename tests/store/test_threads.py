"""Threads as seen from outside."""

from __future__ import annotations

from functools import partial

from adjourn.schemas.state import Park
from adjourn.store import actions, runs, threads
from adjourn.store.database import Database
from tests.store.steps import Steps, both, response


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


def test_a_snapshot_is_of_one_moment(db: Database, steps: Steps) -> None:
    """A run is shown as parked exactly while it shows a pending action, whatever happens meanwhile."""
    for _ in range(30):
        claim = steps.claimed()
        (action_id,), _ = steps.open(claim, becomes=Park())
        (shown, items, pending), _ = both(
            partial(threads.snapshot, db, claim.run.thread_id), partial(steps.answer, action_id)
        )
        kinds = [item.body.kind for item in items]
        if pending:
            assert (shown[0].status, kinds) == ("parked", ["message", "suspension"])
        else:
            assert (shown[0].status, kinds) == ("queued", ["message", "suspension", "resolution"])


def test_threads_are_listed_newest_first_by_their_last_run(db: Database, steps: Steps) -> None:
    steps.end(steps.claimed(thread_id="thread-1"))
    run_id = steps.start(thread_id="thread-1").run_id
    steps.start(thread_id="thread-2")
    listed = threads.list(db)
    assert [(thread.thread_id, thread.status) for thread in listed] == [("thread-2", "queued"), ("thread-1", "queued")]
    assert (listed[1].run_id, listed[1].agent) == (run_id, "agent")
    assert threads.list(db, limit=1) == listed[:1]
    assert actions.pending(db) == []
