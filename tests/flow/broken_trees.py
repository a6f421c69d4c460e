"""Families of agents of which one child fails by a deploy, and what tests of their retries look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from adjourn import Agent, App, Context, SubAgent, WaitPoint, call, tool
from adjourn.schemas.errors import NotRetryableError, ThreadBusyError
from adjourn.schemas.records.runs import Run
from adjourn.tasks.lifecycle.retry import retry
from tests.families import boss, children_of, results
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    ok: bool


class Stricter(BaseModel):
    ok: bool
    why: str


def asker(counters: Counters, name: str = "asker", resume: Any = Verdict) -> Agent:
    """Asks once, with one call, and says what came of it."""
    point = WaitPoint("approval", suspend=Ask, resume=resume)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context) -> str:
        """Ask."""
        said = ctx.ask(point, Ask(prompt=f"{name}?"))
        counters.bump(f"{name} asked and got {said.ok}")
        return f"{name} {said.ok}"

    return Agent(name, model=scripted(call("gate"), results, counters=counters), tools=[gate])


def root(*agents: Agent, counters: Counters, on_failure: Any = "end_parent", **options: Any) -> Agent:
    subs = [SubAgent(agent, on_failure=on_failure) for agent in agents]
    return boss(subs, *(call(agent.name, task="t") for agent in agents), counters=counters, **options)


def named(w: World, run_id: str, name: str) -> Run:
    """The child that runs this agent."""
    (found,) = [child for child in children_of(w, run_id) if child.agent == name]
    return found


def statuses(w: World, run_id: str) -> dict[str, str]:
    return {child.agent: child.status for child in children_of(w, run_id)}


def totals(run: Run) -> tuple[Any, ...]:
    return run.turns, run.tool_calls, run.usage


def gate_of(w: World, run_id: str, name: str) -> Any:
    (found,) = [each for each in w.pending(run_id) if each.input["prompt"] == f"{name}?"]
    return found


def go_on(w: World, run_id: str, **options: Any) -> None:
    retry(w.services, run_id, **options)
    w.settle()


def straight(plant: Plant, build: Callable[..., Agent], *names: str) -> Run:
    """The same family with the same answers, without a failure."""
    w = plant(build(Counters()))
    run_id = w.start(agent="boss")
    for name in names:
        w.answer(gate_of(w, run_id, name), {"ok": True})
    return w.run(run_id)


def pair(fx: Counters, resume: Any = Verdict, on_failure: Any = "end_parent") -> Agent:
    return root(asker(fx, "left", resume), asker(fx, "right"), counters=fx, on_failure=on_failure)


def broken_pair(plant: Plant, fx: Counters) -> tuple[World, str]:
    """Left fails by a deploy, with an answer that was accepted; right still waits and is closed with the root."""
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    left = gate_of(w, run_id, "left")
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    assert w.answer(left, {"ok": True}).status == "accepted"
    assert (w.run(run_id).status, w.run(run_id).error.type) == ("failed", "ChildFailedError")  # type: ignore[union-attr]
    assert statuses(w, run_id) == {"left": "failed", "right": "cancelled"}
    return w, run_id


def attempt(w: World, run_id: str) -> str:
    try:
        retry(w.services, run_id)
    except (NotRetryableError, ThreadBusyError) as refused:
        return type(refused).__name__
    return "retried"


def fail_left(w: World, run_id: str, fx: Counters) -> tuple[World, Any]:
    """Left is answered on a build that cannot take the answer; the build that can is back then."""
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    assert w.answer(left, {"ok": True}).status == "accepted"
    assert w.run(run_id).status == "failed"
    w.deploy(App(blocks=[pair(fx)]))
    return w, right
