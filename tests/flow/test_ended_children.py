"""Children that end otherwise than by their work: their deadline passes, or a row of them is damaged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from adjourn import Agent, Context, SubAgent, WaitPoint, call, tool
from adjourn.store.postgres.store import PostgresChildren
from adjourn.tasks.lifecycle.retry import retry
from tests.families import boss, children_of, results
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted

HOUR = timedelta(hours=1)
Ends = Literal["sweep", "late answer"]


class Ask(BaseModel):
    prompt: str


def waiting(counters: Counters, name: str, **terms: Any) -> Agent:
    """A child that waits once for a person."""
    point: WaitPoint[Any, Any] = WaitPoint("gate", suspend=Ask, resume=bool, **terms)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context) -> str:
        """Ask."""
        said = ctx.ask(point, Ask(prompt=f"{name}?"))
        counters.bump(f"{name} went on")
        return f"{name} {said}"

    return Agent(name, model=scripted(call("gate"), results, counters=counters), tools=[gate])


def family(counters: Counters, on_failure: Any = "result", **terms: Any) -> Agent:
    left = SubAgent(waiting(counters, "left", timeout=HOUR, **terms), on_failure=on_failure)
    right = SubAgent(waiting(counters, "right"), on_failure=on_failure)
    return boss([left, right], call("left", task="t"), call("right", task="t"), counters=counters)


def started(plant: Plant, counters: Counters, on_failure: Any = "result", **terms: Any) -> tuple[World, str]:
    w = plant(family(counters, on_failure, **terms))
    return w, w.start(agent="boss")


def gate_of(w: World, run_id: str, name: str) -> Any:
    return next(each for each in w.pending(run_id) if each.input["prompt"] == f"{name}?")


def statuses(w: World, run_id: str) -> dict[str, str]:
    return {child.agent: child.status for child in children_of(w, run_id)}


def pass_deadline(w: World, action: Any, how: Ends) -> None:
    w.advance(3601)
    if how == "sweep":
        w.sweep()
    else:
        assert w.answer(action, True).status == "late"


# --- deadlines -----------------------------------------------------------------------------------

HOWS: list[Ends] = ["sweep", "late answer"]


@pytest.mark.parametrize("how", HOWS)
def test_a_child_whose_deadline_fails_it_is_a_result_that_its_parent_reads(
    plant: Plant, counters: Counters, how: Ends
) -> None:
    w, run_id = started(plant, counters)
    left = gate_of(w, run_id, "left")
    pass_deadline(w, left, how)
    assert statuses(w, run_id) == {"left": "failed", "right": "parked"}
    assert w.run(run_id).status == "parked", "its sibling is still awaited"
    assert w.answer(left, True).status == "late"
    w.answer(gate_of(w, run_id, "right"), True)
    run = w.run(run_id)
    assert run.status == "completed"
    assert "expired before it was answered" in run.output
    assert "right True" in run.output
    assert counters["left went on"] == 0
    assert run.turns == 2 + sum(child.turns for child in children_of(w, run_id))


@pytest.mark.parametrize("how", HOWS)
def test_a_child_whose_deadline_fails_it_ends_its_parent_where_its_sub_agent_says_so(
    plant: Plant, counters: Counters, how: Ends
) -> None:
    w, run_id = started(plant, counters, "end_parent")
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    pass_deadline(w, left, how)
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "ChildFailedError"
    assert "expired" in error.message
    assert statuses(w, run_id) == {"left": "failed", "right": "cancelled"}
    assert w.pending(run_id) == []
    assert w.answer(right, True).status == "late"

    # A deadline that passed is the outcome of that child: a retry of the root asks the person anew, in another run,
    # and revives the sibling that was only closed with it.
    retry(w.services, run_id)
    w.settle()
    again = gate_of(w, run_id, "left")
    assert again.id != left.id
    assert gate_of(w, run_id, "right").id == right.id
    assert w.answer(left, True).status == "late"
    w.answer(again, True)
    w.answer(right, True, answer_id="after the retry")
    assert w.run(run_id).output == "left True + right True"
    assert (counters["left went on"], counters["right went on"]) == (1, 1)


def test_a_default_at_the_deadline_of_a_child_is_its_answer(plant: Plant, counters: Counters) -> None:
    w, run_id = started(plant, counters, "end_parent", default=False)
    w.advance(3601)
    w.sweep()
    assert statuses(w, run_id) == {"left": "completed", "right": "parked"}
    w.answer(gate_of(w, run_id, "right"), True)
    assert w.run(run_id).output == "left False + right True"


def test_both_children_expire_in_one_sweep_and_the_parent_hears_of_both(plant: Plant, counters: Counters) -> None:
    twins = [SubAgent(waiting(counters, name, timeout=HOUR)) for name in ("left", "right")]
    calls = [call("left", task="t"), call("right", task="t")]
    w = plant(boss(twins, *calls, counters=counters))
    run_id = w.start(agent="boss")
    w.advance(3601)
    w.sweep()
    run = w.run(run_id)
    assert (run.status, run.output.count("expired before it was answered")) == ("completed", 2)


def test_the_end_of_an_expired_child_that_nobody_was_told_of_is_told_by_the_sweep(
    plant: Plant, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, run_id = started(plant, counters, "end_parent")
    w.advance(3601)
    with monkeypatch.context() as dead:
        dead.setattr(PostgresChildren, "seq_of", lambda *_: None)
        w.sweep()
    assert (statuses(w, run_id)["left"], w.run(run_id).status) == ("failed", "parked")
    w.advance(w.tuning.wakeup_retry_seconds + 1)
    w.sweep()
    assert w.run(run_id).status == "failed"
    assert statuses(w, run_id)["right"] == "cancelled"


# --- damaged rows ----------------------------------------------------------------------------------


def damage(w: World, statement: str, **params: Any) -> None:
    with w.db.engine.connect() as connection:
        connection.execute(sa.text(statement), params)


def damaged(w: World, run_id: str, what: str) -> tuple[str, Any]:
    """Damage a row of the left child. Returns the child's id and how the row was."""
    child = next(each for each in children_of(w, run_id) if each.agent == "left")
    table, column, where = {
        "item": ("items", "body", "run_id = :id and seq = 2"),
        "action": ("actions", "asked", "run_id = :id"),
        "run": ("runs", "path", "id = :id"),
    }[what]
    was = w.db.one(sa.text(f"select {column} as was from adjourn.{table} where {where}"), {"id": child.id}).was
    damage(w, f"update adjourn.{table} set {column} = '{{' where {where}", id=child.id)
    w.redis.flushdb()
    return child.id, (table, column, where, was)


