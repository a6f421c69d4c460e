"""Starting runs and reading them."""

from __future__ import annotations

from functools import partial

import pytest

from adjourn.schemas.errors import RunIdClashError, ThreadBusyError
from adjourn.schemas.internal.state import Park
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import MessageItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import recovery as forgotten
from adjourn.store.postgres.runs import starts as runs
from tests.store.steps import WAKEUP_RETRY_SECONDS, Steps, at_once, slow_transaction


def test_a_start_writes_the_run_and_its_message(db: Database, steps: Steps) -> None:
    started = runs.start(
        db,
        run_id="run-1",
        thread_id="thread-1",
        agent="reporter",
        text="Grüße \x00 \N{GRINNING FACE}",
        limits=Limits(turns=7, tokens=100),
        enqueue=False,
    )
    assert (started.run_id, started.thread_id, started.created, started.due) == ("run-1", "thread-1", True, True)
    run = steps.run("run-1")
    assert (run.agent, run.status, run.turns, run.output, run.error) == ("reporter", "queued", 0, None, None)
    assert run.limits == Limits(turns=7, tokens=100)
    (item,) = runs.items(db, "run-1")
    assert (item.seq, item.body) == (1, MessageItem(text="Grüße \x00 \N{GRINNING FACE}"))
    assert item.at == run.created_at


def test_a_start_of_the_same_run_id_starts_nothing(db: Database, steps: Steps) -> None:
    first = steps.start(run_id="run-1", thread_id="thread-1", text="one")
    again = steps.start(run_id="run-1", thread_id="thread-1", text="one")
    with pytest.raises(RunIdClashError) as clash:
        steps.start(run_id="run-1", thread_id="thread-1", text="two")
    assert clash.value.differing == ("message",)
    assert (first.created, again.created) == (True, False)
    assert again.thread_id == first.thread_id
    assert [item.body for item in runs.items(db, "run-1")] == [MessageItem(text="one")]
    assert runs.list(db) == (steps.run("run-1"),)


def test_a_start_of_the_same_run_id_is_the_same_run_even_when_it_has_ended(steps: Steps) -> None:
    claim = steps.claimed(run_id="run-1", thread_id="thread-1")
    steps.end(claim)
    again = steps.start(run_id="run-1", thread_id="thread-1")
    assert not again.created
    assert steps.run("run-1").status == "completed"


@pytest.mark.parametrize("state", ["queued", "running", "parked"])
def test_a_busy_thread_refuses_and_says_by_what(steps: Steps, state: str) -> None:
    first = steps.start(thread_id="thread-1")
    if state != "queued":
        claim = steps.claim(first.run_id)
        if state == "parked":
            steps.open(claim, becomes=Park())
    with pytest.raises(ThreadBusyError) as caught:
        steps.start(thread_id="thread-1")
    assert (caught.value.thread_id, caught.value.run_id, caught.value.status) == ("thread-1", first.run_id, state)


def test_a_thread_takes_the_next_run_when_the_last_has_ended(steps: Steps) -> None:
    steps.end(steps.claimed(thread_id="thread-1"))
    assert steps.start(thread_id="thread-1").due


def test_enqueued_runs_wait_and_follow_in_order(steps: Steps) -> None:
    ids = [steps.start(thread_id="thread-1", enqueue=True).run_id for _ in range(4)]
    assert [steps.row(id).due for id in ids] == ["turn", None, None, None]
    assert steps.try_claim(ids[1]) is None
    for current, following in zip(ids, [*ids[1:], None], strict=True):
        written = steps.end(steps.claim(current))
        assert written.next_run_id == following


def test_a_run_waiting_behind_another_keeps_the_thread_busy(steps: Steps) -> None:
    first = steps.claimed(thread_id="thread-1")
    waiting = steps.start(thread_id="thread-1", enqueue=True)
    steps.end(first)
    with pytest.raises(ThreadBusyError) as caught:
        steps.start(thread_id="thread-1")
    assert caught.value.run_id == waiting.run_id


