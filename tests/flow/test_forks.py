"""Forks: a new thread that goes on from any item of another, which does not notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from adjourn import Agent, App, Client, Context, WaitPoint, tool
from adjourn.schemas.errors import ForkRefusedError, IllegalIdError, NotFoundError, NotRetryableError
from adjourn.schemas.internal.forks import CUT
from adjourn.schemas.records.items import Item, ItemBody, OutputItem, ResponseItem, RunFailure
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ModelRequest, ModelTurn, ResultTurn, Usage, UserTurn
from adjourn.schemas.records.runs import Run
from adjourn.tasks.engine.conversation import CLOSED_WITH_RUN
from adjourn.tasks.lifecycle.retention import prune
from adjourn.tasks.models.scripted import USAGE, ScriptedModel, call, say
from adjourn.worker.config.settings import Settings
from tests.store.steps import both
from tests.world import AGENT, Counters, World

THREAD = "thread-1"
GATED = "gated"
FAILING = "failing"
gate = WaitPoint("gate", suspend=dict[str, str], resume=str)


class Scene:
    """An agent whose turn has a quick call and a gated one, a worker that goes on when it is told to, and a client."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self.requests: list[ModelRequest] = []
        self.counters = Counters()

        @tool
        def note(number: int) -> str:
            self.counters.bump("noted")
            return f"noted {number}"

        @tool(wait_points=[gate])
        def gated(ctx: Context) -> str:
            ctx.run_once("effect", lambda: self.counters.bump("effect"))
            return f"let in by {ctx.ask(gate, {'prompt': 'May I?'})}"

        def model(*script: Any) -> ScriptedModel:
            return ScriptedModel(list(script), on_request=self.requests.append)

        both_calls = [call("note", number=1), call("gated")]
        agents = [
            Agent(AGENT, model("well")),
            Agent(GATED, model(say("I shall ask", *both_calls), "done"), tools=[note, gated]),
            Agent(FAILING, model(call("note", number=2)), tools=[note], limits=Limits(turns=1)),
        ]
        self.world = World(App(agents=agents), database_url, redis_url)
        self.client = Client(Settings(database_url=database_url, redis_url=redis_url), app=self.world.app)

    def run(self, agent: str = AGENT, said: str = "go", thread_id: str = THREAD, **options: Any) -> str:
        return self.world.start(said, agent=agent, thread_id=thread_id, **options)

    def let_in(self, run_id: str) -> None:
        self.world.answer(self.world.the_action(run_id), "Ada")

    def heard_next(self, thread_id: str) -> Any:
        """What the model is sent for the next message on a thread."""
        run_id = self.run(said="and now?", thread_id=thread_id)
        assert self.world.run(run_id).status == "completed"
        return self.requests[-1].conversation


@pytest.fixture
def scene(database_url: str, redis_url: str) -> Iterator[Scene]:
    made = Scene(database_url, redis_url)
    try:
        yield made
    finally:
        made.client.close()
        made.world.close()


def bodies(items: tuple[Item, ...]) -> list[ItemBody]:
    return [item.body for item in items]


def kinds(items: tuple[Item, ...]) -> list[str]:
    return [item.body.kind for item in items]


def error_of(run: Run) -> RunFailure:
    assert run.error is not None
    return run.error


# --- where a fork may be made ------------------------------------------------------------------------

GATED_RUN = ["message", "response", "output", "memo", "suspension", "resolution", "output", "response", "end"]
"""What is recorded of a run with a gate. Its two calls run side by side: three of these may change places."""


def expected(scene: Scene, run_id: str, seq: int) -> list[Any]:
    """The conversation of a fork at an item of a gated run."""
    heard: list[Any] = [UserTurn(text="go")]
    all_results = results_at(scene, run_id, seq)
    if all_results is not None:
        response = scene.world.items(run_id)[1].body
        assert isinstance(response, ResponseItem)
        heard.append(ModelTurn(text="I shall ask", calls=response.calls))
        heard += [
            ResultTurn(
                call_id=each.id,
                tool=each.tool,
                outcome="cancelled" if content == CLOSED_WITH_RUN else "success",
                content=content,
            )
            for each, content in zip(response.calls, all_results, strict=True)
        ]
    if seq >= len(GATED_RUN) - 1:  # its last response
        heard.append(ModelTurn(text="done"))
    return heard


