"""A model that cannot be asked is left alone for a while; the rest of its run, and answers, do not wait for that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from adjourn import (
    Agent,
    Parallel,
    Sequential,
    SubAgent,
    WaitPoint,
    WaitTimeoutError,
    call,
    tool,
)
from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.items import FaultItem
from adjourn.schemas.records.messages import ModelRequest
from adjourn.tasks.answers.ends import cancel
from adjourn.tasks.context.facade import Context
from tests.families import Ask, boss, digger, gate
from tests.flow.conftest import Plant
from tests.flow.watching import client_of
from tests.world import Counters, World, scripted


class Outage:
    """A provider that cannot be asked until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while it is asked."""

    def agent(self, said: str = "back", **options: Any) -> Agent:
        def turn(_: ModelRequest) -> str:
            self.asked += 1
            self.meanwhile()
            if not self.mended:
                raise ModelRequestError("provider", "503", retryable=True)
            return said

        return Agent("away", model=scripted(*[turn] * 20), **options)


def beside(plant: Plant, outage: Outage, *others: Any) -> tuple[World, str]:
    """A run of an agent that is away, and of others beside it, as far as it goes."""
    branches = {"away": outage.agent(), **{f"other{n}": other for n, other in enumerate(others)}}
    w = plant(Parallel("both", branches))
    return w, w.start("x", agent="both")


def test_an_answer_beside_a_model_that_is_left_alone_takes_effect_at_once(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    w, run_id = beside(plant, outage, gate(counters))
    assert (w.run(run_id).status, outage.asked) == ("queued", 1)
    w.answer(w.the_action(run_id), True)
    assert counters.seen == {"sent x": 1}
    assert (w.run(run_id).status, outage.asked) == ("queued", 1), "the model is still left alone"
    outage.mended = True
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert w.run(run_id).output == {"away": "back", "other0": "sent x"}
    assert outage.asked == 2


def test_answers_do_not_use_up_the_tries_of_a_model(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    gates = [gate(counters) for _ in range(10)]
    w, run_id = beside(plant, outage, *gates)
    for action in w.pending():
        w.answer(action, True)
    assert outage.asked == 1
    assert len([item for item in w.items(run_id) if isinstance(item.body, FaultItem)]) == 1
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert outage.asked == 2
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert outage.asked == 2, "the second pause is twice the first, as if nobody had answered"


def test_an_answer_that_comes_while_the_model_is_asked_in_vain_takes_effect_at_once(
    plant: Plant, counters: Counters
) -> None:
    outage = Outage()
    w, run_id = beside(plant, outage, gate(counters))
    action = w.the_action(run_id)
    outage.meanwhile = lambda: w.answer(action, True, settle=False)
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert counters.seen == {"sent x": 1}
    assert (w.run(run_id).status, outage.asked) == ("queued", 2)


def test_a_pause_runs_down_while_others_work(plant: Plant) -> None:
    worlds: list[World] = []

    @tool
    def work() -> str:
        """Work for some time."""
        worlds[0].advance(10)
        return "done"

    outage = Outage()
    busy = Agent("busy", model=scripted(*[call("work")] * 3, "tired"), tools=[work])
    worlds.append(plant(Parallel("both", {"away": outage.agent(), "busy": busy})))
    worlds[0].start("x", agent="both")
    assert outage.asked == 2, "after 20 of 30 seconds, in the third turn of the other; the next pause is 30 seconds"


def test_other_agents_go_on_while_one_is_left_alone(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    chatty = Agent("chatty", model=scripted(call("look"), call("look"), "seen"), tools=[look])
    w, run_id = beside(plant, outage, Sequential("steps", [chatty, gate(counters)]))
    assert w.the_action(run_id).input == {"prompt": "Send seen?"}
    assert (w.run(run_id).turns, outage.asked) == (3, 1)


def test_a_child_that_ends_is_heard_while_a_model_is_left_alone(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    w, run_id = beside(plant, outage, Sequential("steps", [SubAgent(digger(counters)), gate(counters)]))
    w.answer(w.pending()[0], True)
    (action,) = w.pending()
    assert action.origin.run_id == run_id
    assert outage.asked == 1


def test_a_deadline_beside_a_model_that_is_left_alone_fires_in_time(plant: Plant) -> None:
    soon = WaitPoint("soon", suspend=Ask, resume=bool, timeout=timedelta(seconds=5), default=True)

    @tool(wait_points=[soon])
    def hasty(ctx: Context, what: str) -> str:
        """Ask, and do not wait for long."""
        return f"{what}: {ctx.ask(soon, Ask(prompt=what))}"

    outage = Outage()
    w, run_id = beside(plant, outage, hasty)
    w.advance(5)
    w.sweep()
    assert [output.content for output in w.outputs(run_id)] == ["x: True"]
    assert outage.asked == 1


def test_whoever_waits_for_a_run_is_told_of_a_gate_beside_a_model_that_is_left_alone(
    plant: Plant, counters: Counters
) -> None:
    w, run_id = beside(plant, Outage(), gate(counters))
    thread_id = w.run(run_id).thread_id
    with client_of(w) as client:
        run = client.wait(run_id, timeout=0)
        result = client.thread(thread_id).wait(timeout=0)
        assert (run.status, result.status, len(result.requests)) == ("queued", "pending", 1)
        w.answer(w.the_action(run_id), True)
        with pytest.raises(WaitTimeoutError):
            client.wait(run_id, timeout=0.01)


def test_a_run_that_is_cancelled_in_a_pause_is_over(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    w, run_id = beside(plant, outage, gate(counters))
    action = w.the_action(run_id)
    cancel(w.services, run_id, reason=None, by=None)
    assert w.answer(action, True).status == "late"
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert (w.run(run_id).status, outage.asked) == ("cancelled", 1)


def test_an_inline_agent_that_is_away_holds_up_no_sub_agent(plant: Plant, counters: Counters) -> None:
    outage = Outage()
    calls = call("away", input="x"), call("digger", task="gold")
    w = plant(boss([outage.agent(), SubAgent(digger(counters))], *calls, counters=counters))
    run_id = w.start(agent="boss")
    w.answer(w.pending()[0], True)
    assert [output.content for output in w.outputs(run_id)] == ["sent gold"]
    outage.mended = True
    w.advance(w.tuning.model_retry_seconds)
    w.sweep()
    assert w.run(run_id).output == "back + sent gold"


@tool
def look() -> str:
    """Look."""
    return "nothing"