def test_of_many_starts_on_one_thread_one_wins(steps: Steps) -> None:
    for _ in range(20):
        thread_id = new_thread_id()

        def start(thread_id: str = thread_id) -> str:
            try:
                return steps.start(thread_id=thread_id).run_id
            except ThreadBusyError as busy:
                return f"busy by {busy.run_id}"

        results = at_once(*[start] * 4)
        (winner,) = [result for result in results if not result.startswith("busy")]
        assert results.count(f"busy by {winner}") == 3


def test_of_many_starts_of_one_run_one_creates_it(steps: Steps) -> None:
    for _ in range(20):
        run_id, thread_id = new_run_id(), new_thread_id()
        results = at_once(
            *[lambda run_id=run_id, thread_id=thread_id: steps.start(run_id=run_id, thread_id=thread_id)] * 4
        )
        assert sorted(result.created for result in results) == [False, False, False, True]
        assert steps.kinds(run_id) == ["message"]


def test_many_enqueued_at_once_all_get_a_place(steps: Steps) -> None:
    for _ in range(10):
        thread_id = new_thread_id()
        results = at_once(*[partial(steps.start, thread_id=thread_id, enqueue=True)] * 6)
        assert [result.due for result in results].count(True) == 1
        order = {result.run_id: steps.row(result.run_id).ordinal for result in results}
        assert len(set(order.values())) == 6
        current: str | None = next(result.run_id for result in results if result.due)
        done = []
        while current:
            done.append(current)
            current = steps.end(steps.claim(current)).next_run_id
        assert sorted(done) == sorted(order)
        assert done[1:] == sorted(done[1:], key=order.__getitem__)


def test_a_start_that_waited_for_the_thread_sees_that_it_is_busy(db: Database, database_url: str, steps: Steps) -> None:
    """Its snapshot is older than the run that made the thread busy; the index stands in for it."""
    steps.end(steps.claimed(thread_id="thread-1"))
    with slow_transaction(db, database_url) as slow:
        slow.run(runs.START, start_params("run-1", "thread-1"))
        enqueued = slow.then(lambda: steps.start(run_id="run-2", thread_id="thread-1", enqueue=True))
        slow.commit()
        assert not enqueued.result().due
    assert [run.id for run in runs.list(db, thread_id="thread-1", status="queued")] == ["run-2", "run-1"]


def test_a_run_enqueued_while_the_one_before_it_ends_is_not_forgotten(
    db: Database, database_url: str, steps: Steps
) -> None:
    """The end has a snapshot without the new run, so it makes nothing due. The sweep does."""
    claim = steps.claimed(thread_id="thread-1")
    with slow_transaction(db, database_url) as slow:
        slow.run(runs.START, start_params("run-2", "thread-1", enqueue=True))
        assert steps.end(claim).next_run_id is None
        slow.commit()
    assert steps.row("run-2").due is None
    assert forgotten.unsent(db, 10) == [WakeUp(run_id="run-2", due="turn")]
    assert forgotten.unsent(db, 10) == []
    steps.claim("run-2")


def test_items_after_a_seq(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    steps.end(claim)
    assert [item.seq for item in runs.items(db, claim.run.id, after_seq=1)] == [2]
    assert runs.items(db, "run-nobody-has") == ()


def test_get_of_no_run(db: Database) -> None:
    assert runs.get(db, "run-nobody-has") is None


def test_list_is_newest_first_and_can_be_narrowed(db: Database, steps: Steps) -> None:
    first = steps.start(thread_id="thread-1").run_id
    second = steps.start(thread_id="thread-2").run_id
    steps.claim(second)
    assert [run.id for run in runs.list(db)] == [second, first]
    assert [run.id for run in runs.list(db, limit=1)] == [second]
    assert [run.id for run in runs.list(db, thread_id="thread-1")] == [first]
    assert [run.id for run in runs.list(db, status="running")] == [second]


def start_params(run_id: str, thread_id: str, *, enqueue: bool = False) -> dict[str, object]:
    return {
        "run_id": run_id,
        "thread_id": thread_id,
        "agent": "agent",
        "body": '{"kind": "message", "text": "go"}',
        "limits": "{}",
        "state_version": 1,
        "enqueue": enqueue,
        "wakeup_retry_seconds": WAKEUP_RETRY_SECONDS,
    }
