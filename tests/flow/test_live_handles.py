"""Live handles: a thread and a run with their verbs, stored as JSON and connected again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from adjourn import Client, Handle, NotFoundError, Run, RunEndedError, RunHandle, ThreadHandle, UnusableHandleError
from adjourn.schemas.records.runs import WakeUp
from adjourn.worker.config.settings import Settings
from tests.flow.handles_app import app
from tests.world import World


@pytest.fixture
def world(database_url: str, redis_url: str) -> Iterator[World]:
    made = World(app, database_url, redis_url)
    yield made
    made.close()


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    with Client(Settings(database_url=database_url, redis_url=redis_url)) as made:
        yield made


def work(world: World, run_id: str | None) -> None:
    assert run_id is not None
    for due in ("turn", "reentry"):
        world.wakeups.publish(WakeUp(run_id=run_id, due=due))
    world.settle()


def test_a_started_run_is_live(world: World, client: Client) -> None:
    run = client.start("approver", "do it")
    assert isinstance(run, RunHandle)
    assert run.state().status == "queued"
    work(world, run.id)
    waiting = run.wait(timeout=1)
    assert (waiting.status, waiting.run_id) == ("pending", run.id)
    assert waiting.pending is not None
    assert waiting.pending.submit().status == "accepted"
    work(world, run.id)
    assert run.wait(timeout=1).text == "action performed"
    state = run.state()
    assert isinstance(state, Run)
    assert state == client.get_run(run.id)
    assert (state.status, state.output) == ("completed", "action performed")
    events = list(run.events())
    assert [event.kind for event in events][-1] == "end"
    assert list(run.events(events[1].id)) == events[2:]


def test_a_run_is_waited_for_watched_and_cancelled_apart_from_what_waits_behind_it(
    world: World, client: Client
) -> None:
    thread = client.thread("order-17")
    first = thread.send("do it", agent="approver")
    work(world, first.id)
    second = thread.send("and then", when_busy="enqueue")
    assert thread.wait(timeout=1).run_id == first.id
    assert first.thread == second.thread == thread
    assert first.cancel("no", identity="ada").status == "cancelled"
    work(world, second.id)
    assert {event.run_id for event in first.events()} == {first.id}
    with pytest.raises(RunEndedError, match="cancelled"):
        first.wait()
    assert second.wait(timeout=1).run_id == second.id


def test_a_thread_carries_its_verbs(world: World, client: Client) -> None:
    thread = client.thread("order-17")
    assert thread.snapshot().state == "idle"
    with pytest.raises(NotFoundError, match="order-17"):
        thread.state()
    work(world, thread.send("do it", agent="approver").id)
    assert thread.snapshot().state == "suspended"
    (pending,) = thread.state().pending
    work(world, pending.submit().run_id)
    assert thread.wait(timeout=1).text == "action performed"
    assert [event.kind for event in thread.events(timeout=0)][-1] == "end"
    assert thread.send("again").agent == "approver", "the agent of its newest run"
    thread.cancel()
    assert thread.snapshot().state == "done"


def test_a_thread_is_cancelled_with_what_waits_behind(world: World, client: Client) -> None:
    thread = client.thread().spawn("approver")
    work(world, thread.send("do it").id)
    thread.wake("and then", when_busy="enqueue")
    thread.cancel("no")
    assert [run.status for run in thread.state().runs] == ["cancelled", "cancelled"]


def test_a_handle_is_stored_and_connected_again(world: World, client: Client) -> None:
    thread = client.thread("order-17").spawn("approver", name="release")
    run = thread.send("do it")
    work(world, run.id)
    for each in (thread, run):
        stored = each.model_dump_json()
        again = client.handle(stored)
        assert (type(again), again) == (type(each), each)
        assert again.wait(timeout=1) == each.wait(timeout=1)
        assert client.handle(type(each).model_validate_json(stored)) == each
        assert client.handle(pickle.loads(pickle.dumps(each))).wait(timeout=1) == each.wait(timeout=1)
    assert len({thread, run, client.handle(run)}) == 2


def test_a_run_that_is_not_on_its_thread_is_not_found(world: World, client: Client) -> None:
    run = client.start("approver", "do it")
    for thread_id in (run.thread_id, "thr_none"):
        with pytest.raises(NotFoundError):
            client.handle(RunHandle(id="run_none", thread_id=thread_id, agent="approver")).wait()


def test_a_handle_without_a_client_says_how_it_is_connected() -> None:
    handles: tuple[Handle, ...] = (
        ThreadHandle(thread_id="order-17"),
        RunHandle(id="run_1", thread_id="order-17", agent="approver"),
    )
    for handle in handles:
        with pytest.raises(UnusableHandleError, match=r"has no client; connect it with client\.handle\(handle\)"):
            handle.wait()