def results_at(scene: Scene, run_id: str, seq: int) -> tuple[str, str] | None:
    """What the two calls of a gated run had come to by an item of it."""
    items = bodies(scene.world.items(run_id))[:seq]
    calls = [each.id for body in items if isinstance(body, ResponseItem) for each in body.calls]
    outputs = {body.call_id: body.content for body in items if isinstance(body, OutputItem)}
    first, second = [outputs.get(each, CLOSED_WITH_RUN) for each in calls] or (None, None)
    return None if first is None or second is None else (first, second)


@pytest.mark.parametrize("seq", range(1, len(GATED_RUN) + 1))
def test_a_fork_from_each_item_of_a_run_with_a_gate(scene: Scene, seq: int) -> None:
    run_id = scene.run(GATED)
    scene.let_in(run_id)
    items = scene.world.items(run_id)
    assert sorted(kinds(items)) == sorted(GATED_RUN)
    before, effects = scene.client.thread(THREAD).state(), dict(scene.counters.seen)

    fork = scene.client.fork(THREAD, run_id, seq)
    state = scene.client.thread(fork).state()
    (copy,) = state.runs
    assert (state.status, state.pending, state.usage_total, state.turns_total) == ("idle", (), Usage(), 0)
    assert list(state.messages) == expected(scene, run_id, seq)
    assert copy.status == ("completed" if seq == len(items) else "cancelled")
    assert copy.output == ("done" if seq == len(items) else None)
    copied = scene.world.items(copy.id)
    assert bodies(copied)[:seq] == bodies(items)[:seq]
    assert [item.seq for item in copied] == list(range(1, len(copied) + 1))
    assert kinds(copied)[-1] == "end"
    assert kinds(copied).count("suspension") == kinds(copied).count("resolution")
    assert scene.client.check(copy.id).error is None
    assert scene.world.db.one(text("select seq from adjourn.runs where id = :id"), {"id": copy.id}).seq == len(copied)

    assert list(scene.heard_next(fork)) == [*expected(scene, run_id, seq), UserTurn(text="and now?")]
    after = scene.client.thread(fork).state()
    assert (after.usage_total, after.turns_total) == (USAGE, 1)
    assert (scene.client.thread(THREAD).state(), scene.counters.seen) == (before, effects)


def test_what_a_fork_at_each_item_knows_is_what_was_recorded_by_then(scene: Scene) -> None:
    run_id = scene.run(GATED)
    scene.let_in(run_id)
    known = [results_at(scene, run_id, seq) for seq in range(1, len(GATED_RUN) + 1)]
    assert known[0] is None
    assert known[1] == (CLOSED_WITH_RUN, CLOSED_WITH_RUN)
    assert known[-1] == ("noted 1", "let in by Ada")


def test_a_fork_from_the_middle_of_three_runs(scene: Scene) -> None:
    first, second, third = [scene.run(said=said) for said in ("one", "two", "three")]
    fork = scene.client.fork(THREAD, second)
    runs = scene.client.thread(fork).state().runs
    assert [run.status for run in runs] == ["completed", "completed"]
    assert {run.id for run in runs}.isdisjoint({first, second, third})
    assert [turn.text for turn in scene.heard_next(fork)] == ["one", "well", "two", "well", "and now?"]
    assert [turn.text for turn in scene.heard_next(THREAD)][-3:] == ["three", "well", "and now?"]
    assert [turn.text for turn in scene.client.thread(scene.client.fork(fork)).state().messages][-2:] == [
        "and now?",
        "well",
    ]


def test_a_fork_of_a_parked_thread_is_of_what_has_ended(scene: Scene) -> None:
    scene.run(said="one")
    parked = scene.run(GATED, said="two")
    action = scene.world.the_action(parked)
    fork = scene.client.fork(THREAD)
    assert [turn.text for turn in scene.heard_next(fork)] == ["one", "well", "and now?"]
    assert scene.client.pending(fork) == []

    scene.world.answer(action, "Ada")
    assert scene.world.run(parked).output == "done"
    assert scene.counters.seen == {"noted": 1, "effect": 1}