def restore(w: World, child_id: str, row: Any) -> None:
    table, column, where, was = row
    damage(w, f"update adjourn.{table} set {column} = :was where {where}", was=was, id=child_id)


@pytest.mark.parametrize("what", ["item", "action", "run"])
@pytest.mark.parametrize("on_failure", ["result", "end_parent"])
def test_a_child_with_a_damaged_row_fails_alone_and_its_parent_is_told(
    plant: Plant, counters: Counters, what: str, on_failure: str
) -> None:
    w, run_id = started(plant, counters, on_failure)
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    child_id, row = damaged(w, run_id, what)
    w.answer(left, True)
    error = w.run(child_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    if on_failure == "result":
        assert w.run(run_id).status == "parked"
        w.answer(right, True)
        run = w.run(run_id)
        assert (run.status, "is damaged" in run.output) == ("completed", True)
        return
    failed = w.run(run_id).error
    assert failed is not None
    assert failed.type == "ChildFailedError"
    assert statuses(w, run_id) == {"left": "failed", "right": "cancelled"}
    # A restored row lets a retry of the root revive both: under their ids, with the answer that was accepted.
    restore(w, child_id, row)
    retry(w.services, run_id)
    w.settle()
    if what == "action":  # the door could not read the action, and has refused the answer
        assert w.answer(left, True).status == "accepted"
    w.answer(right, True, answer_id="after the retry")
    assert w.run(run_id).output == "left True + right True"
    assert {child.id for child in children_of(w, run_id)} >= {child_id}
    assert len(children_of(w, run_id)) == 2


def test_a_damaged_child_that_is_not_restored_fails_the_retried_root_again(plant: Plant, counters: Counters) -> None:
    w, run_id = started(plant, counters, "end_parent")
    left = gate_of(w, run_id, "left")
    child_id, row = damaged(w, run_id, "item")
    w.answer(left, True)
    for _ in range(2):
        retry(w.services, run_id)
        w.settle()
        assert (w.run(run_id).status, w.run(child_id).status) == ("failed", "failed")
    restore(w, child_id, row)
    retry(w.services, run_id)
    w.settle()
    w.answer(gate_of(w, run_id, "right"), True)
    assert w.run(run_id).output == "left True + right True"


def test_a_parent_with_a_damaged_row_fails_and_its_children_are_closed(plant: Plant, counters: Counters) -> None:
    w, run_id = started(plant, counters)
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    damage(w, "update adjourn.items set body = '{' where run_id = :id and seq = 2", id=run_id)
    w.answer(left, True)
    w.answer(right, True)
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert all(child.ended for child in children_of(w, run_id))


def test_the_wait_for_a_child_that_is_damaged_fails_the_parent_and_closes_the_child(
    plant: Plant, counters: Counters
) -> None:
    w, run_id = started(plant, counters)
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    damage(w, "update adjourn.actions set asked = '{' where run_id = :id and child_run_id is not null", id=run_id)
    w.answer(left, True)
    w.answer(right, True)
    w.sweep()
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert w.pending(run_id) == []
