"""Sub-agents: runs that a run starts, waits for without being there, and hears of when they end."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Agent, Answer, App, Context, Limits, Parallel, PendingAction, SubAgent, call, say, tool
from adjourn import Sequential as Steps
from adjourn.schemas.errors import ChildRunError, DefinitionError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import OutputItem
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.runs import children, retries
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresChildren
from adjourn.store.postgres.threads import streams
from adjourn.tasks.answers.ends import cancel, propagate_end
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.models.scripted import USAGE
from tests.families import Ask, approval, boss, child_of, children_of, digger, gate, last_result, results
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted


def test_the_answer_goes_to_the_leaf_and_the_parent_hears_of_the_end(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    run_id = w.start(agent="boss")
    child = child_of(w, run_id)
    assert (w.run(run_id).status, child.status) == ("parked", "parked")
    (action,) = w.pending()
    assert action.origin.run_id == child.id
    assert action.origin.block_path == ("boss", "digger", "send")
    assert action.name == "send.approval"
    assert child.path == ("boss", "digger")
    assert w.answer(action, True).ok
    assert w.run(run_id).output == "sent gold"
    assert counters.seen == {"model": 4, "sent gold": 1}


def test_one_nested_gate_is_listed_once_at_its_own_thread_and_at_the_root(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    run_id = w.start(agent="boss")
    thread_id, child = w.run(run_id).thread_id, child_of(w, run_id)
    _, _, pending = w.snapshot(thread_id)
    assert [each.origin.run_id for each in pending] == [child.id]
    assert w.snapshot(child.thread_id)[2] == pending
    assert w.pending(run_id) == w.pending(child.id) == w.pending()
    assert len(w.pending()) == 1


def test_usage_and_turns_sum_up_the_tree_and_grow_across_the_wait(plant: Plant, counters: Counters) -> None:
    middle = Agent(
        "middle", model=scripted(say("", call("digger", task="tin")), results), tools=[SubAgent(digger(counters))]
    )
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    before = w.run(run_id)
    (action,) = w.pending()
    assert action.origin.block_path == ("boss", "middle", "digger", "send")
    w.answer(action, True)
    after = w.run(run_id)
    assert (after.status, after.output) == ("completed", "sent tin")
    assert after.turns == 6
    assert after.usage.requests == 6
    assert after.usage.input_tokens == 6 * USAGE.input_tokens > before.usage.input_tokens > 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_gated_children_are_answered_in_any_order_and_wake_their_parent_once(
    plant: Plant, counters: Counters, order: tuple[int, int]
) -> None:
    calls = call("digger", task="tin"), call("digger", task="gold")
    w = plant(boss(SubAgent(digger(counters)), *calls, counters=counters))
    run_id = w.start(agent="boss")
    asked = sorted(w.pending(), key=lambda each: str(each.input))
    woken = len([wakeup for wakeup in w.wakeups.published if wakeup.run_id == run_id])
    for place in order:
        w.answer(asked[place], True)
    assert w.run(run_id).output == "sent tin + sent gold"
    assert len([wakeup for wakeup in w.wakeups.published if wakeup.run_id == run_id]) == woken + 1
    assert counters.seen == {"model": 6, "sent tin": 1, "sent gold": 1}


def test_two_identical_runs_do_not_mix(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    first, second = w.start(agent="boss"), w.start(agent="boss")
    by_run = {each.origin.run_id: each for each in w.pending()}
    w.answer(by_run[child_of(w, second).id], False)
    w.answer(by_run[child_of(w, first).id], True)
    assert (w.run(first).output, w.run(second).output) == ("sent gold", "kept")


# --- the task key ------------------------------------------------------------------------------


def keyed(counters: Counters, *turns: Any) -> Agent:
    return Agent("boss", model=scripted(*turns, results, counters=counters), tools=[SubAgent(digger(counters))])


def test_a_later_call_with_the_key_and_the_task_of_an_earlier_one_starts_nothing(
    plant: Plant, counters: Counters
) -> None:
    again = say("", call("digger", task="tin", key="k"))
    w = plant(keyed(counters, again, again))
    run_id = w.start(agent="boss")
    w.answer(w.pending()[0], True)
    assert w.run(run_id).output == "sent tin + sent tin"
    assert len(children_of(w, run_id)) == 1
    assert counters["sent tin"] == 1


def test_two_calls_of_one_turn_with_one_key_wait_for_one_run(plant: Plant, counters: Counters) -> None:
    twice = say("", call("digger", task="tin", key="k"), call("digger", task="tin", key="k"))
    w = plant(keyed(counters, twice))
    run_id = w.start(agent="boss")
    assert len(children_of(w, run_id)) == 1
    w.answer(w.pending()[0], True)
    assert w.run(run_id).output == "sent tin + sent tin"


def test_a_key_used_for_another_task_is_an_error_that_the_model_reads(plant: Plant, counters: Counters) -> None:
    twice = say("", call("digger", task="tin", key="k"), call("digger", task="gold", key="k"))
    w = plant(keyed(counters, twice))
    run_id = w.start(agent="boss")
    w.answer(w.pending()[0], True)
    outcomes = sorted(output.outcome for output in w.outputs(run_id))
    assert outcomes == ["error", "success"]
    assert "names another task" in str(w.run(run_id).output)


# --- ends -------------------------------------------------------------------------------------


def failing(name: str = "digger") -> Agent:
    return Agent(name, model=scripted(), limits=Limits(turns=5))


def test_a_child_that_fails_is_a_result_that_its_parent_reads(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(failing()), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    assert w.run(run_id).status == "completed"
    assert "sub-agent 'digger' failed: " in str(w.run(run_id).output)


def test_a_child_that_fails_ends_its_parent_where_its_sub_agent_says_so(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(failing(), on_failure="end_parent"), call("digger", task="x"), counters=counters))
    run = w.run(w.start(agent="boss"))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ChildFailedError"
    assert run.error.data["agent"] == "digger"


def test_a_child_that_ends_its_parent_waits_for_no_sibling(plant: Plant, counters: Counters) -> None:
    subs = [SubAgent(failing("bad"), on_failure="end_parent"), SubAgent(digger(counters))]
    w = plant(boss(subs, call("digger", task="x"), call("bad", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    assert w.run(run_id).status == "failed"
    assert {child.status for child in children_of(w, run_id)} == {"failed", "cancelled"}
    assert w.pending() == []


def test_a_tree_that_a_child_has_ended_is_retried_at_its_root(plant: Plant, counters: Counters) -> None:
    subs = [SubAgent(failing("bad"), on_failure="end_parent"), SubAgent(digger(counters))]
    calls = call("digger", task="x"), call("bad", task="x")
    w = plant(boss(subs, *calls, counters=counters, limits=Limits(turns=20)))
    run_id = w.start(agent="boss")
    mended = Agent("bad", model=scripted("well"))
    subs = [SubAgent(mended, on_failure="end_parent"), SubAgent(digger(counters))]
    w.deploy(App(agents=[boss(subs, *calls, counters=counters, limits=Limits(turns=20))]))
    retry(w.services, run_id)
    w.settle()
    assert len(children_of(w, run_id)) == 2
    shares = [child.limits.turns for child in children_of(w, run_id) if child.limits]
    assert len(set(shares)) == 1, "as at the first time, each has the same"
    w.answer(w.the_action(run_id), True)
    assert w.run(run_id).output == "sent x + well"


def test_a_middle_node_shows_what_waits_below_it(plant: Plant, counters: Counters) -> None:
    middle = Agent("middle", model=scripted(say("", call("digger", task="t"))), tools=[SubAgent(digger(counters))])
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    node = child_of(w, w.start(agent="boss"))
    assert w.pending(node.id) == w.pending()
    assert list(w.snapshot(node.thread_id)[2]) == w.pending()


def test_a_wait_for_a_child_is_shown_to_nobody_as_one_to_answer(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    thread_id = w.run(w.start(agent="boss")).thread_id
    live = [event for entry in w.services.events.read(thread_id) for event in entry.events]
    stored = [event for page in streams.read(w.db, thread_id, ThreadPosition(1, 0)) for event in page.events]
    for events in (live, stored):
        assert [event.kind for event in events if event.kind == "suspension"] == []


def test_a_tool_may_be_a_task_of_its_own_too(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(gate(counters)), call("send", task="tin"), counters=counters))
    run_id = w.start(agent="boss")
    w.answer(w.the_action(run_id), True)
    assert w.run(run_id).output == "sent tin"


def test_an_empty_key_is_none(plant: Plant, counters: Counters) -> None:
    twice = say("", call("digger", task="tin", key=""), call("digger", task="gold", key=""))
    w = plant(keyed(counters, twice))
    run_id = w.start(agent="boss")
    for action in w.pending():
        w.answer(action, True)
    assert w.run(run_id).output == "sent tin + sent gold"


def test_outputs_that_are_recorded_together_count_against_the_history_one_after_the_other(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    long = Agent("long", model=scripted("x" * 1_000))
    agent = boss(SubAgent(long), *(call("long", task=str(n)) for n in range(8)), counters=counters)
    w = World(App(agents=[agent]), database_url, redis_url, Tuning(max_history_bytes=9_000))
    try:
        outcomes = [output.outcome for output in w.outputs(w.start(agent="boss"))]
        assert 0 < outcomes.count("success") < 8
        assert outcomes.count("success") + outcomes.count("error") == 8
    finally:
        w.close()


def test_cancelling_goes_down_the_tree(plant: Plant, counters: Counters) -> None:
    middle = Agent("middle", model=scripted(say("", call("digger", task="t"))), tools=[SubAgent(digger(counters))])
    w = plant(boss(SubAgent(middle), call("middle", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    (action,) = w.pending()
    cancelled = cancel(w.services, run_id, reason="enough", by=None)
    assert cancelled is not None
    assert {run.status for run in runs.list(w.db)} == {"cancelled"}
    assert w.pending() == []
    assert w.answer(action, True).status == "late"
    assert children.unpropagated(w.db, 10) == []


def test_a_cancel_whose_process_dies_is_finished_by_the_sweep(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    assert runs.cancel(w.db, run_id, reason=None, by=None) is not None
    assert child_of(w, run_id).status == "parked"
    assert w.sweep().unpropagated == 0, "whoever ended it may be about to settle it"
    w.advance(w.tuning.wakeup_retry_seconds)
    assert w.sweep().unpropagated == 1
    assert child_of(w, run_id).status == "cancelled"
    assert w.sweep().unpropagated == 0


def test_a_child_that_somebody_cancels_is_a_result(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    cancel(w.services, child_of(w, run_id).id, reason="no", by="ann")
    w.settle()
    assert w.run(run_id).output == "sub-agent 'digger' cancelled: no"


def test_the_end_of_a_child_whose_process_dies_is_told_by_the_sweep(
    plant: Plant, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    with monkeypatch.context() as dying:
        dying.setattr(PostgresChildren, "seq_of", lambda *_: None)
        w.answer(w.pending()[0], True)
    assert child_of(w, run_id).status == "completed"
    assert w.run(run_id).status == "parked"
    w.advance(w.tuning.wakeup_retry_seconds)
    w.sweep()
    assert w.run(run_id).output == "sent x"
    propagate_end(w.services, child_of(w, run_id).id)  # told again, nothing happens
    assert w.run(run_id).turns == 4


def test_a_lost_wakeup_of_a_child_is_given_again(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    started = w.enqueue(agent="boss")
    w.settle_one()
    w.wakeups.waiting.clear()
    w.advance(w.tuning.wakeup_retry_seconds * 2)
    w.sweep()
    assert len(w.pending()) == 1
    assert w.run(started.run_id).status == "parked"


def test_a_parent_that_was_cancelled_has_its_child_gone_before_it_began(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    started = w.enqueue(agent="boss")
    w.settle_one()
    cancel(w.services, started.run_id, reason=None, by=None)
    w.settle()
    assert child_of(w, started.run_id).turns == 0
    assert child_of(w, started.run_id).status == "cancelled"


# --- bad input ---------------------------------------------------------------------------------


def test_an_answer_to_an_inner_node_is_forbidden(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    (inner,) = [item.body for item in w.items(run_id) if item.body.kind == "suspension"]
    for answered in ({"status": "completed", "output": "mine"}, None):
        receipt = w.answer(inner.action_id, answered)
        assert receipt.status == "forbidden"
    assert w.answer(inner.action_id, kind="cancel", reason="no").status == "forbidden"
    assert w.run(run_id).status == "parked"


def test_agents_that_start_one_another_have_a_last_level(database_url: str, redis_url: str) -> None:
    tuning = Tuning(max_child_depth=3)

    def tools(_: Run) -> list[Block]:
        return [SubAgent(ouroboros)]

    def asks(request: ModelRequest) -> ModelResponse:
        return results(request) if len(request.conversation) > 1 else say("", call("ouroboros", task="again"))

    ouroboros = Agent("ouroboros", model=scripted(asks, asks), tools=tools)
    w = World(App(agents=[ouroboros]), database_url, redis_url, tuning)
    try:
        run = w.run(w.start(agent="ouroboros"))
        assert run.status == "completed"
        assert "max_child_depth" in str(run.output)
        assert max(each.depth for each in runs.list(w.db)) == tuning.max_child_depth
    finally:
        w.close()


def test_a_run_starts_no_more_children_than_it_may(database_url: str, redis_url: str, counters: Counters) -> None:
    calls = [call("digger", task=str(n)) for n in range(3)]
    agent = boss(SubAgent(digger(counters)), *calls, counters=counters)
    w = World(App(agents=[agent]), database_url, redis_url, Tuning(max_children=2))
    try:
        run_id = w.start(agent="boss")
        assert len(children_of(w, run_id)) == 2
        for action in w.pending():
            w.answer(action, True)
        assert "max_children" in str(w.run(run_id).output)
    finally:
        w.close()


def test_a_sub_agent_that_the_app_does_not_have_any_more_is_a_failure_its_parent_reads(
    plant: Plant, counters: Counters
) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    started = w.enqueue(agent="boss")
    w.settle_one()
    app = App(agents=[boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters)])
    app.blocks.pop("digger")
    w.deploy(app)
    w.settle()
    assert "no block named 'digger'" in str(w.run(started.run_id).output)


def test_two_agents_of_one_name_are_refused(counters: Counters) -> None:
    with pytest.raises(DefinitionError, match="two blocks named 'digger'"):
        App(agents=[digger(counters), boss(SubAgent(digger(counters)), counters=counters)])


def test_a_child_is_not_retried_by_itself(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(failing()), call("digger", task="x"), counters=counters))
    child = child_of(w, w.start(agent="boss"))
    with pytest.raises(ChildRunError):
        retries.retry(w.db, child.id, types=["ModelRequestError"], by=None)


def test_a_parent_that_is_retried_starts_its_children_anew(plant: Plant, counters: Counters) -> None:
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    run_id = w.start(agent="boss")
    other = Agent("boss", model=scripted(), tools=[gate(counters)])
    w.deploy(App(agents=[other, digger(counters)]))
    w.answer(w.pending()[0], True)
    assert w.run(run_id).status == "failed", "its sub-agent is gone"
    w.deploy(App(agents=[boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters)]))
    retries.retry(w.db, run_id, types=["ToolChangedError"], by=None)
    w.advance(w.tuning.wakeup_retry_seconds * 2)
    w.sweep()
    assert w.run(run_id).output == "sent x"
    assert len(children_of(w, run_id)) == 1, "the child had ended well, and is not started again"


# --- other places ------------------------------------------------------------------------------


def test_a_sub_agent_stands_as_a_step_too(plant: Plant, counters: Counters) -> None:
    both = Parallel("both", {"one": SubAgent(digger(counters)), "two": SubAgent(digger(counters, "other"))})
    w = plant(Steps("all", [both]))
    run_id = w.start("tin", agent="all")
    first, second = w.pending()
    w.answer(first, True)
    assert w.run(run_id).status == "parked"
    w.answer(second, True)
    assert w.run(run_id).output == {"one": "sent tin", "two": "sent tin"}


def test_the_outputs_of_children_are_recorded_once(plant: Plant, counters: Counters) -> None:
    calls = call("digger", task="tin"), call("digger", task="gold")
    w = plant(boss(SubAgent(digger(counters)), *calls, counters=counters))
    run_id = w.start(agent="boss")
    for action in w.pending():
        w.answer(action, True)
    outputs = [item.body for item in w.items(run_id) if isinstance(item.body, OutputItem)]
    assert [each.content for each in outputs] == ["sent tin", "sent gold"]


def test_a_resolver_below_tools_that_are_a_function_of_the_run_is_found(plant: Plant, counters: Counters) -> None:
    def yes(action: PendingAction) -> Answer:
        return Answer(action_id=action.id, data=True)

    @tool(name="send", wait_points=[approval], resolver=yes)
    def helped(ctx: Context, what: str) -> str:
        """Send it."""
        return "sent" if ctx.ask(approval, Ask(prompt=what)) else "kept"

    dynamic = Agent("digger", model=scripted(call("send", what="x"), last_result), tools=lambda run: [helped])
    of_boss = Agent("boss", model=scripted(call("digger", task="t"), results), tools=lambda run: [SubAgent(dynamic)])
    w = plant(of_boss, dynamic)
    assert w.run(w.start(agent="boss")).output == "sent"
