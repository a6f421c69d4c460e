"""No crosstalk: an answer reaches the run, the call and the wait that it is for, and goes no further."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from adjourn import Context, Resume, Tool, WaitPoint, tool
from adjourn.schemas.records.entries import SuspendRecord
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.models.scripted import call, call_raw, say
from tests.cases.conftest import Build
from tests.cases.races import at_once
from tests.cases.tools import WAYS, YES, Question, Verdict, asking, asking_twice, q, written
from tests.deployment import Deployment
from tests.world import Counters, World, scripted

# --- two identical runs --------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_two_identical_runs_in_one_process_do_not_mix(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted([call_raw("ask", '{"x": 1}', id="t:1")], say("done")))
    r1, r2 = w.start(), w.start()
    a1, a2 = w.the_action(r1), w.the_action(r2)
    assert (a1.input, a1.name, a1.origin.block_path) == (a2.input, a2.name, a2.origin.block_path)
    w.answer(a2, {"approved": True, "note": "b"})
    assert (w.run(r1).status, w.run(r2).status) == ("parked", "completed")
    w.answer(a1, {"approved": True, "note": "a"})
    assert [o.content for o in w.outputs(r1)] == [{"x": 1, "note": "a"}]
    assert [o.content for o in w.outputs(r2)] == [{"x": 1, "note": "b"}]


@pytest.mark.parametrize("way", WAYS)
def test_many_identical_runs_that_are_driven_at_once_do_not_mix(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted([call("ask", x=1), call("ask", x=1)], say("done")))
    run_ids = [w.enqueue().run_id for _ in range(4)]
    w.wakeups.waiting.clear()
    at_once([partial(drive, w.services, WakeUp(run_id=run_id, due="turn")) for run_id in run_ids])
    asked = {run_id: w.pending(run_id) for run_id in run_ids}
    at_once([partial(answer_both, w, run_id, asked[run_id]) for run_id in reversed(run_ids)])
    w.wakeups.waiting.clear()
    at_once([partial(drive, w.services, WakeUp(run_id=run_id, due="reentry")) for run_id in run_ids])
    for run_id in run_ids:
        notes = {action.origin.tool_call_id: f"{run_id} {n}" for n, action in enumerate(asked[run_id])}
        assert {o.call_id: o.content["note"] for o in w.outputs(run_id)} == notes
        assert w.run(run_id).status == "completed"


def answer_both(w: World, run_id: str, actions: list[Any]) -> None:
    for n, action in enumerate(actions):
        w.answer(action, {"approved": True, "note": f"{run_id} {n}"}, settle=False)


def test_runs_with_one_request_id_cannot_be_answered_by_it(build: Build) -> None:
    @tool(wait_points=[q])
    def ask(ctx: Context) -> str | None:
        """Ask under an id of its own."""
        return ctx.ask(q, Question(prompt="May I?"), request_id="req-1").note

    w = build(ask, model=scripted(call("ask"), say("done")))
    r1, r2 = w.start(), w.start()
    ambiguous = w.answer("req-1", YES)
    assert (ambiguous.status, "ambiguous" in ambiguous.detail) == ("unknown", True)
    assert [w.run(each).status for each in (r1, r2)] == ["parked", "parked"]
    w.answer(w.the_action(r2), {"approved": True, "note": "b"})
    assert w.answer("req-1", {"approved": True, "note": "a"}).run_id == r1
    assert [o.content for run_id in (r1, r2) for o in w.outputs(run_id)] == ["a", "b"]


def test_tools_that_keep_state_by_run_find_their_own(build: Build) -> None:
    """Memos, idempotency keys and ids are of one call, though tool, arguments and script are the same."""
    keys: list[str] = []

    @tool(wait_points=[q])
    async def remember(ctx: Context) -> list[Any]:
        """Remember something before asking."""
        mine = await ctx.run_once("mine", partial(_later, ctx.run_id))
        keys.append(ctx.idempotency_key)
        return [mine, ctx.ask(q, Question(prompt="May I?")).note]

    w = build(remember, model=scripted([call("remember"), call("remember")], say("done")))
    runs_ = [w.start(), w.start()]
    for run_id in reversed(runs_):
        for action in w.pending(run_id):
            w.answer(action, {"approved": True, "note": action.origin.tool_call_id})
    for run_id in runs_:
        assert [o.content for o in w.outputs(run_id)] == [[run_id, o.call_id] for o in w.outputs(run_id)]
    assert len(set(keys)) == 4


async def _later(value: str) -> str:
    await asyncio.sleep(0)
    return value


def test_identical_runs_in_one_worker_process_do_not_mix(live: Deployment) -> None:
    live.effects.release("behind-gate")
    live.ready_worker()
    r1, r2 = live.parked("asker"), live.parked("asker")
    for run, note in ((r2, "b"), (r1, "a")):
        (action,) = live.client.pending(run_id=run.id)
        action.submit({"approved": True, "note": note})
    for run, note in ((r1, "a"), (r2, "b")):
        live.ended(run)
        outputs = [item.body.content for item in live.client.items(run.id) if item.body.kind == "output"]
        assert outputs == [{"x": 1, "note": note}]


# --- the second wait of one call ---------------------------------------------------------------


q1 = WaitPoint("q1", suspend=Question, resume=Verdict)
q2 = WaitPoint("q2", suspend=Question, resume=Verdict)


def two_points(way: str, fx: Counters, seen: list[tuple[SuspendRecord, ...]]) -> Tool[..., Any]:
    """Waits at q1, then at q2, and acts between them and after them."""

    def inline(ctx: Context) -> list[str | None]:
        seen.append(ctx.suspend_history)
        one = ctx.ask(q1, Question(prompt="One?"))
        ctx.run_once("between", lambda: fx.bump("between"))
        two = ctx.ask(q2, Question(prompt="Two?"))
        fx.bump("fx")
        return [one.note, two.note]

    def entry(ctx: Context) -> list[str | None]:
        seen.append(ctx.suspend_history)
        if not isinstance(ctx.entry, Resume):
            ctx.suspend(q1, Question(prompt="One?"))
        if ctx.entry.name == "q1":
            fx.bump("between")
            ctx.suspend(q2, Question(prompt="Two?"))
        fx.bump("fx")
        return [record.resume.note for record in ctx.suspend_history]

    return tool(name="two", description="Two waits.", wait_points=[q1, q2])(written(way, entry=entry, inline=inline))


@pytest.mark.parametrize("way", WAYS)
def test_the_first_answer_does_not_satisfy_the_second_wait(build: Build, way: str) -> None:
    fx = Counters()
    seen: list[tuple[SuspendRecord, ...]] = []
    w = build(two_points(way, fx, seen), model=scripted(call("two"), say("done"), counters=fx))
    run_id = w.start()
    first = w.the_action(run_id)
    w.answer(first, {"approved": True, "note": "one"})

    second = w.the_action(run_id)
    assert (w.run(run_id).status, second.name, fx["fx"], fx["model"]) == ("parked", "two.q2", 0, 1)
    (record,) = seen[-1]
    assert (record.name, record.status, record.input) == ("q1", "submitted", Question(prompt="One?"))
    assert record.resume == Verdict(approved=True, note="one")

    w.deploy(w.app)
    assert w.answer(first, {"approved": True, "note": "two"}).status == "late"
    assert (w.the_action(run_id), fx["fx"]) == (second, 0)
    w.answer(second, {"approved": True, "note": "two"})
    assert [o.content for o in w.outputs(run_id)] == [["one", "two"]]
    assert (fx["between"], fx["fx"], fx["model"], w.run(run_id).status) == (1, 1, 2, "completed")
    assert [(each.name, each.status) for each in seen[-1]] == [("q1", "submitted"), ("q2", "submitted")]


@pytest.mark.parametrize("way", WAYS)
def test_the_same_wait_point_twice_with_the_same_question_takes_two_answers(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking_twice(way, fx), model=scripted(call("ask_twice"), say("done"), counters=fx))
    run_id = w.start()
    first = w.the_action(run_id)
    w.answer(first, {"approved": True, "note": "one"})
    second = w.the_action(run_id)
    assert (second.name, second.input, w.run(run_id).status) == (first.name, first.input, "parked")
    assert second.id != first.id
    w.answer(second, {"approved": True, "note": "two"})
    assert [o.content for o in w.outputs(run_id)] == [["one", "two"]]
    assert (fx["passes"], fx["model"]) == (3, 2)


def test_waits_side_by_side_each_take_their_own_answer_and_a_later_one_takes_a_new_one(build: Build) -> None:
    @tool(wait_points=[q])
    async def many(ctx: Context) -> list[str | None]:
        """Ask three side by side, then once more."""

        async def one(key: str) -> str | None:
            return ctx.ask(q, Question(prompt=key), key=key).note

        side_by_side = await asyncio.gather(*map(one, "abc"))
        return [*side_by_side, ctx.ask(q, Question(prompt="May I?")).note]

    w = build(many, model=scripted(call("many"), say("done")))
    for order in permutations("abc"):
        run_id = w.start()
        asked = {action.prompt: action for action in w.pending(run_id)}
        for key in order:
            w.answer(asked[key], {"approved": True, "note": f"for {key}"})
        last = w.the_action(run_id)
        assert last.id not in {action.id for action in asked.values()}
        w.answer(last, {"approved": True, "note": "last"})
        assert [o.content for o in w.outputs(run_id)] == [["for a", "for b", "for c", "last"]]


def test_one_call_s_answer_does_not_satisfy_the_same_wait_of_its_sibling(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted([call("ask", x=1), call("ask", x=1)], say("done")))
    run_id = w.start()
    left, right = w.pending(run_id)
    w.answer(left, YES)
    assert (fx["fx"], w.the_action(run_id)) == (1, right)
    w.answer(right, kind="cancel")
    outcomes = {output.call_id: output.outcome for output in w.outputs(run_id)}
    assert outcomes == {left.origin.tool_call_id: "success", right.origin.tool_call_id: "declined"}
    assert fx["fx"] == 1


def test_an_ask_behind_a_suspend_at_the_same_wait_point_takes_an_answer_of_its_own(build: Build) -> None:
    """Both styles in one tool, with one and the same question: the first answer is not the second one's."""

    @tool(wait_points=[q])
    def mixed(ctx: Context) -> list[str | None]:
        """Suspend, then ask twice."""
        if not isinstance(ctx.entry, Resume):
            ctx.suspend(q, Question(prompt="May I?"))
        asked = [ctx.ask(q, Question(prompt="May I?")).note for _ in range(2)]
        return [record.resume.note for record in ctx.suspend_history] + asked

    w = build(mixed, model=scripted(call("mixed"), say("done")))
    run_id = w.start()
    for note in ("suspended", "asked", "asked again"):
        w.answer(w.the_action(run_id), {"approved": True, "note": note})
    assert [o.content for o in w.outputs(run_id)] == [["suspended", "asked", "asked again", "asked", "asked again"]]


