"""Approvals: what was declined, or never approved, is not executed, whichever process picks it up."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from adjourn import Agent, App, Context, Tool, WaitPoint, tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.crashes import Outage
from tests.cases.tools import DENIALS, WAYS, YES, Question, Verdict, asking, counting
from tests.deployment import Deployment
from tests.world import AGENT, Counters, World, scripted

DECLINED: tuple[dict[str, Any], ...] = ({}, {"kind": "cancel"}, *DENIALS)


def decline(w: World, action: Any, denial: dict[str, Any]) -> None:
    """Say no; `{}` stands for the short form."""
    if denial:
        receipt = w.answer(action, **denial)
    else:
        receipt = w.send(json.dumps({"id": action.id, "ok": False, "reason": "no"}))
    assert receipt.status == "accepted"


# --- a declined tool, on a process that was not there when it was asked ---------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_declined_tool_does_not_execute_on_a_fresh_process(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")), tuning=Tuning(wakeup_retry_seconds=7))
    for denial in DECLINED:
        run_id = w.start()
        w.tuning = Tuning()
        w.deploy(App(agents=[Agent(AGENT, model=scripted(call("ask", x=1), say("done")), tools=[asking(way, fx)])]))
        decline(w, w.the_action(run_id), denial)
        assert (fx["fx"], w.run(run_id).status, w.pending()) == (0, "completed", [])
    assert w.answer(w.the_action(w.start()), YES).status == "accepted"
    assert fx["fx"] == 1


@pytest.mark.parametrize("without", ["no gate", "another gate", "no tool"])
def test_a_build_without_the_gate_does_not_execute_what_was_declined_under_it(build: Build, without: str) -> None:
    """The gate is the policy: a build that lost it, or has another one there, may not act in its stead."""
    fx = Counters()
    model = scripted(call("ask", x=1), say("done"))
    w = build(asking("inline", fx), model=model)
    gated = w.app
    changed = {"no gate": ungated(fx), "another gate": another_gate(fx), "no tool": counting("other", fx)}[without]
    for denial in DECLINED:
        w.deploy(gated)
        run_id = w.start()
        w.deploy(App(agents=[Agent(AGENT, model=model, tools=[changed])]))
        decline(w, w.the_action(run_id), denial)
        failed = w.run(run_id)
        assert failed.error is not None
        assert (fx["fx"], failed.status, failed.error.type) == (0, "failed", "ToolChangedError")


def ungated(fx: Counters) -> Tool[..., Any]:
    @tool(name="ask", description="Act.")
    def ask(ctx: Context, x: int) -> str:
        fx.bump("fx")
        return "acted"

    return ask


def another_gate(fx: Counters) -> Tool[..., Any]:
    other: WaitPoint[dict[str, int], Verdict] = WaitPoint("q", suspend=dict[str, int], resume=Verdict)

    @tool(name="ask", description="Ask, then act.", wait_points=[other])
    def ask(ctx: Context, x: int) -> str:
        ctx.ask(other, {"x": x})
        fx.bump("fx")
        return "acted"

    return ask


def test_a_decline_through_the_resume_queue_is_obeyed_by_a_fresh_worker(live: Deployment) -> None:
    live.effects.release("behind-gate")
    first = live.ready_worker()
    parked = [live.parked("asker") for _ in range(3)]
    first.kill()
    live.ready_worker()
    answers: list[dict[str, Any]] = [
        {"kind": "cancel", "reason": "no"},
        {"data": {"approved": False}},
        {"kind": "fail"},
    ]
    for run, fields in zip(parked, answers, strict=True):
        (action,) = live.client.pending(run_id=run.id)
        assert live.client.publish(Answer(action_id=action.id, **fields), 60).status == "accepted"
        assert live.ended(run).status == "completed"
    assert live.effects.count("fx") == 0
    assert live.client.pending() == []


# --- a history that ends in a call nobody approved ---------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_parked_run_that_is_delivered_again_stays_as_it_is(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    run_id = w.start()
    action, items = w.the_action(run_id), w.items(run_id)
    for due in ("turn", "reentry", "suspect"):
        w.wakeups.publish(WakeUp(run_id=run_id, due=due))
        w.settle()
        w.deploy(w.app)
    w.redis.flushdb()
    w.sweep()
    assert (w.the_action(run_id), w.items(run_id), w.run(run_id).status) == (action, items, "parked")
    assert (fx["fx"], fx["passes"], fx["model"]) == (0, 1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_restored_run_with_an_open_gate_parks_at_it_again(build: Build, way: str) -> None:
    """As after a restore, or an operator's hand: the row says that the run is due, and nothing was answered."""
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    run_id = w.start()
    action = w.the_action(run_id)
    for due in ("turn", "reentry", "suspect"):
        make_due(w, run_id, due)
        assert (w.the_action(run_id), w.run(run_id).status) == (action, "parked")
        assert (fx["fx"], fx["passes"], fx["model"]) == (0, 1, 1)
    w.answer(action, YES)
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_restored_run_whose_gate_was_never_stored_raises_it(build: Build, outage: Outage, way: str) -> None:
    """The history ends in the call itself: the process died, or the backup was made, before the gate opened."""
    fx = Counters()
    w = build(asking(way, fx), model=scripted([call("ask", x=1), call("ask", x=2)], say("done"), counters=fx))
    outage.after_write(1)
    outage.survive(w, lambda: w.start(run_id="run_1"))
    assert [item.body.kind for item in w.items("run_1")] == ["message", "response"]
    outage.restart(w)
    assert (len(w.pending("run_1")), w.run("run_1").status) == (2, "parked")
    assert (fx["fx"], fx["model"]) == (0, 1)
    make_due(w, "run_1", "turn")
    for action in w.pending("run_1"):
        w.answer(action, kind="cancel")
    assert (w.run("run_1").status, fx["fx"]) == ("completed", 0)


def test_a_run_that_is_given_back_at_its_gate_is_not_approved_by_that(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    make_due(w, run_id, "reentry", drive=False)
    claim = runs.claim(w.db, run_id, suspect=False, token="stopping")
    assert claim is not None
    for wakeup in runs.put_back(w.db, [(run_id, "stopping")]):
        w.wakeups.publish(wakeup)
    w.settle()
    assert (w.run(run_id).status, fx["fx"], len(w.pending(run_id))) == ("parked", 0, 1)


def test_one_approved_call_does_not_approve_the_other(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted([call("ask", x=1), call("ask", x=2)], say("done")))
    run_id = w.start()
    left, right = w.pending(run_id)
    w.answer(left, YES)
    make_due(w, run_id, "reentry")
    assert (fx["fx"], w.the_action(run_id), w.run(run_id).status) == (1, right, "parked")


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_that_expired_is_not_approved(build: Build, way: str) -> None:
    fx = Counters()
    point = WaitPoint("q", suspend=Question, resume=Verdict, timeout=timedelta(hours=1), on_timeout="error")
    w = build(asking(way, fx, point=point), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    w.advance(3601)
    w.sweep()
    assert [output.outcome for output in w.outputs(run_id)] == ["expired"]
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 0)


def make_due(w: World, run_id: str, due: str, *, drive: bool = True) -> None:
    statement = "update adjourn.runs set status = 'queued', due = :due, due_at = created_at where id = :id"
    w.db.execute(text(statement), {"id": run_id, "due": due})
    w.wakeups.publish(WakeUp(run_id=run_id, due=due))  # type: ignore[arg-type]
    if drive:
        w.settle()
    else:
        w.wakeups.waiting.clear()
