"""The cases of A, C, H, I and J once more in trees of blocks: what holds for calls of one agent holds for any step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from adjourn import Agent, App, Context, Parallel, Router, Sequential, Tool, require_approval, tool
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.items import ResponseItem, SuspensionItem
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.cases.conftest import Plant
from tests.cases.crashes import Outage
from tests.cases.tools import DENIALS, WAYS, YES, Question, Reader, counting, q, written
from tests.world import Counters, World


def step(name: str, fx: Counters, *, after: Callable[[str], str] = lambda text: text) -> Tool[..., Any]:
    """A step that bumps its name and adds it to what it is handed."""

    @tool(name=name)
    def body(text: str) -> str:
        fx.bump(name)
        return after(f"{text}>{name}")

    return body


def gate(name: str, fx: Counters, way: str = "inline", **options: Any) -> Tool[..., Any]:
    """A step that asks first, bumps its name if the verdict is a yes, and adds the note that came with it."""

    def act(text: str, verdict: Any) -> str:
        if verdict.approved:
            fx.bump(name)
        return f"{text}>{name} {verdict.note}"

    def inline(ctx: Context, text: str) -> str:
        return act(text, ctx.ask(q, Question(prompt=f"{name} {text}?")))

    def entry(ctx: Context, text: str) -> str:
        if ctx.suspend_history:
            return act(text, ctx.suspend_history[-1].resume)
        ctx.suspend(q, Question(prompt=f"{name} {text}?"))

    return tool(name=name, wait_points=[q], **options)(written(way, entry=entry, inline=inline))


def of(w: World, run_id: str, name: str) -> PendingAction:
    """The pending action of a block."""
    (found,) = [action for action in w.pending(run_id) if action.origin.block_path[-1] == name]
    return found


def yes(note: str) -> dict[str, Any]:
    return {"approved": True, "note": note}


# --- steps that are done stay done ------------------------------------------------------------


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_other_branch_is_not_skipped_after_a_crash(plant: Plant, outage: Outage, first: str) -> None:
    fx = Counters()
    names = [first, "b" if first == "a" else "a"]
    branches = {name: counting(name, fx, exclusive=True) for name in names}
    w = plant(Sequential("root", {"both": Parallel("both", branches, input=Any)}))
    outage.after_output_of(first)
    outage.survive(w, lambda: w.start(agent="root", run_id="run_1"))
    outage.restart(w)
    assert (fx["a"], fx["b"]) == (1, 1)
    assert w.run("run_1").output == {"a": "a", "b": "b"}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_branches_only_move_forward_and_join_once(plant: Plant, way: str, fresh: bool) -> None:
    fx = Counters()

    @tool
    def join(outputs: dict[str, str]) -> str:
        fx.bump("join")
        return " and ".join(outputs[name] for name in ("a", "b", "c"))

    panel = Parallel("panel", [gate(name, fx, way) for name in ("a", "b", "c")])
    w = plant(Sequential("root", {"panel": panel, "join": join}))
    for order in permutations("abc") if not fresh else ["bca"]:
        fx.seen.clear()
        run_id = w.start("x", agent="root")
        for done, name in enumerate(order, 1):
            if fresh:
                w.deploy(w.app)
            assert fx["join"] == 0
            w.answer(of(w, run_id, name), yes(f"n{name}"))
            waiting = sorted(action.origin.block_path[-1] for action in w.pending(run_id))
            assert waiting == sorted(order[done:])
            assert sorted(output.tool for output in w.outputs(run_id) if output.tool in order) == sorted(order[:done])
        assert w.run(run_id).output == "x>a na and x>b nb and x>c nc"
        assert fx.seen == {"a": 1, "b": 1, "c": 1, "join": 1}


# --- a sequence goes on where it was -----------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_sequence_does_not_start_from_its_first_step(plant: Plant, way: str) -> None:
    fx = Counters()
    w = plant(Sequential("root", [step("s1", fx), gate("s2", fx, way), step("s3", fx)]))
    run_id = w.start("x", agent="root")
    w.deploy(w.app)
    w.answer(w.the_action(run_id), yes("n"))
    assert w.run(run_id).output == "x>s1>s2 n>s3"
    assert fx.seen == {"s1": 1, "s2": 1, "s3": 1}


CHANGES = {
    "added before": ("load", "validate", "transform", "gate"),
    "taken away": ("load", "gate"),
    "swapped": ("transform", "load", "gate"),
    "renamed": ("load", "transform", "door"),
}
"""What the steps `load`, `transform` and `gate` are after a deploy."""


@pytest.mark.parametrize("nested", [False, True], ids=["root", "tool"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_step_is_handed_what_another_came_to_before_a_deploy(plant: Plant, change: str, nested: bool) -> None:
    fx = Counters()
    known = {name: step(name, fx) for name in ("load", "transform", "validate")} | {"gate": gate("gate", fx)}
    known["door"] = known["gate"]
    before = {name: known[name] for name in ("load", "transform", "gate")}
    after = {name: known[name] for name in CHANGES[change]}

    def build_of(steps: Any) -> Block:
        sequence = Sequential("root", steps)
        if not nested:
            return sequence
        return Agent("agent", ScriptedModel([call("root", input="x"), say("done")]), tools=[sequence])

    w = plant(build_of(before))
    run_id = w.start("x", agent="agent" if nested else "root")
    w.deploy(App(blocks=[build_of(after)]))
    w.answer(w.the_action(run_id), yes("n"))
    run = w.run(run_id)
    assert (run.status, run.error and run.error.type) == ("failed", "BlockChangedError")
    assert fx.seen == {"load": 1, "transform": 1}, "neither the new step nor what stands behind the gate has run"


def test_a_step_that_is_added_behind_the_gate_runs(plant: Plant) -> None:
    fx = Counters()
    w = plant(Sequential("root", [step("load", fx), gate("gate", fx)]))
    run_id = w.start("x", agent="root")
    w.deploy(App(blocks=[Sequential("root", [step("load", fx), gate("gate", fx), step("log", fx)])]))
    w.answer(w.the_action(run_id), yes("n"))
    assert w.run(run_id).output == "x>load>gate n>log"
    assert fx["load"] == 1


# --- deploys --------------------------------------------------------------------------------------


def test_an_agent_in_a_sequence_is_not_asked_again_and_runs_what_was_shown(plant: Plant) -> None:
    fx = Counters()
    asked = iter(range(100))
    model = ScriptedModel(
        lambda request: say("done") if len(request.conversation) > 1 else [call("gate", text=f"draft {next(asked)}")]
    )
    agent = Agent("agent", model, tools=[gate("gate", fx)], policies=[require_approval("gate")])
    w = plant(Sequential("root", [step("s1", fx), agent]))
    run_id = w.start("x", agent="root")
    assert w.the_action(run_id).input["args"] == {"text": "draft 0"}
    w.deploy(w.app)
    w.answer(w.the_action(run_id), YES)
    action = w.the_action(run_id)
    assert action.prompt == "gate draft 0?"
    w.deploy(w.app)
    w.answer(action, yes("n"))
    assert w.run(run_id).status == "completed"
    assert [output.content for output in w.outputs(run_id) if output.tool == "gate"] == ["draft 0>gate n"]
    assert next(asked) == 1


@pytest.mark.parametrize("deep", [False, True], ids=["root", "in a tree"])
def test_another_choice_is_a_failure_that_names_both_routes_and_is_not_tried_again(plant: Plant, deep: bool) -> None:
    fx = Counters()
    minds = ["a"]
    router = Router("router", [gate("a", fx), gate("b", fx)], lambda text: minds[0])
    tree = Sequential("root", {"s1": step("s1", fx), "both": Parallel("both", [router, step("c", fx)])})
    w = plant(tree if deep else router)
    run_id = w.start("x", agent="root" if deep else "router")
    action = w.the_action(run_id)
    minds[0] = "b"
    w.answer(action, yes("n"))
    run = w.run(run_id)
    assert (run.status, run.error and run.error.type) == ("failed", "RouteUnavailableError")
    assert "'a'" in str(run.error)
    assert "'b'" in str(run.error)
    w.advance(3600)
    w.sweep()
    assert not w.wakeups.waiting
    assert (w.run(run_id), fx["a"], fx["b"]) == (run, 0, 0)
    assert w.status_of(action.id) == "submitted", "the answer is kept"


# --- nothing gets into another's hands ----------------------------------------------------


def test_two_runs_of_one_tree_do_not_mix(plant: Plant) -> None:
    fx = Counters()
    inner = Sequential("inner", [step("s1", fx), gate("s2", fx)])
    w = plant(Parallel("root", {"left": inner, "right": inner}))
    runs = {name: w.start(name, agent="root") for name in ("one", "two")}
    assert all(len(w.pending(run_id)) == 2 for run_id in runs.values())
    for name, side in (("two", "right"), ("one", "left"), ("two", "left"), ("one", "right")):
        (action,) = [each for each in w.pending(runs[name]) if side in each.origin.block_path]
        assert action.prompt == f"s2 {name}>s1?"
        w.answer(action, yes(f"{name} {side}"))
    for name, run_id in runs.items():
        expected = {side: f"{name}>s1>s2 {name} {side}" for side in ("left", "right")}
        assert w.run(run_id).output == expected
    assert fx.seen == {"s1": 4, "s2": 4}


@pytest.mark.parametrize("way", WAYS)
def test_the_next_nested_flow_starts_with_an_entry_and_an_action_of_its_own(plant: Plant, way: str) -> None:
    fx = Counters()
    flow = Sequential("flow", {"before": step("before", fx), "gate": gate("gate", fx, way)})
    w = plant(Sequential("root", {"first": flow, "second": flow}))
    run_id = w.start("x", agent="root")
    first = w.the_action(run_id)
    w.answer(first, yes("one"))
    second = w.the_action(run_id)
    assert second.id != first.id
    assert (first.origin.block_path, second.origin.block_path) == (
        ("root", "first", "gate"),
        ("root", "second", "gate"),
    )
    assert second.prompt == "gate x>before>gate one>before?"
    assert w.answer(first, yes("again")).status == "late"
    assert w.run(run_id).status == "parked"
    w.answer(second, yes("two"))
    assert w.run(run_id).output == "x>before>gate one>before>gate two"
    assert fx.seen == {"before": 2, "gate": 2}


def test_the_same_agent_twice_in_a_sequence_begins_anew(plant: Plant) -> None:
    fx, reader = Counters(), Reader()
    agent = Agent("agent", ScriptedModel([call("gate", text="t"), reader.step]), tools=[gate("gate", fx)])
    w = plant(Sequential("root", {"first": agent, "second": agent}))
    run_id = w.start("x", agent="root")
    for note in ("one", "two"):
        w.deploy(w.app)
        w.answer(w.the_action(run_id), yes(note))
    assert reader.results == [["t>gate one"], ["t>gate two"]]
    assert w.run(run_id).output == "done"


@pytest.mark.parametrize("way", WAYS)
def test_the_first_answer_of_a_step_does_not_satisfy_its_second_wait(plant: Plant, way: str) -> None:
    fx = Counters()
    question = Question(prompt="May I?")

    def inline(ctx: Context, text: str) -> str:
        return f"{text} {ctx.ask(q, question).note} {ctx.ask(q, question).note}"

    def entry(ctx: Context, text: str) -> str:
        if len(ctx.suspend_history) < 2:
            ctx.suspend(q, question)
        return " ".join([text, *(record.resume.note for record in ctx.suspend_history)])

    twice = tool(name="twice", wait_points=[q])(written(way, entry=entry, inline=inline))
    w = plant(Sequential("root", [step("s1", fx), twice, step("s3", fx)]))
    run_id = w.start("x", agent="root")
    first = w.the_action(run_id)
    w.answer(first, yes("one"))
    second = w.the_action(run_id)
    assert (second.id != first.id, w.run(run_id).status) == (True, "parked")
    assert [w.status_of(action.id) for action in (first, second)] == ["submitted", "pending"]
    w.answer(second, yes("two"))
    assert w.run(run_id).output == "x>s1 one two>s3"
    assert fx.seen == {"s1": 1, "s3": 1}


@pytest.mark.parametrize("way", WAYS)
def test_only_the_branch_that_was_chosen_runs(plant: Plant, way: str) -> None:
    fx = Counters()
    a = Sequential("a", [step("a1", fx), gate("a2", fx, way)])
    b = Sequential("b", [step("b1", fx), gate("b2", fx, way)])
    w = plant(Sequential("root", [step("before", fx), Router("router", [a, b], lambda text: a), step("after", fx)]))
    run_id = w.start("x", agent="root")
    w.deploy(w.app)
    w.answer(w.the_action(run_id), yes("n"))
    assert w.run(run_id).output == "x>before>a1>a2 n>after"
    assert fx.seen == {"before": 1, "a1": 1, "a2": 1, "after": 1}


# --- approvals that a policy demands ------------------------------------------------------------


def approved(fx: Counters, *, edit: bool = False, policies: bool = True) -> Agent:
    """An agent whose one call needs an approval, if it has its policies."""

    @tool
    def pay(amount: int) -> str:
        fx.bump(f"paid {amount}")
        return f"paid {amount}"

    wanted = [require_approval("pay", edit=edit)] if policies else []
    return Agent("agent", ScriptedModel([call("pay", amount=7), say("done")]), tools=[pay], policies=wanted)


@pytest.mark.parametrize("denial", DENIALS, ids=["no", "cancel", "fail"])
@pytest.mark.parametrize("without", [False, True], ids=["policy kept", "policy gone"])
def test_a_declined_tool_does_not_run_even_where_the_policy_is_gone(
    plant: Plant, denial: dict[str, Any], without: bool
) -> None:
    fx = Counters()
    w = plant(approved(fx))
    run_id = w.start(agent="agent")
    action = w.the_action(run_id)
    w.deploy(App(blocks=[approved(fx, policies=not without)]))
    said = {"data": {"approved": False, "comment": "no"}} if "data" in denial else denial
    assert w.answer(action, **said).status == "accepted"
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", "done")
    assert fx.seen == {}


@pytest.mark.parametrize("nested", [False, True], ids=["root", "step"])
def test_a_history_that_ends_in_a_call_is_no_approval(plant: Plant, outage: Outage, nested: bool) -> None:
    """Whether the process died before the gate was stored, or the parked run is delivered again."""
    fx = Counters()
    agent = approved(fx)
    w = plant(Sequential("root", [agent]) if nested else agent)
    outage.before_write(2)
    outage.survive(w, lambda: w.start(agent="root" if nested else "agent", run_id="run_1"))
    kinds = [type(item.body) for item in w.items("run_1")]
    assert kinds[-1] is ResponseItem
    outage.restart(w)
    for due in ("turn", "reentry", "suspect"):
        w.wakeups.publish(WakeUp(run_id="run_1", due=due))
    w.settle()
    w.deploy(w.app)
    w.sweep()
    assert (w.run("run_1").status, fx.seen) == ("parked", {})
    assert sum(isinstance(item.body, SuspensionItem) for item in w.items("run_1")) == 1
    w.answer(w.the_action("run_1"), {"approved": True})
    assert fx.seen == {"paid 7": 1}


def test_an_approval_is_of_one_call_and_of_no_other_like_it(plant: Plant) -> None:
    fx = Counters()
    agent = approved(fx)
    w = plant(Parallel("root", {"left": agent, "right": agent}))
    run_id = w.start(agent="root")
    (left,) = [action for action in w.pending(run_id) if "left" in action.origin.block_path]
    w.answer(left, {"approved": True})
    assert (w.run(run_id).status, fx.seen) == ("parked", {"paid 7": 1})
    w.answer(w.the_action(run_id), {"approved": False})
    assert (w.run(run_id).status, fx.seen) == ("completed", {"paid 7": 1})


@pytest.mark.parametrize("edit", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {"tool": "delete_all"},
        {"tool": "delete_all", "args": {"amount": 1}},
        {"args": {"amount": 1, "tool": "delete_all"}},
        {"args": {"amount": "1"}},
        {"name": "delete_all"},
    ],
    ids=str,
)
def test_an_edited_answer_swaps_in_nothing_that_the_tool_does_not_take(
    plant: Plant, edit: bool, more: dict[str, Any]
) -> None:
    fx = Counters()
    w = plant(approved(fx, edit=edit))
    run_id = w.start(agent="agent")
    action = w.the_action(run_id)
    assert w.answer(action, {"approved": True, **more}).status == "invalid"
    assert (w.run(run_id).status, fx.seen) == ("parked", {})
    w.answer(action, {"approved": True} | ({"args": {"amount": 1}} if edit else {}))
    assert fx.seen == ({"paid 1": 1} if edit else {"paid 7": 1})
