"""Limits of cost and of time: counted across waits and down nested agents, never while a run waits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from adjourn import Agent, App, Context, Limits, Parallel, Sequential, WaitPoint, tool
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, Usage
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import World

YES = {"approved": True}


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Verdict)


@tool(wait_points=[approval])
def gate(ctx: Context) -> bool:
    """Ask."""
    return ctx.ask(approval, Ask(prompt="Go on?")).approved


class Priced:
    """A scripted model whose calls cost something and take a while."""

    name = "priced"

    def __init__(self, *steps: Any, cost: str = "0", during: Callable[[], None] = lambda: None) -> None:
        self._script, self._cost, self._during = ScriptedModel([*steps]), Decimal(cost), during

    async def request(self, request: ModelRequest) -> ModelResponse:
        self._during()
        response = await self._script.request(request)
        usage = response.usage.model_copy(update={"cost": self._cost})
        return response.model_copy(update={"usage": usage})


def over(w: World, run_id: str) -> tuple[str, float]:
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "LimitExceededError", error
    return error.data["limit"], error.data["used"]


def test_what_a_run_has_cost_is_summed_exactly_across_waits(plant: Any) -> None:
    model = Priced(call("gate"), call("gate"), say("done"), cost="0.1")
    w = plant(Agent("agent", model=model, tools=[gate]))
    run_id = w.start(agent="agent")
    while w.pending(run_id):
        w.answer(w.the_action(run_id), YES)
    assert (w.run(run_id).status, w.run(run_id).usage.cost) == ("completed", Decimal("0.3"))
    (run,), _, _ = w.snapshot(w.run(run_id).thread_id)
    assert run.usage.cost == Decimal("0.3")


def test_a_cost_limit_stops_the_run_before_the_turn_that_would_break_it(plant: Any) -> None:
    model = Priced(call("gate"), call("gate"), say("done"), cost="0.15")
    w = plant(Agent("agent", model=model, tools=[gate], limits=Limits(cost=0.3)))
    run_id = w.start(agent="agent")
    w.answer(w.the_action(run_id), YES)
    w.answer(w.the_action(run_id), YES)
    assert over(w, run_id) == ("cost", 0.3)
    assert w.run(run_id).turns == 2


def test_what_a_nested_agent_costs_counts_for_the_run_and_for_its_own_limit(plant: Any) -> None:
    def build(whole: float | None, part: float | None) -> Agent:
        inner = Agent(
            "inner", model=Priced(call("gate"), say("in"), cost="0.2"), tools=[gate], limits=Limits(cost=part)
        )
        outer = Priced(call("inner", input="x"), say("out"), cost="0.1")
        return Agent("outer", model=outer, tools=[inner], limits=Limits(cost=whole))

    w = plant(build(whole=0.3, part=None))
    run_id = w.start(agent="outer")
    w.answer(w.the_action(run_id), YES)
    assert over(w, run_id) == ("cost", 0.3)
    w.deploy(App(blocks=[build(whole=None, part=0.2)]))
    run_id = w.start(agent="outer")
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.output, run.usage.cost) == ("completed", "out", Decimal("0.4"))
    (output,) = [each for each in w.outputs(run_id) if each.tool == "inner"]
    assert (output.outcome, output.content.partition(",")[0]) == ("error", "limit cost is 0.2")


def test_only_the_time_in_hand_counts_and_it_is_counted_across_waits(plant: Any) -> None:
    worlds: list[World] = []
    model = Priced(call("gate"), call("gate"), say("done"), during=lambda: worlds[0].advance(10))
    w = plant(Agent("agent", model=model, tools=[gate], limits=Limits(seconds=25)))
    worlds.append(w)
    run_id = w.start(agent="agent")
    assert 10 <= w.run(run_id).seconds < 20
    w.advance(10_000)
    assert 10 <= w.run(run_id).seconds < 20
    w.answer(w.the_action(run_id), YES)
    assert 20 <= w.run(run_id).seconds < 25
    w.advance(10_000)
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.turns) == ("completed", 3)
    assert 30 <= run.seconds < 40


def test_a_run_that_has_had_its_time_is_stopped(plant: Any) -> None:
    worlds: list[World] = []
    model = Priced(call("gate"), call("gate"), say("done"), during=lambda: worlds[0].advance(10))
    w = plant(Agent("agent", model=model, tools=[gate], limits=Limits(seconds=15)))
    worlds.append(w)
    run_id = w.start(agent="agent")
    assert w.run(run_id).status == "parked", "waiting costs no time"
    w.answer(w.the_action(run_id), YES)
    name, used = over(w, run_id)
    assert name == "seconds"
    assert 20 <= used < 30
    assert (w.run(run_id).turns, len(w.outputs(run_id))) == (2, 1), "nothing more begins"


def test_a_body_that_took_the_time_leaves_none_for_the_next_turn(plant: Any) -> None:
    worlds: list[World] = []

    @tool
    def slow() -> str:
        """Take long."""
        worlds[0].advance(10)
        return "slept"

    w = plant(Agent("agent", model=Priced(call("slow"), say("done")), tools=[slow], limits=Limits(seconds=10)))
    worlds.append(w)
    run_id = w.start(agent="agent")
    assert over(w, run_id)[0] == "seconds"
    assert [output.content for output in w.outputs(run_id)] == ["slept"]


def test_the_time_of_a_worker_that_died_counts_until_its_lease_ran_out(plant: Any) -> None:
    w = plant(Agent("agent", model=ScriptedModel([say("done")])))
    run_id = w.enqueue(agent="agent").run_id
    w.wakeups.waiting.clear()
    assert runs.claim(w.db, run_id, suspect=False, token="dead") is not None
    w.advance(10_000)
    w.sweep()
    assert 60 <= w.run(run_id).seconds < 61


def test_a_cancel_in_the_middle_counts_and_one_while_it_waits_does_not(plant: Any) -> None:
    w = plant(Agent("agent", model=ScriptedModel([say("done")])))
    claimed, queued = (w.enqueue(agent="agent").run_id for _ in range(2))
    assert runs.claim(w.db, claimed, suspect=False, token="t") is not None
    w.advance(10)
    for run_id in (claimed, queued):
        runs.cancel(w.db, run_id, reason=None, by=None)
    assert 10 <= w.run(claimed).seconds < 20
    assert w.run(queued).seconds == 0


def test_costs_are_kept_as_they_are_and_bounded() -> None:
    tiny = Usage(cost=Decimal("0.00000015"))
    assert sum([tiny] * 3, Usage()).cost == Decimal("0.00000045")
    assert Usage(cost=Decimal(1) / 3).cost == Decimal("0.333333333333")
    item = ResponseItem(text="", usage=tiny)
    assert ResponseItem.model_validate_json(item.model_dump_json()) == item
    for wrong in (Decimal(-1), Decimal("NaN"), Decimal("Infinity"), Decimal("1e12")):
        with pytest.raises(ValidationError):
            Usage(cost=wrong)


def test_a_limit_that_is_met_while_a_branch_opens_a_wait_ends_the_run_by_name_and_closes_the_wait(plant: Any) -> None:
    @tool(wait_points=[approval], exclusive=True)
    def last(ctx: Context, text: str) -> bool:
        """Ask once the others are done."""
        return ctx.ask(approval, Ask(prompt=text)).approved

    two_turns = Sequential("two", [Agent("one", ScriptedModel(["x"])), Agent("other", ScriptedModel(["y"]))])
    w = plant(Parallel("both", [two_turns, last]))
    run_id = w.start(agent="both", limits=Limits(turns=1))
    assert over(w, run_id) == ("turns", 2)
    assert w.pending(run_id) == []
