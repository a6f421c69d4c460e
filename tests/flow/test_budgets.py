"""What a tree of runs may use, and how it adds up: shares, reservations, and totals whatever way a run ends."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from adjourn import (
    Agent,
    Limits,
    ModelRequest,
    ModelResponse,
    Parallel,
    SubAgent,
    Usage,
    call,
    require_approval,
    say,
    tool,
)
from adjourn import Sequential as Steps
from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.answers.ends import cancel
from adjourn.tasks.lifecycle.sweep import sweep
from adjourn.tasks.models.scripted import USAGE
from tests.families import boss, child_of, children_of, digger, gate, results
from tests.flow.conftest import Plant
from tests.store.steps import tuned
from tests.world import Counters, scripted


@tool
def listen() -> str:
    """Listen."""
    return "whales"


# --- shares ---


def test_children_share_what_their_parent_may_still_use(plant: Plant, counters: Counters) -> None:
    calls = [call("digger", task=str(n)) for n in range(3)]
    limits = Limits(turns=20, tokens=1_000, cost=3.0, seconds=60)
    w = plant(boss(SubAgent(digger(counters)), *calls, counters=counters, limits=limits))
    run_id = w.start(agent="boss")
    shares = [child.limits for child in children_of(w, run_id)]
    used = USAGE.input_tokens + USAGE.output_tokens
    assert [share.turns for share in shares if share] == [6, 6, 6]
    assert [share.tokens for share in shares if share] == [(1_000 - used) // 4] * 3, "one part is the parent's own"
    assert [share.cost for share in shares if share] == [0.75, 0.75, 0.75]
    assert all(share and share.seconds and 59 < share.seconds <= 60 for share in shares)


def test_a_default_limit_of_the_child_does_not_undercut_the_budget_of_its_parent(
    plant: Plant, counters: Counters
) -> None:
    many = Agent("many", model=scripted(*[call("listen") for _ in range(4)], "done"), tools=[listen])
    many.limits = Limits(turns=2)
    w = plant(boss(SubAgent(many), call("many", task="x"), counters=counters, limits=Limits(turns=30)))
    run = w.run(w.start(agent="boss"))
    assert (run.status, run.output, run.turns) == ("completed", "done", 7)


def test_a_child_has_a_budget_of_its_own_if_told_so(plant: Plant, counters: Counters) -> None:
    many = Agent("many", model=scripted(*[call("listen") for _ in range(4)], "done"), tools=[listen])
    w = plant(boss(SubAgent(many, limits=Limits(turns=2)), call("many", task="x"), counters=counters))
    run = w.run(w.start(agent="boss"))
    assert run.status == "completed"
    assert "turns" in str(run.output)
    assert "sub-agent 'many' failed" in str(run.output)


def test_a_parent_without_anything_left_starts_no_child(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters, limits=Limits(turns=2)))
    run = w.run(w.start(agent="boss"))
    assert "what is left of the limit on turns, 0, is too little for 1 parts" in str(run.output)
    assert children_of(w, run.id) == []


# --- agents that are parts of a run ---------------------------------------------------------------


def test_an_inline_agent_has_what_its_children_use_counted_for_its_own_limits(plant: Plant, counters: Counters) -> None:
    asks = [say("", call("digger", task=str(n))) for n in range(3)]
    inner = Agent("inner", model=scripted(*asks, results), tools=[SubAgent(digger(counters))], limits=Limits(turns=5))
    w = plant(boss(inner, call("inner", input="x"), counters=counters, limits=Limits(turns=50)))
    run_id = w.start(agent="boss")
    (child,) = children_of(w, run_id)
    assert child.limits is not None
    assert child.limits.turns == 3, "of five, one is used, and one is for reading what comes of it"
    w.answer(w.the_action(run_id), True)
    run = w.run(run_id)
    assert run.status == "completed"
    assert "turns" in str(run.output), "three of its own and two of the child's are all that it has"
    assert len(children_of(w, run_id)) == 1
    assert run.turns == 2 + 3 + 2


def test_of_two_budgets_a_child_gets_its_share_of_the_tighter(plant: Plant, counters: Counters) -> None:
    inner = Agent(
        "inner",
        model=scripted(say("", call("digger", task="a"), call("digger", task="b")), results),
        tools=[SubAgent(digger(counters))],
        limits=Limits(turns=30, tokens=None),
    )
    limits = Limits(turns=20, tokens=1_000)
    w = plant(boss(inner, call("inner", input="x"), counters=counters, limits=limits))
    shares = [child.limits for child in children_of(w, w.start(agent="boss"))]
    used = 2 * (USAGE.input_tokens + USAGE.output_tokens)
    assert [share.turns for share in shares if share] == [(20 - 2 - 1) // 3] * 2, (
        "the agent that calls them is at work, too"
    )
    assert [share.tokens for share in shares if share] == [(1_000 - used) // 4] * 2


def test_an_agent_beside_a_child_is_left_its_part_and_is_not_kept_waiting(plant: Plant, counters: Counters) -> None:
    busy = Agent("busy", model=scripted(*[call("listen") for _ in range(6)], "heard"), tools=[listen])
    calls = call("digger", task="gold"), call("busy", input="x")
    w = plant(boss([SubAgent(digger(counters)), busy], *calls, counters=counters, limits=Limits(turns=12)))
    run_id = w.start(agent="boss")
    (child,) = children_of(w, run_id)
    assert child.limits is not None
    assert child.limits.turns == 5, "half of what is left: the other half is for the agent beside it"
    assert [output.content for output in w.outputs(run_id)][-1] == "heard"
    w.answer(w.the_action(run_id), True)
    run = w.run(run_id)
    assert (run.status, run.output, run.turns) == ("completed", "sent gold + heard", 11)


def test_a_call_that_waits_for_an_approval_is_left_its_part(plant: Plant, counters: Counters) -> None:
    calls = call("digger", task="tin"), call("digger", task="gold")
    w = plant(boss(SubAgent(digger(counters)), *calls, counters=counters, policies=[require_approval("digger")]))
    run_id = w.start(agent="boss")
    for action in w.pending():
        w.answer(action, {"approved": True})
    assert [child.limits.turns for child in children_of(w, run_id) if child.limits] == [24, 24]
    for action in w.pending():
        w.answer(action, True)
    assert sorted(str(w.run(run_id).output).split(" + ")) == ["sent gold", "sent tin"]


def test_an_agent_that_waits_is_left_its_part(plant: Plant, counters: Counters) -> None:
    asks = Agent("asks", model=scripted(call("send", what="tin"), results), tools=[gate(counters)])
    steps = Steps("steps", [gate(counters), SubAgent(digger(counters))])
    w = plant(Parallel("both", {"asks": asks, "steps": steps}))
    run_id = w.start("gold", agent="both")
    w.answer(next(each for each in w.pending() if "steps" in each.origin.block_path), True)
    (child,) = children_of(w, run_id)
    assert child.limits is not None
    assert child.limits.turns == (50 - 1 - 1) // 2


def test_calls_that_start_nothing_take_no_part(plant: Plant, counters: Counters) -> None:
    calls = [call("digger", task="gold"), *(call("digger", task=7) for _ in range(8))]
    w = plant(boss(SubAgent(digger(counters)), *calls, counters=counters, limits=Limits(turns=20)))
    (child,) = children_of(w, w.start(agent="boss"))
    assert child.limits is not None
    assert child.limits.turns == 18


USE = Usage(input_tokens=7, cost=Decimal("0.1"))


@pytest.mark.parametrize("limit", [{"tokens": 200}, {"cost": 2.5}, {"tool_calls": 30}, {"turns": 30}])
@pytest.mark.parametrize("inline", [0, 1, 2])
def test_children_that_use_up_their_shares_leave_those_who_called_them_enough_to_read_that(
    plant: Plant, counters: Counters, limit: dict[str, Any], inline: int
) -> None:
    def more(_: ModelRequest) -> ModelResponse:
        return say("", call("listen")).model_copy(update={"usage": USE})

    sub = SubAgent(Agent("endless", model=scripted(*[more] * 50), tools=[listen]))
    asks = call("endless", task="x")
    inner = [Agent(f"inner{n}", model=scripted(say("", asks), results), tools=[sub]) for n in range(inline)]
    calls = [call(each.name, input="x") for each in inner] or [asks]
    limits = Limits.model_validate({"turns": None, **limit})
    w = plant(boss(inner or sub, *calls, counters=counters, limits=limits))
    run = w.run(w.start(agent="boss"))
    assert run.status == "completed", run.error
    assert str(run.output).count(f"sub-agent 'endless' failed: limit {next(iter(limit))} is") == max(1, inline)
    assert all(child.turns > 3 for child in children_of(w, run.id))


def test_only_calls_that_start_a_run_take_a_part(plant: Plant, counters: Counters) -> None:
    """One names a task that has ended, one is refused by the number of children, one has a task of its own."""
    again = call("digger", task="tin", key="k")
    turns = say("", again), say("", again, call("digger", task="gold"), call("digger", task="iron"))
    sub = SubAgent(digger(counters))
    agent = Agent("boss", model=scripted(*turns, results, counters=counters), tools=[sub], limits=Limits(turns=20))
    w = plant(agent, tuning=Tuning(max_children=2))
    run_id = w.start(agent="boss")
    w.answer(w.the_action(run_id), True)
    assert [child.limits.turns for child in children_of(w, run_id) if child.limits] == [18, 20 - 2 - 2 - 1]


def test_a_child_with_limits_of_its_own_and_a_second_call_of_one_task_take_no_part(
    plant: Plant, counters: Counters
) -> None:
    own = SubAgent(digger(counters, "own"), limits=Limits(turns=10))
    twice = call("digger", task="tin", key="k"), call("digger", task="tin", key="k")
    subs = [own, SubAgent(digger(counters))]
    w = plant(boss(subs, call("own", task="x"), *twice, counters=counters, limits=Limits(turns=12)))
    by_agent = {child.agent: child.limits for child in children_of(w, w.start(agent="boss"))}
    assert {name: limits.turns for name, limits in by_agent.items() if limits} == {"own": 10, "digger": 10}


def test_a_run_whose_children_have_used_more_than_it_has_left_fails_by_its_limit(
    plant: Plant, counters: Counters
) -> None:
    busy = Agent("busy", model=scripted(*[call("listen") for _ in range(9)]), tools=[listen])
    hungry = Agent("digger", model=scripted(*[call("listen") for _ in range(9)]), tools=[listen])
    calls = call("digger", task="gold"), call("busy", input="x")
    w = plant(boss([SubAgent(hungry), busy], *calls, counters=counters, limits=Limits(turns=10)))
    run = w.run(w.start(agent="boss"))
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error.type, run.error.data["limit"]) == ("LimitExceededError", "turns")


def test_the_limits_of_an_agent_hold_for_children_that_its_blocks_start(plant: Plant, counters: Counters) -> None:
    steps = Steps("steps", [SubAgent(digger(counters))])
    inner = Agent("inner", model=scripted(call("steps", input="gold"), results), tools=[steps], limits=Limits(turns=4))
    w = plant(boss(inner, call("inner", input="x"), counters=counters, limits=Limits(turns=50)))
    (child,) = children_of(w, w.start(agent="boss"))
    assert child.limits is not None
    assert child.limits.turns == 2


def test_a_task_key_is_of_the_agent_that_uses_it(plant: Plant, counters: Counters) -> None:
    """Two inline agents that hand over the same task each have a run for it, and neither waits for the other's turn."""

    sub = SubAgent(digger(counters))

    def inner(name: str, *more: Any) -> Agent:
        asks = say("", call("digger", task="gold", key="k"), *more)
        return Agent(name, model=scripted(asks, results), tools=[sub])

    first, second = inner("first", call("digger", task="tin")), inner("second")
    w = plant(boss([first, second], call("first", input="x"), call("second", input="x"), counters=counters))
    run_id = w.start(agent="boss")
    assert len(children_of(w, run_id)) == 3
    mine = next(each for each in w.pending() if "second" in each.origin.block_path)
    w.answer(mine, True)
    outputs = {output.tool: output.content for output in w.outputs(run_id)}
    assert outputs["second"] == "sent gold"
    assert "first" not in outputs