def test_a_fork_of_a_run_that_is_parked_waits_for_nothing(scene: Scene) -> None:
    parked = scene.run(GATED)
    action = scene.world.the_action(parked)
    fork = scene.client.fork(THREAD, parked)
    (copy,) = scene.client.thread(fork).state().runs
    assert (copy.status, copy.error) == ("cancelled", CUT.error)
    assert [each.id for each in scene.client.pending()] == [action.id], "the one of the old thread"
    scene.client.cancel_run(copy.id)
    scene.world.sweep()
    assert scene.client.get_run(copy.id) == copy
    assert [event.kind for event in scene.client.thread(fork).events(timeout=0)][-2:] == ["item", "end"]
    assert "suspension" not in {event.kind for event in scene.client.thread(fork).events(timeout=0)}
    assert len(scene.heard_next(fork)) == 5

    scene.let_in(parked)
    assert scene.world.run(parked).output == "done"
    assert scene.counters.seen == {"noted": 1, "effect": 1}


def test_a_run_may_be_forked_while_a_worker_has_it_in_hand(database_url: str, redis_url: str) -> None:
    """Even from inside: the fork knows the call that makes it as one without a result."""
    forks: list[str] = []

    @tool
    def branch(ctx: Context) -> str:
        forks.append(client.fork(ctx.thread_id, ctx.run_id))
        return "branched"

    model = ScriptedModel([call("branch"), "done"])
    with Client(Settings(database_url=database_url, redis_url=redis_url)) as client:
        made = World(App(agents=[Agent(AGENT, model, tools=[branch])]), database_url, redis_url)
        try:
            run_id = made.start()
            assert (made.run(run_id).output, made.run(run_id).turns, len(forks)) == ("done", 2, 1)
            copy = client.thread(forks[0]).state()
            assert [turn.content for turn in copy.messages if isinstance(turn, ResultTurn)] == [CLOSED_WITH_RUN]
            made.sweep()
            assert made.run(made.start(thread_id=forks[0])).output == "done"
        finally:
            made.close()


def test_a_run_that_waits_behind_another_brings_what_is_known_of_that(scene: Scene) -> None:
    scene.run(GATED, said="one")
    behind = scene.run(said="two", enqueue=True)
    fork = scene.client.fork(THREAD, behind)
    assert [run.status for run in scene.client.thread(fork).state().runs] == ["cancelled", "cancelled"]
    heard = scene.heard_next(fork)
    assert [turn.text for turn in heard if isinstance(turn, UserTurn)] == ["one", "two", "and now?"]
    assert [turn.content for turn in heard if isinstance(turn, ResultTurn)] == ["noted 1", CLOSED_WITH_RUN]


def test_the_agent_of_the_last_copied_run_is_the_one_that_is_sent_to(scene: Scene) -> None:
    scene.let_in(scene.run(GATED))
    scene.run()
    first = scene.client.thread(THREAD).state().runs[0].id
    sent = scene.client.thread(scene.client.fork(THREAD, first)).send("again")
    assert sent.agent == GATED


# --- the copies are to be read -----------------------------------------------------------------------


def test_the_copy_of_a_failed_run_cannot_be_retried(scene: Scene) -> None:
    """Its memos and waits are not its own: what it did would be done again."""
    failed = scene.run(FAILING)
    original = scene.world.run(failed)
    assert original.status == "failed"
    (copy,) = scene.client.thread(scene.client.fork(THREAD)).state().runs
    assert (copy.status, error_of(copy).type) == ("failed", "Forked")
    assert error_of(copy).data == error_of(original).model_dump()
    assert bodies(scene.world.items(copy.id)) == bodies(scene.world.items(failed))
    with pytest.raises(NotRetryableError):
        scene.client.retry(copy.id)
    scene.client.retry(failed, limits=Limits(turns=2))


