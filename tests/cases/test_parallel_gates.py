"""Parallel gates and targeting: an answer is for one wait and no other, and finished work stays finished."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from adjourn import ResultTurn
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import ResponseItem
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.crashes import Outage
from tests.cases.tools import DENIALS, WAYS, YES, Reader, asking, asking_twice, counting, number_asked, wait_for_outputs
from tests.deployment import Deployment
from tests.world import Counters, World, scripted

# --- a stale decision ---------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_stale_decision_is_not_applied_to_the_gate_that_is_pending_now(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), call("ask", x=1), say("done")))
    for denial in DENIALS:
        run_id = w.start()
        first = w.the_action(run_id)
        assert w.answer(first, **denial).status == "accepted"
        second = w.the_action(run_id)
        assert second.id != first.id

        for replay in ({"data": YES}, {"data": YES, "answer_id": "again"}, {"kind": "cancel"}, {"kind": "fail"}):
            late = w.answer(first, **replay)
            assert (late.status, late.action_id, late.action_status) == ("late", first.id, w.status_of(first.id))
        assert w.answer(first, **denial).status == "duplicate"
        assert (w.the_action(run_id), w.run(run_id).status, w.run(run_id).turns) == (second, "parked", 2)
        assert fx["fx"] == 0

        w.answer(second, kind="cancel")
        assert (w.run(run_id).status, fx["fx"]) == ("completed", 0)


@pytest.mark.parametrize("way", WAYS)
def test_stale_decision_of_an_earlier_run_is_not_applied_to_the_next_run_of_the_thread(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    first = w.start(thread_id="thr_one")
    stale = w.the_action(first)
    w.answer(stale, kind="cancel")
    second = w.start(thread_id="thr_one")
    assert w.answer(stale, YES).status == "late"
    assert (w.run(second).status, fx["fx"]) == ("parked", 0)
    assert w.the_action(second).status == "pending"


@pytest.mark.parametrize("way", WAYS)
def test_stale_decision_within_one_call_is_not_applied_to_its_next_question(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking_twice(way, fx), model=scripted(call("ask_twice"), say("done")))
    run_id = w.start()
    first = w.the_action(run_id)
    w.answer(first, {"approved": True, "note": "first"})
    second = w.the_action(run_id)
    assert (w.answer(first, {"approved": False}).status, w.answer(first, YES).status) == ("late", "late")
    assert (w.the_action(run_id), w.run(run_id).status) == (second, "parked")
    assert (first.input, first.name) == (second.input, second.name)


# --- an answer for something else -----------------------------------------------------------


def test_answers_to_what_does_not_wait_leave_what_waits_alone(build: Build) -> None:
    fx = Counters()
    w = build(
        asking("inline", fx),
        asking("entry", fx, name="other"),
        counting("plain", fx),
        model=scripted([call("other", x=0), call("plain")], [call("ask", x=1), call("plain")], say("done")),
    )
    run_id = w.start()
    ended = w.the_action(run_id)
    w.answer(ended, kind="cancel")
    a = w.the_action(run_id)
    calls = [c for item in w.items(run_id) if isinstance(item.body, ResponseItem) for c in item.body.calls]

    targets = [each.id for each in calls] + [run_id, a.origin.message_id, a.origin.thread_id, a.name, ended.id]
    targets += [a.id[:-1] + ("A" if a.id[-1] != "A" else "B"), a.id.upper(), f"{a.id} ", "act_forged", "q"]
    statuses = [w.answer(target, YES).status for target in targets]
    assert set(statuses) == {"unknown", "late"}
    assert statuses.count("late") == 1, "only the action that has ended is known"
    assert w.answer(a, YES, name="other.q").status == "invalid"
    assert w.answer(new_action_id(w.db.signing_key()), YES).status == "early"
    w.sweep()

    assert w.the_action(run_id) == a
    assert (fx["fx"], w.run(run_id).status) == (0, "parked")
    assert w.answer(a, YES).status == "accepted"
    assert (fx["fx"], w.run(run_id).status) == (1, "completed")


def test_approving_b_does_not_run_a(build: Build) -> None:
    fx = Counters()
    w = build(
        asking("inline", fx, name="a"),
        asking("entry", fx, name="b"),
        model=scripted([call("a", x=1), call("b", x=2)], say("done")),
    )
    run_id = w.start()
    by_name = {action.name: action for action in w.pending(run_id)}
    assert w.answer(by_name["b.q"], YES).status == "accepted"
    assert (fx["fx:1"], fx["fx:2"]) == (0, 1)
    assert [action.name for action in w.pending(run_id)] == ["a.q"]
    assert w.answer(by_name["b.q"], YES, answer_id="other").status == "late"
    assert (fx["fx:1"], fx["fx:2"]) == (0, 1)
    w.answer(by_name["a.q"], kind="cancel")
    assert (fx["fx:1"], w.run(run_id).status) == (0, "completed")


# --- a crash between two calls ----------------------------------------------------------------


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_other_call_is_not_skipped_after_a_crash(build: Build, outage: Outage, first: str) -> None:
    """One of two exclusive calls is done; the process dies as soon as that is committed."""
    fx = Counters()
    reader = Reader()
    w = build(
        counting("a", fx, exclusive=True),
        counting("b", fx, exclusive=True),
        model=scripted([call(first), call("b" if first == "a" else "a")], reader.step),
    )
    outage.after_output_of(first)
    outage.survive(w, lambda: w.start(run_id="run_1"))
    assert (fx[first], fx["a"] + fx["b"]) == (1, 1)
    outage.restart(w)
    assert (fx["a"], fx["b"], w.run("run_1").status) == (1, 1, "completed")
    assert reader.results == [["a", "b"] if first == "a" else ["b", "a"]]


@pytest.mark.parametrize("way", WAYS)
def test_a_gated_sibling_is_not_skipped_after_a_crash(build: Build, outage: Outage, way: str) -> None:
    fx = Counters()
    w = build(
        counting("a", fx, exclusive=True),
        asking(way, fx, exclusive=True),
        model=scripted([call("a"), call("ask", x=1)], say("done")),
    )
    outage.after_output_of("a")
    outage.survive(w, lambda: w.start(run_id="run_1"))
    outage.restart(w)
    w.answer(w.the_action("run_1"), YES)
    assert (fx["a"], fx["fx"], w.run("run_1").status) == (1, 1, "completed")


def test_the_other_call_is_not_skipped_when_a_worker_is_killed(live: Deployment) -> None:
    worker = live.ready_worker()
    run = live.client.start("plain", "go")
    live.noted("in-b")
    wait_for_outputs(live, run, 1)
    assert [live.effects.count(name) for name in ("a", "b")] == [1, 0]
    worker.kill()
    live.effects.release("in-b")
    live.ready_worker()
    assert live.ended(run).status == "completed"
    assert [live.effects.count(name) for name in ("a", "b", "model")] == [1, 1, 2]
    read = [turn.content for turn in live.client.thread(run.thread_id).state().messages if isinstance(turn, ResultTurn)]
    assert read == ["a", "b"]


# --- branches that are answered one after the other ---------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_three_branches_answered_in_any_order_only_move_forward(build: Build, way: str) -> None:
    fx, joined = Counters(), Reader()
    w = build(asking(way, fx), model=scripted([call("ask", x=x) for x in (1, 2, 3)], joined.step))
    for order in permutations((1, 2, 3)):
        answered_one_by_one(w, order, fx, after_each=lambda: None)
    assert joined.results == [[{"x": x, "note": f"n{x}"} for x in (1, 2, 3)]] * 6
    assert (fx["fx"], fx["passes"]) == (6 * 3, 6 * 6)


@pytest.mark.parametrize("way", WAYS)
def test_branches_only_move_forward_with_a_fresh_process_for_every_answer(build: Build, way: str) -> None:
    fx, joined = Counters(), Reader()
    w = build(asking(way, fx), model=scripted([call("ask", x=x) for x in (1, 2, 3)], joined.step))
    answered_one_by_one(w, (2, 3, 1), fx, after_each=lambda: w.deploy(w.app))
    assert joined.results == [[{"x": x, "note": f"n{x}"} for x in (1, 2, 3)]]
    assert (fx["fx"], fx["passes"]) == (3, 6)


def test_branches_only_move_forward_when_the_worker_is_killed_before_every_answer(live: Deployment) -> None:
    live.effects.release("behind-gate")
    worker = live.ready_worker()
    run = live.parked("three")
    actions = {number_asked(action): action for action in live.client.pending(run_id=run.id)}
    for done, x in enumerate((2, 3, 1), 1):
        worker.kill()
        actions[x].submit({"approved": True, "note": f"n{x}"})
        worker = live.ready_worker()
        wait_for_outputs(live, run, done)
        assert len(live.client.pending(run_id=run.id)) == 3 - done
    assert live.ended(run).status == "completed"
    read = [turn.content for turn in live.client.thread(run.thread_id).state().messages if isinstance(turn, ResultTurn)]
    assert read == [{"x": x, "note": f"n{x}"} for x in (1, 2, 3)]
    assert [live.effects.count(name) for name in ("fx", "model")] == [3, 2]


def answered_one_by_one(w: World, order: tuple[int, ...], fx: Counters, *, after_each: Callable[[], None]) -> None:
    run_id = w.start()
    actions = {number_asked(action): action for action in w.pending(run_id)}
    assert sorted(actions) == [1, 2, 3]
    seen = {x: ["pending"] for x in actions}
    for x in order:
        done = fx[f"fx:{x}"]
        assert w.answer(actions[x], {"approved": True, "note": f"n{x}"}).status == "accepted"
        assert fx[f"fx:{x}"] == done + 1, "an answered branch does not wait for the others"
        after_each()
        for each, action in actions.items():
            seen[each].append(w.status_of(action.id))
    for x, statuses in seen.items():
        before = order.index(x) + 1
        assert statuses == ["pending"] * before + ["submitted"] * (4 - before)
    assert w.run(run_id).output == "done"
