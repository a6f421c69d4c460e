"""A run that waits for a row that is lost fails and names it. Nothing waits for ever, and no other run is harmed."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from adjourn import Agent, SubAgent, call, say
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.lifecycle.sweep import BATCH, Round, sweep
from tests.families import boss, child_of, digger
from tests.flow.conftest import Plant
from tests.flow.test_damaged_rows import damage, guarded, parked
from tests.world import Counters, World, scripted

YES = {"approved": True}


@pytest.fixture
def world(plant: Plant) -> World:
    both = say("", call("guarded", name="a"), call("guarded", name="b"))
    steps = [step for _ in range(300) for step in (both, say("done"))]
    return plant(Agent("agent", model=scripted(*steps), tools=[guarded]))


def error_of(w: World, run_id: str) -> str:
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    return error.message


def row_of(w: World, action_id: str) -> dict[str, Any]:
    return dict(w.db.one(sa.text("select * from adjourn.actions where id = :id"), {"id": action_id})._asdict())


def test_a_parked_run_whose_waits_are_lost_is_found_by_the_sweep(world: World) -> None:
    broken, sound = parked(world), parked(world)
    lost = world.pending(broken)
    damage(world, "delete from adjourn.actions where run_id = :id", id=broken)
    assert world.sweep().lost_waits == 1
    assert f"row {lost[0].id} of table adjourn.actions" in error_of(world, broken)
    assert world.sweep().lost_waits == 0
    for action in world.pending(sound):
        world.answer(action, YES)
    assert world.run(sound).status == "completed"


def test_a_lost_wait_beside_another_is_not_asked_again(world: World) -> None:
    run_id = parked(world)
    lost, other = world.pending(run_id)
    damage(world, "delete from adjourn.actions where id = :id", id=lost.id)
    assert world.sweep().lost_waits == 0, "the run still waits for the other"
    assert world.answer(other, YES).status == "accepted"
    assert lost.id in error_of(world, run_id)
    assert world.pending(run_id) == []


@pytest.mark.parametrize("parked_again", [True, False])
def test_a_lost_answer_is_not_asked_for_again(world: World, parked_again: bool) -> None:
    run_id = parked(world)
    lost, other = world.pending(run_id)
    world.answer(lost, YES, settle=parked_again)
    damage(world, "delete from adjourn.actions where id = :id", id=lost.id)
    world.answer(other, YES)
    assert lost.id in error_of(world, run_id)


def test_check_names_a_lost_wait_before_anything_fails(world: World) -> None:
    broken, sound = parked(world), parked(world)
    lost, _ = world.pending(broken)
    damage(world, "delete from adjourn.actions where id = :id", id=lost.id)
    found = {log.run.id: check(log, world.app.blocks) for log in logs.unfinished(world.db)}
    assert found[sound].fits
    error = found[broken].error
    assert error is not None
    assert lost.id in error.message


def test_a_restored_wait_lets_the_run_be_retried(world: World) -> None:
    run_id = parked(world)
    actions = [row_of(world, action.id) for action in world.pending(run_id)]
    damage(world, "delete from adjourn.actions where run_id = :id", id=run_id)
    world.sweep()
    assert world.run(run_id).status == "failed"
    for row in actions:
        columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        damage(world, f"insert into adjourn.actions ({columns}) values ({values})", **row)
    damage(
        world,
        "update adjourn.actions set status = 'cancelled', resolved_at = adjourn.adjourn_now() where run_id = :id",
        id=run_id,
    )
    retry(world.services, run_id)
    world.settle()
    for action in world.pending(run_id):
        world.answer(action, YES)
    assert world.run(run_id).status == "completed"


def test_the_search_comes_to_every_run_page_by_page(world: World) -> None:
    for _ in range(BATCH + 2):
        world.enqueue()
    world.settle()
    damage(world, "delete from adjourn.actions where thread_id = (select max(thread_id) from adjourn.runs)")
    round = Round()
    assert [sweep(world.services, round).lost_waits for _ in range(3)] == [0, 1, 0]


def test_a_parent_whose_child_is_lost_fails(plant: Plant, counters: Counters) -> None:
    world = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    broken, sound = world.start(agent="boss"), world.start(agent="boss")
    child = child_of(world, broken).id
    damage(world, "delete from adjourn.runs where id = :id", id=child)
    damage(world, "delete from adjourn.actions where run_id = :id", id=child)
    assert world.sweep().lost_waits == 1
    assert f"row {child} of table adjourn.runs" in error_of(world, broken)
    world.answer(world.pending(sound)[0], True)
    assert world.run(sound).status == "completed"


def test_a_parent_whose_count_of_children_is_lost_continues(plant: Plant, counters: Counters) -> None:
    world = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    run_id = world.start(agent="boss")
    damage(world, "delete from adjourn.child_groups where run_id = :id", id=run_id)
    world.answer(world.pending(run_id)[0], True)
    world.sweep()
    assert world.run(run_id).status == "completed"