def test_a_fork_before_a_retry_ends_as_the_run_had_ended_then(scene: Scene) -> None:
    failed = scene.run(FAILING)
    seq = len(scene.world.items(failed))
    scene.client.retry(failed, limits=Limits(turns=2))
    (copy,) = scene.client.thread(scene.client.fork(THREAD, failed, seq)).state().runs
    assert (copy.status, error_of(copy).type) == ("failed", "Forked")
    (copy,) = scene.client.thread(scene.client.fork(THREAD, failed)).state().runs
    assert copy.status == "cancelled"


def test_a_fork_outlives_the_thread_that_it_came_from(scene: Scene) -> None:
    scene.run(said="one")
    scene.world.advance(40 * 86_400)
    fork = scene.client.fork(THREAD)
    assert prune(scene.world.store, days=30) == 1
    with pytest.raises(NotFoundError):
        scene.client.thread(THREAD).state()
    assert [turn.text for turn in scene.heard_next(fork)] == ["one", "well", "and now?"]


# --- the same fork, another one, none ----------------------------------------------------------------


def test_the_same_fork_is_made_once(scene: Scene) -> None:
    run_id = scene.run()
    assert scene.client.fork(THREAD, run_id, 2, new_thread_id="mine") == "mine"
    scene.heard_next("mine")
    state = scene.client.thread("mine").state()
    assert scene.client.fork(THREAD, run_id, 2, new_thread_id="mine") == "mine"
    assert scene.client.thread("mine").state() == state
    assert scene.client.fork(THREAD) != scene.client.fork(THREAD)


def test_two_that_make_the_same_fork_at_once_both_get_it(scene: Scene) -> None:
    run_id = scene.run()
    for number in range(20):
        into = f"fork-{number}"

        def fork(into: str = into) -> str:
            return scene.client.fork(THREAD, run_id, new_thread_id=into)

        assert both(fork, fork) == (into, into)
        assert len(scene.client.thread(into).state().runs) == 1


@pytest.mark.parametrize("other", ["a thread", "the thread itself", "another fork"])
def test_a_fork_takes_no_thread_that_is_there(scene: Scene, other: str) -> None:
    run_id = scene.run()
    into = THREAD if other == "the thread itself" else "mine"
    if other == "a thread":
        scene.run(thread_id="mine")
    elif other == "another fork":
        scene.client.fork(THREAD, run_id, 1, new_thread_id="mine")
    before = scene.client.thread(into).state()
    with pytest.raises(ForkRefusedError, match=f"{into} is another thread"):
        scene.client.fork(THREAD, run_id, 2, new_thread_id=into)
    assert scene.client.thread(into).state() == before


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("nobody",), NotFoundError, "no thread nobody"),
        (("a b",), NotFoundError, "no thread a b"),
        ((THREAD, "run_none"), NotFoundError, f"no run of thread {THREAD}: run_none"),
        ((THREAD, "elsewhere"), NotFoundError, f"no run of thread {THREAD}: elsewhere"),
        ((THREAD, "a b"), NotFoundError, "no run a b"),
        ((THREAD, "mine", 0), NotFoundError, "no item of run mine: 0"),
        ((THREAD, "mine", -1), NotFoundError, "no item of run mine: -1"),
        ((THREAD, "mine", 99), NotFoundError, "no item of run mine: 99"),
        ((THREAD, "mine", 2**40), NotFoundError, f"no item of run mine: {2**40}"),
        ((THREAD, None, 1), ForkRefusedError, "an item was named without its run"),
    ],
)
def test_what_is_not_there_is_not_forked(
    scene: Scene, arguments: tuple[Any, ...], error: type[Exception], said: str
) -> None:
    scene.run(run_id="mine")
    scene.run(run_id="elsewhere", thread_id="thread-2")
    with pytest.raises(error, match=said):
        scene.client.fork(*arguments)
    assert len(scene.client.threads()) == 2


def test_a_fork_of_nothing_is_refused(scene: Scene) -> None:
    scene.run(GATED)
    with pytest.raises(ForkRefusedError, match="no run of it has ended; wait for one, or name a run_id="):
        scene.client.fork(THREAD)
    with pytest.raises(IllegalIdError):
        scene.client.fork(THREAD, new_thread_id="a b")
    assert len(scene.client.threads()) == 1
