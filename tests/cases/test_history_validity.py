"""History validity: every call has exactly one result, the real one, whatever happened in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import NativeToolCallPart, NativeToolReturnPart, TextPart, ThinkingPart, ToolCallPart

from adjourn import Agent, App, Context, Tool, tool
from adjourn.schemas.records.messages import ModelTurn, ResultTurn, UserTurn
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.engine.conversation import conversation
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.crashes import Outage
from tests.cases.provider import Provider
from tests.cases.tools import DENIALS, WAYS, YES, Question, Reader, asking, counting, number_asked, q, wait_for_outputs
from tests.deployment import Deployment
from tests.world import AGENT, Counters, World, scripted

# --- death inside a tool -------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["plain", "plain_async"])
def test_a_kill_inside_a_tool_leaves_a_history_that_every_request_can_carry(live: Deployment, agent: str) -> None:
    worker = live.ready_worker()
    run = live.client.start(agent, "go")
    live.noted("in-b")
    wait_for_outputs(live, run, 1)
    worker.kill()
    live.effects.release("in-b")
    live.ready_worker()
    assert live.ended(run).output == "done"
    assert [live.effects.count(name) for name in ("a", "b", "in-b", "model")] == [1, 1, 2, 2]
    messages = live.client.thread(run.thread_id).state().messages
    assert [turn.content for turn in messages if isinstance(turn, ResultTurn)] == ["a", "b"]


def test_a_kill_behind_a_gate_does_not_ask_again(live: Deployment) -> None:
    worker = live.ready_worker()
    run = live.parked("asker")
    (action,) = live.client.pending(run_id=run.id)
    action.submit(YES)
    live.noted("behind-gate")
    worker.kill()
    live.effects.release("behind-gate")
    live.ready_worker()
    assert live.ended(run).output == "done"
    assert [live.effects.count(name) for name in ("fx", "model")] == [1, 2]
    assert [item.body.kind for item in live.client.items(run.id)].count("suspension") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_any_write_leaves_a_valid_history(build: Build, outage: Outage, when: str) -> None:
    """A turn with a finished, a gated and a failing call: at each of its writes the process dies."""
    fx = Counters()
    w = build(
        counting("a", fx, exclusive=True),
        asking("inline", fx, exclusive=True),
        model=scripted([call("a"), call("ask", x=1), call("nothing")], call("ask", x=2), say("done"), counters=fx),
    )
    outage.watch(w)
    w.start()
    drive_to_its_end(w)
    writes = outage.writes
    assert writes >= 7

    for number in range(1, writes + 1):
        before = dict(fx.seen)
        (outage.before_write if when == "before" else outage.after_write)(number)
        outage.survive(w, lambda: drive_to_its_end(w, w.enqueue().run_id))
        outage.restart(w)
        drive_to_its_end(w)
        (latest,) = runs.list(w.db, limit=1)
        assert (latest.status, latest.output, latest.turns) == ("completed", "done", 3)
        assert [o.content for o in w.outputs(latest.id) if o.tool == "ask"] == [{"x": x, "note": None} for x in (1, 2)]
        again = 1 if when == "before" else 0
        assert fx["model"] - before["model"] <= 3 + again, "a recorded turn is never asked of the model again"
        assert fx["a"] - before["a"] <= 1 + again, "a finished tool call is never run again"
        assert fx["fx"] - before["fx"] <= 2 + again


def drive_to_its_end(w: World, run_id: str | None = None) -> None:
    """Settle and say yes to whatever is asked until nothing is."""
    w.settle()
    while pending := w.pending():
        w.answer(pending[0], YES)


# --- what is new since the resume ---------------------------------------------------------------


ORDERS = [("plain", "ask"), ("ask", "plain")]


@pytest.mark.parametrize(("way", "order"), [*zip(WAYS, 2 * ORDERS, strict=True)])
def test_what_comes_after_the_answer_is_exactly_its_result_and_later_turns(
    build: Build, way: str, order: tuple[str, str]
) -> None:
    fx, reader = Counters(), Reader()
    calls = {"plain": call("plain"), "ask": call("ask", x=1)}
    w = build(asking(way, fx), counting("plain", fx), model=scripted([calls[name] for name in order], reader.step))
    run_id = w.start()
    last = w.items(run_id)[-1].seq
    assert conversation(w.items(run_id)) == (UserTurn(text="go"),), "a suspended turn is not in the conversation"

    w.answer(w.the_action(run_id), {"approved": True, "note": "yes"})
    delta = runs.items(w.db, run_id, last)
    assert [item.body.kind for item in delta] == ["resolution", "output", "response", "end"]
    assert delta[1].body.content == {"x": 1, "note": "yes"}  # type: ignore[union-attr]

    contents = {"plain": "plain", "ask": {"x": 1, "note": "yes"}}
    assert reader.results == [[contents[name] for name in order]]
    user, asked, *result_turns, said = conversation(w.items(run_id))
    assert (user, said) == (UserTurn(text="go"), ModelTurn(text="done"))
    assert isinstance(asked, ModelTurn)
    assert [turn.call_id for turn in result_turns if isinstance(turn, ResultTurn)] == [each.id for each in asked.calls]


def test_a_client_that_looks_at_each_pause_sees_every_turn_once(live: Deployment) -> None:
    live.effects.release("behind-gate")
    live.ready_worker()
    run = live.parked("mixed")
    before = live.client.thread(run.thread_id).state()
    assert [turn.kind for turn in before.messages] == ["user"]
    live.client.submit(before.pending[0].id, YES)
    live.ended(run)
    after = live.client.thread(run.thread_id).state()
    assert after.messages[:1] == before.messages
    assert [turn.kind for turn in after.messages[1:]] == ["model", "result", "result", "model"]
    assert [live.effects.count(name) for name in ("a", "fx")] == [1, 1]


# --- the result is what the tool returned ----------------------------------------------------------


def upload_inline(ctx: Context) -> dict[str, str]:
    ctx.ask(q, Question(prompt="Upload?"))
    return {"url": "u"}


def upload_entry(ctx: Context) -> dict[str, str]:
    if not ctx.suspend_history:
        ctx.suspend(q, Question(prompt="Upload?"))
    return {"url": "u"}


@pytest.mark.parametrize("upload", [upload_inline, upload_entry])
def test_the_result_is_the_tools_and_not_the_answer(build: Build, upload: Callable[..., Any]) -> None:
    reader = Reader()
    w = build(
        tool(name="upload", description="Upload.", wait_points=[q])(upload),
        model=scripted(call("upload"), reader.step),
    )
    for answer in (YES, {"approved": True, "note": "the answer"}, {"approved": False}):
        run_id = w.start()
        w.answer(w.the_action(run_id), answer)
        assert reader.results.pop() == [{"url": "u"}]
        assert [(o.outcome, o.content) for o in w.outputs(run_id)] == [("success", {"url": "u"})]


def test_an_empty_result_is_a_result(build: Build) -> None:
    values: list[Any] = [None, False, 0, "", [], {}]

    @tool(wait_points=[q])
    def empty(ctx: Context, n: int) -> Any:
        """Return nothing much."""
        ctx.ask(q, Question(prompt="?"))
        return values[n]

    reader = Reader()
    w = build(empty, model=scripted([call("empty", n=n) for n in range(len(values))], reader.step))
    for action in w.pending(w.start()):
        w.answer(action, YES)
    assert repr(reader.results) == repr([values])


# --- what the provider runs itself ------------------------------------------------------------------

SEARCH = NativeToolCallPart("web_search", {"query": "q3"}, tool_call_id="srv_1", provider_name="some")
FOUND = NativeToolReturnPart("web_search", {"hits": 1}, tool_call_id="srv_1", provider_name="some")
OTHER = NativeToolCallPart("web_search", {"query": "q4"}, tool_call_id="srv_2", provider_name="some")


ASK = ToolCallPart("ask", '{"x": 1}', tool_call_id="t:1")


@pytest.mark.parametrize(
    ("turn", "replayed"),
    [
        ([SEARCH, ASK], []),
        ([ASK, SEARCH], []),
        ([SEARCH, FOUND, ASK], ["srv_1"]),
        ([SEARCH, FOUND, OTHER, ASK], ["srv_1"]),
        ([FOUND, ASK], []),
        ([TextPart("hm"), SEARCH, OTHER, ASK], []),
    ],
    ids=["no result", "no result, last", "result", "one of two", "result alone", "two without"],
)
def test_a_provider_run_call_without_its_result_is_not_sent_after_the_resume(
    build: Build, turn: list[Any], replayed: list[str]
) -> None:
    fx, way = Counters(), "inline" if replayed else "entry"
    provider = Provider(turn, [TextPart("done")])
    w = build(asking(way, fx), counting("web_search", fx), model=provider)
    run_id = w.start()
    assert [action.name for action in w.pending(run_id)] == ["ask.q"]
    w.deploy(App(agents=[Agent(AGENT, model=provider, tools=[asking(way, fx), counting("web_search", fx)])]))
    w.answer(w.the_action(run_id), YES)
    assert (w.run(run_id).status, w.run(run_id).error) == ("completed", None)
    assert provider.native_ids() == replayed
    assert (fx["web_search"], fx["fx"]) == (0, 1), "a provider-run tool never runs here"
    assert [output.tool for output in w.outputs(run_id)] == ["ask"]


@pytest.mark.parametrize("nested", [False, True], ids=["the run's agent", "an agent that is a tool"])
def test_what_the_provider_ran_is_replayed_whole_over_two_turns_and_two_gates(build: Build, nested: bool) -> None:
    fx = Counters()
    found = NativeToolReturnPart(
        "web_search",
        [{"url": "https://example.org", "title": "Q3"}],
        tool_call_id="srv_1",
        provider_name="some",
        provider_details={"status": "completed"},
    )
    other_found = NativeToolReturnPart("web_search", [], tool_call_id="srv_2", provider_name="some")
    thinking = ThinkingPart("hm", signature="sig-1", provider_name="some")
    first: list[Any] = [thinking, SEARCH, found, TextPart("One hit."), ASK]
    second: list[Any] = [OTHER, other_found, ToolCallPart("ask", '{"x": 2}', tool_call_id="t:1")]
    provider = Provider(first, second, [TextPart("done")])
    tools: list[Any] = [asking("inline", fx), counting("web_search", fx)]

    def agents() -> App:
        inner = Agent("inner" if nested else AGENT, model=provider, tools=tools)
        outer = Agent(AGENT, model=scripted(call("inner", input="go"), say("done")), tools=[inner])
        return App(agents=[outer if nested else inner])

    w = build(*tools, model=provider)
    w.deploy(agents())
    run_id = w.start()
    for _ in range(2):
        w.deploy(agents())
        w.answer(w.the_action(run_id), YES)
    assert (w.run(run_id).status, fx["web_search"], fx["fx"]) == ("completed", 0, 2)
    replayed = [part for message in provider.sent[-1] if message.kind == "response" for part in message.parts]
    native = [part for part in replayed if not isinstance(part, ToolCallPart)]
    assert native == [thinking, SEARCH, found, TextPart("One hit."), OTHER, other_found]
    kinds = [part.part_kind for part in replayed]
    assert kinds == [part.part_kind for part in first + second], "each stands where it stood"
    ids = [part.tool_call_id for part in replayed if isinstance(part, ToolCallPart)]
    assert len(set(ids)) == 2, "calls of ours have ids of ours, whatever they were called"


def test_a_turn_of_nothing_but_an_orphan_does_not_poison_the_thread(build: Build) -> None:
    provider = Provider([SEARCH])
    w = build(counting("web_search", fx := Counters()), model=provider)
    for _ in range(2):
        assert w.run(w.start(thread_id="thr_1")).status == "completed"
    assert (provider.native_ids(), fx["web_search"]) == ([], 0)


# --- interrupted is not declined ----------------------------------------------------------------------

LIMIT = timedelta(milliseconds=50)


def stuck() -> None:
    threading.Event().wait(2)


async def stuck_async() -> None:
    await asyncio.sleep(60)


def slow_before(ctx: Context) -> None:
    stuck()


async def slow_before_async(ctx: Context) -> None:
    await stuck_async()


def slow_after(ctx: Context) -> None:
    ctx.ask(q, Question(prompt="Go on?"))
    stuck()


async def slow_after_async(ctx: Context) -> None:
    ctx.ask(q, Question(prompt="Go on?"))
    await stuck_async()


@pytest.mark.parametrize("body", [slow_before, slow_before_async, slow_after, slow_after_async])
def test_a_tool_over_its_time_limit_is_interrupted_and_nobody_is_said_to_have_declined(
    build: Build, body: Callable[..., Any]
) -> None:
    reader = Reader()
    w = build(
        tool(name="slow", description="Be slow.", wait_points=[q], timeout=LIMIT)(body),
        model=scripted(call("slow"), reader.step),
    )
    run_id = w.start()
    for action in w.pending(run_id):
        w.answer(action, YES)
    ((told,),) = reader.results
    assert told == "tool 'slow' timed out after 0.05 s and was interrupted; nobody declined it"
    assert [output.outcome for output in w.outputs(run_id)] == ["interrupted"]
    assert (w.run(run_id).status, w.pending()) == ("completed", [])


def test_every_way_to_end_without_a_result_reads_differently(build: Build) -> None:
    fx, reader = Counters(), Reader()

    def slow(ctx: Context, x: int) -> None:
        stuck()

    limited: Tool[..., Any] = tool(name="slow", description="Be slow.", timeout=LIMIT)(slow)
    calls = [call("ask", x=1), call("ask", x=2), call("slow", x=3)]
    w = build(asking("inline", fx), limited, model=scripted(calls, reader.step))
    run_id = w.start()
    for action, denial in zip(sorted(w.pending(run_id), key=number_asked), DENIALS[1:], strict=True):
        w.answer(action, **denial)
    assert sorted(output.outcome for output in w.outputs(run_id)) == ["declined", "failed", "interrupted"]
    ((declined, failed, interrupted),) = reader.results
    assert "declined" in declined
    assert "could not be answered" in failed
    assert "interrupted" in interrupted
    assert "timed out" in interrupted


def test_what_a_tool_does_after_it_was_interrupted_is_not_recorded(build: Build) -> None:
    """A sync tool goes on in its thread; it can open no wait then, and its result is dropped."""
    go_on, ended = threading.Event(), threading.Event()

    def late(ctx: Context) -> str:
        assert go_on.wait(30)
        try:
            ctx.ask(q, Question(prompt="Anybody there?"))
        finally:
            ended.set()
        return "late"

    w = build(
        tool(name="late", description="Be late.", wait_points=[q], timeout=LIMIT)(late),
        model=scripted(call("late"), say("done")),
    )
    run_id = w.start()
    go_on.set()
    assert ended.wait(30)
    assert [output.outcome for output in w.outputs(run_id)] == ["interrupted"]
    assert (w.pending(), w.run(run_id).status) == ([], "completed")
