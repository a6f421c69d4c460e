"""What whoever watches or waits for a thread hears of gates that open in the runs below it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from adjourn import Agent, Context, Limits, NestedEvent, SubAgent, WaitPoint, call, tool
from adjourn.schemas.errors import WaitTimeoutError
from adjourn.schemas.records.events import THREAD_START, Cursor, DeltaEvent, Event, RefreshEvent
from adjourn.schemas.records.runs import Run
from adjourn.store import results
from adjourn.store.faulty import Act
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import MAX_EVENT_BYTES, STREAM, Events
from adjourn.tasks.answers.ends import cancel
from adjourn.tasks.lifecycle.sweep import sweep
from adjourn.tasks.streaming.viewer import Viewer
from adjourn.worker.text.timeline import following
from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import ROOT
from tests.families import Ask, boss, child_of, digger, last_result
from tests.flow.conftest import Plant
from tests.flow.watching import NOBODY_LISTENS, Watching, client_of, seen, shapes, thread_of
from tests.processes import ChildProcess
from tests.waiting import LIMIT_SECONDS
from tests.world import Counters, World, scripted

Family = Callable[..., World]
GATE_SECONDS = 60
gate = WaitPoint("gate", suspend=Ask, resume=bool, timeout=timedelta(seconds=GATE_SECONDS), on_timeout="error")


@tool(wait_points=[gate])
def decide(ctx: Context) -> bool:
    """Ask, for a while."""
    return ctx.ask(gate, Ask(prompt="Now?"))


@pytest.fixture
def family(plant: Plant, counters: Counters) -> Family:
    """A world with a boss that hands out these tasks, one digger each."""

    def make(*tasks: str) -> World:
        calls = [call("digger", task=task) for task in tasks]
        return plant(boss(SubAgent(digger(counters)), *calls, counters=counters, limits=Limits(turns=None)))

    return make


def nested(events: list[Event]) -> list[tuple[str, str]]:
    """Which gates below were told of, and as what."""
    return [(each.action.prompt or "", each.action.status) for each in events if isinstance(each, NestedEvent)]


def others(events: list[Event]) -> list[Event]:
    return [each for each in events if not isinstance(each, NestedEvent)]


def has(prompt: str, status: str) -> Callable[[list[Event]], bool]:
    return lambda events: (prompt, status) in nested(events)


# --- watching ------------------------------------------------------------------------------------


def test_who_has_nothing_but_the_stream_can_answer_a_gate_below(family: Family) -> None:
    w = family("gold")
    run_id = w.enqueue(agent="boss").run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        told = watching.until(nested)[-1]
        assert isinstance(told, NestedEvent)
        child = child_of(w, run_id)
        (action,) = w.pending()
        assert told.action == action
        assert (told.run_id, told.at) == (child.id, action.opened_at)
        assert (action.name, action.prompt, action.origin.block_path) == (
            "send.approval", "Send gold?", ("boss", "digger", "send"),
        )  # fmt: skip
        assert (action.resume_schema["type"], action.origin.thread_id) == ("boolean", child.thread_id)
        w.answer(told.action.id, True)
        watching.until_end("completed")
        live = watching.until(has("Send gold?", "submitted"))
    assert nested(live) == [("Send gold?", "pending"), ("Send gold?", "submitted")]
    assert [each for each in others(live) if shapes([each]) != ["parked"]] == seen(w, thread_of(w, run_id))


def test_who_joins_again_is_told_anew_what_is_open_and_nothing_else_twice(family: Family) -> None:
    w = family("gold", "tin")
    thread_id = thread_of(w, w.start(agent="boss"))
    open_gates = [("Send gold?", "pending"), ("Send tin?", "pending")]
    everything = seen(w, thread_id)
    assert nested(everything) == open_gates
    assert shapes(everything)[-3:] == ["parked", "nested", "nested"]
    for place, event in enumerate(everything):
        again = seen(w, thread_id, event.id)
        assert others(again) == others(everything[place + 1 :])
        assert nested(again) == open_gates
    w.redis.flushdb()
    last = everything[-1].id
    w.answer(w.pending()[0], True)
    assert nested(seen(w, thread_id, last)) == open_gates[1:]
    w.answer(w.pending()[0], True)
    rest = seen(w, thread_id, last)
    assert shapes(rest)[-1] == "completed"
    assert rest == seen(w, thread_id)[len(others(everything)) - 1 :], "and of those that are over, nothing"


def test_gates_are_told_one_by_one_and_so_are_their_ends(family: Family) -> None:
    w = family("gold", "tin")
    run_id = w.enqueue(agent="boss").run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        watching.until(lambda events: len(nested(events)) == 2)
        first, _ = w.pending()
        w.answer(first, kind="cancel", reason="no")
        watching.until(has(first.prompt or "", "cancelled"))
        cancel(w.services, run_id, reason=None, by=None)
        live = watching.until(lambda events: len(nested(events)) == 4)
    assert sorted(nested(live)[:2]) == [("Send gold?", "pending"), ("Send tin?", "pending")]
    assert nested(live)[2:] == [("Send gold?", "cancelled"), ("Send tin?", "cancelled")]


def test_a_gate_of_a_grandchild_is_told_to_all_above_it(plant: Plant, counters: Counters) -> None:
    middle = Agent(
        "middle", model=scripted(call("digger", task="gold"), last_result), tools=[SubAgent(digger(counters))]
    )
    w = plant(boss(SubAgent(middle), call("middle", task="go"), counters=counters))
    run_id = w.enqueue(agent="boss").run_id
    w.settle_one()
    below = child_of(w, run_id)
    with Watching(w, thread_of(w, run_id)) as at_root, Watching(w, below.thread_id) as in_between:
        w.settle()
        for watching in (at_root, in_between):
            told = watching.until(nested)[-1]
            assert isinstance(told, NestedEvent)
            assert told.action.origin.block_path == ("boss", "middle", "digger", "send")
        w.answer(w.pending()[0], True)
        for watching in (at_root, in_between):
            watching.until(has("Send gold?", "submitted"))
    at_leaf = seen(w, child_of(w, below.id).thread_id)
    assert (nested(at_leaf), "suspension" in shapes(at_leaf)) == ([], True), "there it is an item like any other"


def test_without_redis_gates_below_are_told_from_postgres(family: Family) -> None:
    w = family("gold")
    run_id = w.enqueue(agent="boss").run_id
    with (
        connect(NOBODY_LISTENS) as gone,
        Watching(w, thread_of(w, run_id), events=Events(gone, w.db.signing_key)) as watching,
    ):
        w.settle()
        watching.until(has("Send gold?", "pending"))
        w.answer(w.pending()[0], True)
        watching.until(has("Send gold?", "submitted"))
        assert shapes(others(watching.until_end("completed")))[-1] == "completed"


def test_the_end_of_a_gate_is_told_where_redis_is_never_quiet_and_does_not_tell(
    plant: Plant, counters: Counters
) -> None:
    timed = Agent("timed", model=scripted(call("decide"), last_result), tools=[decide])
    w = plant(boss(SubAgent(timed), call("timed", task="gold"), counters=counters))
    run_id = w.start(agent="boss")
    thread_id = thread_of(w, run_id)
    piece = DeltaEvent(id="1-3", run_id=run_id, call_id="other", attempt="a", part=0, offset=0, text="x")
    w.redis.delete(STREAM + thread_id)  # with what it says of the gate
    statuses = []
    for event in Viewer(w.store, w.services.events, thread_id, Cursor()).read(LIMIT_SECONDS):
        if isinstance(event, NestedEvent):
            statuses.append(event.action.status)
            if event.action.status != "pending":
                break
            w.advance(GATE_SECONDS * 2)
            sweep(w.services)  # and nobody drives what is due now
        w.services.events.publish(thread_id, [piece])
    assert statuses == ["pending", "expired"]


def test_more_gates_than_a_page_are_all_told(family: Family) -> None:
    tasks = [f"{number:03}" for number in range(results.NESTED_PER_PAGE + 5)]
    w = family(*tasks)
    told = nested(seen(w, thread_of(w, w.start(agent="boss"))))
    assert sorted(told) == [(f"Send {task}?", "pending") for task in tasks]


def test_a_thread_without_children_is_not_looked_below(plant: Plant, counters: Counters) -> None:
    def refuse(act: Act) -> None:
        assert act.name != "streams.below", "nothing is below"

    w = plant(digger(counters))
    w.store.before = refuse
    run_id = w.enqueue("gold", agent="digger").run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        watching.until_end("parked")
        w.answer(w.the_action(run_id), True)
        assert nested(watching.until_end("completed")) == []
    assert w.redis.keys(STREAM + "*") == [STREAM + thread_of(w, run_id)], "nothing is published elsewhere"


def test_redis_says_at_once_that_a_gate_below_opened_and_that_it_ended(family: Family) -> None:
    w = family("gold")
    thread_id = thread_of(w, w.start(agent="boss"))

    def told() -> list[Event]:
        entries = w.services.events.read(thread_id)
        return [event for entry in entries for event in entry.events if event.id == THREAD_START]

    (action,) = w.pending()
    look = RefreshEvent(id=THREAD_START, run_id=action.origin.run_id)
    assert told() == [look]
    w.answer(action, True)
    assert told() == [look, look]


def test_a_gate_that_is_too_large_for_redis_is_told(family: Family) -> None:
    w = family("x" * MAX_EVENT_BYTES)
    run_id = w.enqueue(agent="boss").run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        ((prompt, status),) = nested(watching.until(nested))
    assert (len(prompt) > MAX_EVENT_BYTES, status) == (True, "pending")


def test_deltas_that_came_before_a_gate_below_do_not_come_again(family: Family) -> None:
    w = family("gold")
    run_id = w.start(agent="boss")
    thread_id = thread_of(w, run_id)
    last = seen(w, thread_id)[-3].id
    place = str(Cursor.parse(last).place)
    piece = DeltaEvent(id=place, run_id=run_id, call_id="c", attempt="a", part=0, offset=0, text="x")
    w.services.events.publish(thread_id, [piece])
    with Watching(w, thread_id, last) as watching:
        live = watching.until(lambda events: "delta" in shapes(events))
    with Watching(w, thread_id, live[-1].id) as watching:
        told = watching.until(nested)[-1]
    with Watching(w, thread_id, told.id) as watching:
        w.answer(w.pending()[0], True)
        assert "delta" not in shapes(watching.until_end("completed"))


def test_following_a_run_tells_of_gates_below_it(family: Family) -> None:
    w = family("gold")
    run_id = w.start(agent="boss")
    with client_of(w) as client:
        assert nested(list(client.follow(run_id, timeout=0))) == [("Send gold?", "pending")]
        (action,) = w.pending()
        lines = []
        for line in following(client.follow(run_id, timeout=LIMIT_SECONDS)):
            lines.append(line)
            if line.startswith("waits"):
                w.answer(action, True)
    assert f"waits  {action.id}  send.approval  Send gold?" in lines
    assert any(f"{action.id} of boss / digger / send submitted" in line for line in lines)
    assert any(line.endswith("→ true") for line in lines)
    assert lines[-1].endswith("completed")


# --- waiting ---------------------------------------------------------------------------------------


def test_a_wait_goes_on_while_there_is_nothing_to_answer(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    w = family("gold")
    run_id = w.enqueue(agent="boss").run_id
    w.settle_one()
    looks = Counters()
    with client_of(w) as client:
        look = client.get_run

        def counted(id: str) -> Run:
            if looks.bump("look") == 2:
                w.settle()
            return look(id)

        monkeypatch.setattr(client, "get_run", counted)
        assert client.wait(run_id, until=("parked",), timeout=0).status == "parked", "the status alone"
        looks.seen.clear()
        assert client.wait(run_id, timeout=LIMIT_SECONDS).status == "parked"
        assert looks["look"] == 2, "parked at the first, and something to answer at the second"
        (action,) = client.pending(run_id=run_id)
        w.answer(action, True)
        assert client.wait(run_id, timeout=0).status == "completed"


def test_a_wait_for_a_run_whose_child_works_runs_out(family: Family) -> None:
    w = family("gold")
    run_id = w.enqueue(agent="boss").run_id
    w.settle_one()
    with client_of(w) as client, pytest.raises(WaitTimeoutError, match=r"something to answer, .* \(now parked\)"):
        client.wait(run_id, timeout=0.01)


# --- with real workers -----------------------------------------------------------------------------


def test_run_wait_comes_back_when_a_gate_below_opens_and_the_stream_says_all_it_takes(
    deploy: Deploy, process: Callable[..., ChildProcess]
) -> None:
    with deploy() as d:
        d.ready_worker()
        env = {**d.settings.as_environment(), **d.effects.environment}
        line = [sys.executable, "-m", "adjourn", "run", "chief", "go", "--wait", "--timeout", "60"]
        waiting = [process([*line, *more], env=env, cwd=ROOT) for more in ((), ("--json",))]
        for each in waiting:
            each.wait_for_log("parked")
        d.noted("second", 2)
        assert [each.exit_code for each in waiting] == [None, None], "parked, and their children are at work"
        d.effects.release("second")
        assert [each.wait() for each in waiting] == [0, 0]

        said, document = waiting[0].log, waiting[1].log
        run = json.loads(document[document.index("{\n") :])
        (action,) = d.client.pending(run_id=run["id"])
        assert run["status"] == "parked"
        assert [(each["id"], each["prompt"]) for each in run["pending"]] == [(action.id, "May 2 be?")]
        assert "ask.q  May 2 be?" in said.splitlines()[-1]

        heard: list[Event] = []
        for event in d.client.thread(run["thread_id"]).events(timeout=LIMIT_SECONDS):
            heard.append(event)
            if isinstance(event, NestedEvent) and event.action.status == "pending":
                assert event.action.origin.block_path == ("chief", "careful", "ask")
                assert d.client.submit(event.action.id, YES).ok
            if shapes([event]) == ["completed"]:
                break
        assert nested(heard) == [("May 2 be?", "pending"), ("May 2 be?", "submitted")]
        (action,) = d.client.pending()
        assert d.client.submit(action.id, YES).ok
        for each in d.client.threads():
            d.ended(each.run_id)
