"""A retry of a failed root revives the children that failed it or were closed with it, where they were."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Agent, App, Limits, SubAgent, call, say, tool
from adjourn.schemas.errors import ModelRequestError, ThreadBusyError
from adjourn.store.postgres.runs import retries
from adjourn.tasks.answers.ends import cancel, propagate_end
from adjourn.tasks.lifecycle.retry import FIXABLE, retry
from tests.families import boss, child_of, children_of, results
from tests.flow.broken_trees import (
    Stricter,
    Verdict,
    asker,
    attempt,
    broken_pair,
    fail_left,
    gate_of,
    go_on,
    named,
    pair,
    root,
    statuses,
    straight,
    totals,
)
from tests.flow.conftest import Plant
from tests.flow.retry_statements import OUTCOME
from tests.store.steps import at_once
from tests.world import Counters, scripted


def test_the_accepted_answer_of_the_failed_child_is_used_and_the_closed_sibling_waits_again(plant: Plant) -> None:
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    before = children_of(w, run_id)
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    assert w.answer(left, {"ok": True}).status == "accepted"
    assert w.answer(right, {"ok": True}).status == "late"
    w.deploy(App(blocks=[pair(fx)]))
    go_on(w, run_id)
    assert w.pending(run_id) == [right], "under the same id, and nobody is asked twice"
    assert w.services.parking.get(right.id) is not None
    assert w.run(run_id).status == "parked"
    assert w.answer(right, {"ok": True}, answer_id="again").status == "accepted"
    run = w.run(run_id)
    assert (run.status, run.output) == ("completed", "left True + right True")
    after = children_of(w, run_id)
    assert [child.id for child in after] == [child.id for child in before]
    assert statuses(w, run_id) == {"left": "completed", "right": "completed"}
    assert fx.seen == {"model": 6, "left asked and got True": 1, "right asked and got True": 1}
    whole = straight(plant, pair, "left", "right")
    assert totals(run) == totals(whole), "all is counted once"


def test_a_retry_without_a_fix_fails_as_before_and_can_be_tried_again(plant: Plant) -> None:
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    first = w.run(run_id)
    for _ in range(2):
        go_on(w, run_id)
        assert w.run(run_id).error == first.error
        assert totals(w.run(run_id)) == totals(first)
    w.deploy(App(blocks=[pair(fx)]))
    go_on(w, run_id)
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert w.run(run_id).output == "left True + right True"
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))
    assert len(children_of(w, run_id)) == 2


def deep(fx: Counters, resume: Any = Verdict) -> Agent:
    inner = [SubAgent(asker(fx, name, of), on_failure="end_parent") for name, of in (("low", resume), ("by", Verdict))]
    middle = Agent(
        "middle",
        model=scripted(say("", call("low", task="t"), call("by", task="t")), results, counters=fx),
        tools=inner,
    )
    return root(middle, asker(fx, "right"), counters=fx)


def test_a_tree_of_three_levels_is_revived_as_a_whole(plant: Plant) -> None:
    fx = Counters()
    w = plant(deep(fx))
    run_id = w.start(agent="boss")
    low, by, right = (gate_of(w, run_id, name) for name in ("low", "by", "right"))
    w.deploy(App(blocks=[deep(fx, Stricter)]))
    w.answer(low, {"ok": True})
    assert w.run(run_id).status == "failed"
    assert w.pending() == []
    w.deploy(App(blocks=[deep(fx)]))
    go_on(w, run_id)
    assert {each.id for each in w.pending(run_id)} == {by.id, right.id}
    w.answer(by, {"ok": True}, answer_id="by")
    w.answer(right, {"ok": True}, answer_id="right")
    assert w.run(run_id).output == "low True + by True + right True"
    assert fx.seen == {"model": 10} | {f"{name} asked and got True": 1 for name in ("low", "by", "right")}
    assert totals(w.run(run_id)) == totals(straight(plant, deep, "low", "by", "right"))


def test_a_child_that_completed_is_not_run_again(plant: Plant) -> None:
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    w.answer(right, {"ok": False})
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    w.answer(left, {"ok": True})
    right_run = named(w, run_id, "right")
    w.deploy(App(blocks=[pair(fx)]))
    go_on(w, run_id)
    assert w.run(run_id).output == "left True + right False"
    assert named(w, run_id, "right") == right_run
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))


def test_a_child_that_failed_by_itself_is_started_anew(plant: Plant) -> None:
    fx = Counters()

    def build(outcome: Any) -> Agent:
        return root(Agent("left", model=scripted(outcome)), asker(fx, "right"), counters=fx)

    def refused(_: Any) -> Any:
        raise ModelRequestError("left", "is refused", retryable=False)

    w = plant(root(Agent("left", model=scripted(refused), limits=Limits(turns=1)), asker(fx, "right"), counters=fx))
    run_id = w.start(agent="boss")
    assert w.run(run_id).status == "failed"
    w.db.execute(OUTCOME, {"id": named(w, run_id, "left").id})
    w.deploy(App(blocks=[build("well")]))
    go_on(w, run_id)
    assert len(children_of(w, run_id)) == 3
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert w.run(run_id).output == "well + right True"


def test_a_failure_that_the_parent_has_read_is_history(plant: Plant) -> None:
    def refused(_: Any) -> Any:
        raise ModelRequestError("left", "is refused", retryable=False)

    def build(last: Any) -> Agent:
        left = SubAgent(Agent("left", model=scripted(refused)))
        return Agent("boss", model=scripted(call("left", task="t"), last), tools=[left])

    w = plant(build(refused))
    run_id = w.start(agent="boss")
    assert w.run(run_id).status == "failed"
    child = child_of(w, run_id)
    used = totals(w.run(run_id))
    w.deploy(App(blocks=[build(results)]))
    go_on(w, run_id)
    assert w.run(run_id).output == "sub-agent 'left' failed: model left: is refused"
    assert children_of(w, run_id) == [child]
    assert w.run(run_id).turns == used[0] + 1


def test_a_child_at_its_limit_gets_a_share_of_the_raised_one(plant: Plant) -> None:
    fx = Counters()
    many = Agent("left", model=scripted(*[call("step")] * 6, "well"), tools=[step])

    w = plant(root(many, counters=fx, limits=Limits(turns=5)))
    run_id = w.start(agent="boss", limits=Limits(turns=5))
    assert w.run(run_id).status == "failed"
    go_on(w, run_id, limits=Limits(turns=30))
    assert w.run(run_id).output == "well"
    assert len(children_of(w, run_id)) == 2


# --- in the middle of something else -----------------------------------------------------------------


def test_a_sibling_that_was_not_closed_yet_is_waited_for_again(plant: Plant, cut_off: Any, monkeypatch: Any) -> None:
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    cut_off(run_id)
    w, right = fail_left(w, run_id, fx)
    assert statuses(w, run_id) == {"left": "failed", "right": "parked"}
    go_on(w, run_id)
    monkeypatch.undo()
    w.advance(1000)
    w.sweep()
    w.settle()
    assert w.answer(right, {"ok": True}).status == "accepted"
    assert w.run(run_id).output == "left True + right True"
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))


def test_a_sibling_that_ended_before_it_was_closed_keeps_its_result(plant: Plant, cut_off: Any) -> None:
    """Its answer was accepted after the root had failed, and the child has completed: the parent is notified late."""
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    cut_off(run_id)
    w, right = fail_left(w, run_id, fx)
    assert w.answer(right, {"ok": True}).status == "accepted"
    assert statuses(w, run_id) == {"left": "failed", "right": "completed"}
    go_on(w, run_id)
    assert w.run(run_id).output == "left True + right True"
    assert len(children_of(w, run_id)) == 2
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))


@pytest.mark.parametrize("by", ["ann", None])
@pytest.mark.parametrize("when", ["before the root fails", "before it is closed", "just before it is closed"])
def test_a_child_that_a_person_cancelled_stays_cancelled(
    plant: Plant, cut_off: Any, monkeypatch: Any, when: str, by: str | None
) -> None:
    fx = Counters()

    def build(resume: Any = Verdict) -> Agent:
        subs = [SubAgent(asker(fx, "left", resume), on_failure="end_parent"), SubAgent(asker(fx, "right"))]
        return boss(subs, call("left", task="t"), call("right", task="t"), counters=fx)

    def cancel_right() -> None:
        cancel(w.services, named(w, run_id, "right").id, reason="not this one", by=by)

    w = plant(build())
    run_id = w.start(agent="boss")
    left = gate_of(w, run_id, "left")
    if when == "before the root fails":
        cancel_right()
        w.settle()
    else:
        cut_off(run_id)
    w.deploy(App(blocks=[build(Stricter)]))
    w.answer(left, {"ok": True})
    assert w.run(run_id).status == "failed"
    if when != "before the root fails":
        cancel_right()
    if when == "just before it is closed":
        monkeypatch.undo()
        propagate_end(w.services, run_id)
    w.deploy(App(blocks=[build()]))
    go_on(w, run_id)
    assert w.run(run_id).output == "left True + sub-agent 'right' cancelled: not this one"
    assert statuses(w, run_id) == {"left": "completed", "right": "cancelled"}


def test_two_retries_at_once_are_one(plant: Plant) -> None:
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    w.deploy(App(blocks=[pair(fx)]))
    outcomes = at_once(*[lambda: attempt(w, run_id)] * 4)
    assert sorted(outcomes) == ["NotRetryableError"] * 3 + ["retried"]
    w.settle()
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))


def test_a_revived_tree_that_is_cancelled_ends_as_a_whole(plant: Plant) -> None:
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    w.deploy(App(blocks=[pair(fx)]))
    retry(w.services, run_id)
    cancel(w.services, run_id, reason=None, by=None)
    w.settle()
    assert {each.status for each in (w.run(run_id), *children_of(w, run_id))} == {"cancelled"}
    assert w.pending() == []
    whole = w.run(run_id)
    assert whole.turns == 1 + sum(child.turns for child in children_of(w, run_id))


def test_nobody_hears_of_the_retry_and_the_sweep_goes_on_with_the_tree(plant: Plant) -> None:
    """The process that retried died after its one statement: no wake-up, no parking record, no notice."""
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    w.deploy(App(blocks=[pair(fx)]))
    retries.retry(w.db, run_id, types=FIXABLE, by=None)
    w.advance(w.tuning.wakeup_retry_seconds * 2)
    w.sweep()
    w.settle()
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert w.run(run_id).output == "left True + right True"


def test_a_thread_of_a_child_that_has_another_run_is_busy(plant: Plant) -> None:
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    child = named(w, run_id, "right")
    w.deploy(App(blocks=[pair(fx), asker(fx, "other")]))
    other = w.start(agent="other", thread_id=child.thread_id)
    with pytest.raises(ThreadBusyError) as busy:
        retry(w.services, run_id)
    assert (busy.value.thread_id, busy.value.run_id) == (child.thread_id, other)
    assert w.run(run_id).status == "failed"
    cancel(w.services, other, reason=None, by=None)
    go_on(w, run_id)
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert w.run(run_id).output == "left True + right True"


def test_what_is_reserved_for_a_revived_child_is_not_given_to_another(plant: Plant) -> None:
    fx = Counters()
    w, run_id = broken_pair(plant, fx)
    used = w.run(run_id).turns
    w.deploy(App(blocks=[pair(fx)]))
    retry(w.services, run_id)
    left, right = children_of(w, run_id)
    assert w.run(run_id).turns == used - 2, "what a child that goes on has used is counted at its end"
    w.settle()
    shares = [child.limits.turns for child in (left, right) if child.limits]
    assert (named(w, run_id, "left").turns, named(w, run_id, "right").turns) == (2, 1)
    assert len(set(shares)) == 1


@tool
def step() -> str:
    """Step."""
    return "stepped"