@pytest.mark.parametrize("way", WAYS)
def test_an_id_that_is_part_of_its_own_question_is_that_waits_and_no_other(build: Build, way: str) -> None:
    """A link to answer by stands in what is asked: it is the same on every pass, and of its wait alone."""

    def link(ctx: Context) -> Question:
        return Question(prompt=f"Open {ctx.action_id(q)}")

    def inline(ctx: Context) -> list[str | None]:
        return [ctx.ask(q, link(ctx)).note, ctx.ask(q, link(ctx)).note]

    def entry(ctx: Context) -> list[str | None]:
        if len(ctx.suspend_history) < 2:
            ctx.suspend(q, link(ctx))
        return [record.resume.note for record in ctx.suspend_history]

    linked = tool(name="linked", description="Ask by link.", wait_points=[q])(written(way, entry=entry, inline=inline))
    w = build(linked, model=scripted(call("linked"), say("done")))
    run_id = w.start()
    for note in ("one", "two"):
        action = w.the_action(run_id)
        assert action.prompt == f"Open {action.id}"
        w.answer(action, {"approved": True, "note": note})
    assert [o.content for o in w.outputs(run_id)] == [["one", "two"]]


@pytest.mark.parametrize("keys", [(None, None), ("a", None), ("same", "same")])
def test_side_by_side_asks_that_cannot_be_told_apart_open_nothing(
    build: Build, keys: tuple[str | None, str | None]
) -> None:
    passes = Counters()

    @tool(wait_points=[q], retries=3)
    async def both(ctx: Context) -> list[str | None]:
        """Ask side by side."""
        passes.bump("pass")

        async def one(key: str | None) -> str | None:
            return ctx.ask(q, Question(prompt="May I?"), key=key).note

        return list(await asyncio.gather(*map(one, keys)))

    w = build(both, model=scripted(call("both"), say("done")))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.content == "tool 'both' asked 'q' side by side with another ask; give each a key of its own"
    assert (w.pending(), passes["pass"], w.run(run_id).status) == ([], 1, "completed")
