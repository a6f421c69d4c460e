"""Cases of nested agents (I), where each is a run of its own."""

from __future__ import annotations

import pytest

from adjourn import Agent, Limits, Sequential, SubAgent, call, tool
from adjourn.store.scratch import move_clock
from tests.cases.conftest import Plant
from tests.families import boss, child_of, digger
from tests.world import Counters, World, scripted


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_identical_trees_do_not_mix(plant: Plant, counters: Counters, order: tuple[int, int]) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    both = [w.start(agent="boss"), w.start(agent="boss")]
    for place in order:
        w.answer(w.the_action(both[place]), place == 0)
    assert [w.run(run_id).output for run_id in both] == ["sent gold", "kept"]


def test_one_nested_gate_is_one_pending_entry_of_the_leaf(plant: Plant, counters: Counters) -> None:
    middle = Agent("middle", scripted(call("digger", task="t"), "done"), tools=[SubAgent(digger(counters))])
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    leaf = child_of(w, child_of(w, run_id).id)
    (action,) = w.pending()
    assert w.pending(run_id) == w.pending(leaf.id) == [action]
    assert (action.origin.tool, action.origin.run_id, action.origin.thread_id) == ("send", leaf.id, leaf.thread_id)
    assert action.origin.block_path == ("boss", "middle", "digger", "send")


def test_the_next_child_starts_with_an_entry_and_an_action_of_its_own(plant: Plant, counters: Counters) -> None:
    w = plant(Sequential("both", {"one": SubAgent(digger(counters)), "two": SubAgent(digger(counters, "other"))}))
    run_id = w.start("gold", agent="both")
    first = w.the_action(run_id)
    w.answer(first, True)
    second = w.the_action(run_id)
    assert second.id != first.id
    assert second.input == {"prompt": "Send sent gold?"}, "it was handed what the first came to, and asks anew"
    w.answer(second, True)
    assert w.run(run_id).output == "sent sent gold"


def test_a_default_limit_of_the_child_does_not_undercut_the_budget_of_its_parent(
    plant: Plant, counters: Counters
) -> None:
    worlds: list[World] = []

    @tool
    def work() -> str:
        """Forty seconds of it."""
        move_clock(worlds[0].db, 40)
        return "worked"

    worker = Agent("worker", scripted(call("work"), "done"), tools=[work], limits=Limits(seconds=30))
    w = plant(boss(SubAgent(worker), call("worker", task="x"), counters=counters, limits=Limits(seconds=60)))
    worlds.append(w)
    run = w.run(w.start(agent="boss"))
    assert (run.status, run.output) == ("completed", "done")
    assert child_of(w, run.id).seconds >= 40