# --- totals ---------------------------------------------------------------------------------------


def test_what_was_used_in_a_tree_that_is_cancelled_counts_up_to_its_root(plant: Plant, counters: Counters) -> None:
    middle = Agent("middle", model=scripted(say("", call("digger", task="t"))), tools=[SubAgent(digger(counters))])
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    cancel(w.services, run_id, reason="enough", by=None)
    by_agent = {run.agent: run for run in runs.list(w.db)}
    assert {name: run.turns for name, run in by_agent.items()} == {"boss": 3, "middle": 2, "digger": 1}
    assert by_agent["boss"].usage.requests == 3
    assert by_agent["boss"].tool_calls == 3
    cancel(w.services, run_id, reason="again", by=None)
    assert w.run(run_id).turns == 3, "counted once"


def test_a_cancelled_tree_whose_canceller_dies_half_way_adds_up_all_the_same(plant: Plant, counters: Counters) -> None:
    middle = Agent("middle", model=scripted(say("", call("digger", task="t"))), tools=[SubAgent(digger(counters))])
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    node = child_of(w, run_id)
    assert runs.cancel(w.db, run_id, reason=None, by=None) is not None
    assert runs.cancel(w.db, node.id, reason=None, by=None) is not None, "and then it died"
    cancel(w.services, run_id, reason="again", by=None)
    assert (w.run(run_id).turns, w.run(node.id).turns) == (3, 2)
    assert {run.status for run in runs.list(w.db)} == {"cancelled"}


def test_a_child_that_killed_its_workers_is_told_of_by_the_sweep_that_ends_it(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.enqueue(agent="boss").run_id
    w.settle_one()
    child = child_of(w, run_id)
    w.wakeups.waiting.clear()
    for deaths in range(w.tuning.suspect_deaths + 1):
        token = f"of a worker that dies {deaths}"
        assert runs.claim(tuned(w.db, lease_seconds=1), child.id, suspect=deaths > 0, token=token) is not None
        w.advance(2)
        sweep(w.services)  # and no worker is there to take it up
    assert w.run(child.id).status == "failed"
    assert w.run(run_id).status == "queued", "told by the same sweep"
    w.settle()
    assert "killed its worker 4 times" in str(w.run(run_id).output)
