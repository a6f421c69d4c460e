"""A damaged row harms its own run only: that run fails and names the row, and everything else goes on."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from adjourn import Agent, Context, SubAgent, WaitPoint, call, say, tool
from adjourn.schemas.records.events import Cursor
from adjourn.schemas.records.items import DamagedItem
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.answers.dead_letters import list as dead_letters
from adjourn.store.postgres.documents import document
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.threads import conversations as threads
from adjourn.store.postgres.threads import histories as logs
from adjourn.store.postgres.threads import retention
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.streaming.viewer import Viewer
from tests.families import boss, child_of, digger
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted

BROKEN = ("{", "", "null", '{"kind":"nonsense"}', '{"kind":"output"}', '"text"', "[]", '{"kind":"end"},{"kind":"end"}')


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool


gate = WaitPoint("gate", suspend=Ask, resume=Approval, timeout=timedelta(seconds=60), on_timeout="error")


@tool(wait_points=[gate])
def guarded(ctx: Context, name: str) -> str:
    """Do it after an approval."""
    return f"{name}: {ctx.ask(gate, Ask(prompt=name)).approved}"


@pytest.fixture
def world(plant: Plant) -> World:
    return plant(
        Agent(
            "agent",
            model=scripted(*[step for _ in range(9) for step in (call("guarded", name="a"), say("done"))]),
            tools=[guarded],
        )
    )


def damage(world: World, statement: str, **params: Any) -> None:
    with world.db.engine.connect() as connection:
        connection.execute(sa.text(statement), params)


def parked(world: World, thread_id: str | None = None) -> str:
    run_id = world.start(thread_id=thread_id)
    assert world.run(run_id).status == "parked"
    return run_id


@pytest.mark.parametrize("body", BROKEN)
def test_a_run_with_a_damaged_item_fails_and_names_the_row(world: World, body: str) -> None:
    broken, sound = parked(world), parked(world)
    (action,), (other,) = world.pending(broken), world.pending(sound)
    damage(world, "update adjourn.items set body = :body where run_id = :id and seq = 2", body=body, id=broken)
    # Listings show what is sound, and where something is missing.
    assert isinstance(runs.items(world.db, broken)[1].body, DamagedItem)
    assert len(runs.items(world.db, broken)) == len(runs.items(world.db, sound))
    assert {run.id for run in runs.list(world.db)} == {broken, sound}
    assert len(threads.snapshot(world.db, world.run(broken).thread_id)[1]) == 3
    assert retention.read(world.db, world.run(broken).thread_id) is not None
    found = {log.run.id: check(log, world.app.blocks) for log in logs.unfinished(world.db)}
    assert found[sound].fits
    assert found[broken].error is not None
    assert found[broken].error.type == "DamagedRecordError"
    stream = Viewer(world.store, world.services.events, world.run(broken).thread_id, Cursor()).read(0)
    assert len([*stream]) >= 3

    world.answer(action.id, {"approved": True})
    world.answer(other.id, {"approved": True})
    world.settle()
    error = world.run(broken).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert f"{broken}, seq 2" in error.message
    assert "adjourn.items" in error.message
    assert world.run(sound).status == "completed"


def test_a_lost_item_is_a_damage(world: World) -> None:
    run_id = parked(world)
    (action,) = world.pending(run_id)
    damage(world, "delete from adjourn.items where run_id = :id and seq = 2", id=run_id)
    world.answer(action.id, {"approved": True})
    world.settle()
    error = world.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"


@pytest.mark.parametrize("asked", BROKEN)
def test_a_damaged_action_hides_no_other_and_fails_its_run_at_the_answer(world: World, asked: str) -> None:
    broken, sound = parked(world), parked(world)
    (action,) = world.pending(broken)
    world.redis.flushdb()
    damage(world, "update adjourn.actions set asked = :asked where run_id = :id", asked=asked, id=broken)
    assert [each.origin.run_id for each in actions.pending(world.db)] == [sound]
    assert [each.origin.run_id for each in actions.pending(world.db, limit=1)] == [sound]
    receipt = world.answer(action.id, {"approved": True})
    assert receipt.status == "unknown"
    assert action.id in (receipt.detail or "")
    error = world.run(broken).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert world.answer(world.pending(sound)[0].id, {"approved": True}).status == "accepted"
    world.settle()
    assert world.run(sound).status == "completed"


def test_other_deadlines_pass_beside_damaged_rows(world: World) -> None:
    broken, sound = parked(world), parked(world)
    damage(world, "update adjourn.actions set asked = '{' where run_id = :id", id=broken)
    damage(world, "update adjourn.items set body = '{' where run_id = :id", id=broken)
    world.redis.flushdb()
    world.advance(61)
    world.sweep()
    world.settle()
    assert world.run(sound).status == "completed"
    assert world.run(broken).status == "failed"


@pytest.mark.parametrize("column", ["limits", "error", "output", "path"])
def test_a_damaged_column_of_a_run_is_shown_on_that_run(world: World, column: str) -> None:
    broken, sound = parked(world), parked(world)
    damage(world, f"update adjourn.runs set {column} = '{{' where id = :id", id=broken)
    listed = {run.id: run for run in runs.list(world.db)}
    assert listed[sound].error is None
    assert listed[broken].error is not None
    assert column in listed[broken].error.message
    world.answer(world.pending(broken)[0].id, {"approved": True})
    world.settle()
    assert world.run(broken).status == "failed"


def test_a_damaged_resolution_fails_the_run_that_reads_it(world: World) -> None:
    run_id = parked(world)
    world.answer(world.pending(run_id)[0].id, {"approved": True}, settle=False)
    damage(world, "update adjourn.actions set resume = '{' where run_id = :id", id=run_id)
    world.settle()
    error = world.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert error.data["table"] == "actions"
    assert "resume" in error.data["problem"], "it says what is wrong with the row, and not that it is missing"


def test_a_later_run_of_the_thread_goes_on_without_the_damaged_one(world: World) -> None:
    first = parked(world)
    world.answer(world.pending(first)[0].id, {"approved": True})
    world.settle()
    thread_id = world.run(first).thread_id
    damage(world, "update adjourn.items set body = '{' where run_id = :id and seq = 1", id=first)
    second = parked(world, thread_id)
    world.answer(world.pending(second)[0].id, {"approved": True})
    world.settle()
    assert world.run(second).status == "completed"


def test_dead_letters_beside_a_damaged_one_are_listed(world: World) -> None:
    world.answer("act_unknown", {})
    world.answer("act_unknown", {})
    damage(world, "update adjourn.dead_letters set issues = '{' where id = (select max(id) from adjourn.dead_letters)")
    assert len(dead_letters(world.db)) == 2


def test_a_damaged_early_answer_is_dropped_alone(world: World) -> None:
    run_id = parked(world)
    (action,) = world.pending(run_id)
    damage(
        world,
        "insert into adjourn.early_answers (action_id, body, received_at) values (:id, '{', adjourn.adjourn_now())",
        id=action.id,
    )
    world.sweep()
    assert world.answer(action.id, {"approved": True}).status == "accepted"


def test_a_restored_row_lets_the_run_be_retried(world: World) -> None:
    run_id = parked(world)
    (action,) = world.pending(run_id)
    body = world.db.one(sa.text("select body from adjourn.items where run_id = :id and seq = 2"), {"id": run_id}).body
    damage(world, "update adjourn.items set body = '{' where run_id = :id and seq = 2", id=run_id)
    world.answer(action.id, {"approved": True})
    world.settle()
    damage(world, "update adjourn.items set body = :body where run_id = :id and seq = 2", id=run_id, body=body)
    retry(world.services, run_id)
    world.settle()
    assert world.run(run_id).status == "completed"


def test_a_row_of_a_newer_version_is_not_a_damaged_one(world: World) -> None:
    run_id = parked(world)
    (action,) = world.pending(run_id)
    world.redis.flushdb()
    asked = world.db.one(sa.text("select asked from adjourn.actions where run_id = :id"), {"id": run_id}).asked
    damage(world, "update adjourn.runs set state_version = 99 where id = :id", id=run_id)
    damage(world, "update adjourn.actions set asked = '{}' where run_id = :id", id=run_id)
    assert world.answer(action.id, {"approved": True}).status == "kept"
    assert world.run(run_id).status == "parked"
    damage(world, "update adjourn.actions set asked = :asked where run_id = :id", id=run_id, asked=asked)
    damage(world, "update adjourn.runs set state_version = 1 where id = :id", id=run_id)
    world.sweep()
    assert world.run(run_id).status == "completed"


# --- columns that no run can have -----------------------------------------------------------------------

DEEP = "[" * 3_000 + "]" * 3_000
NO_TIMES = ("infinity", "-infinity", "294000-01-01", "0001-01-01 BC")


def look_at_everything(world: World, run_id: str) -> None:
    """Every listing that a client or a sweep makes, and all that shows one run."""
    thread_id = world.run(run_id).thread_id
    assert len(runs.list(world.db)) == 2
    assert len(threads.list(world.db)) == 2
    actions.pending(world.db)
    assert len([check(log, world.app.blocks) for log in logs.unfinished(world.db)]) == 2
    runs.items_to_show(world.db, run_id)
    assert len(threads.snapshot(world.db, thread_id)[0]) == 1
    retention.read(world.db, thread_id)
    assert len([*Viewer(world.store, world.services.events, thread_id, Cursor()).read(0)]) >= 2


def test_what_is_nested_too_deeply_is_so_whatever_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10_000)
    try:
        with pytest.raises(ValueError, match="recursion"):
            document(DEEP)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("created_at", each) for each in NO_TIMES),
        *(("cost", each) for each in ("NaN", "Infinity", "-1", "1e30")),
        ("output", DEEP),
        ("limits", DEEP),
    ],
)
def test_a_column_that_no_run_can_have_hides_no_other_run(world: World, column: str, value: str) -> None:
    broken, sound = parked(world), parked(world)
    damage(world, f"update adjourn.runs set {column} = '{value}' where id = :id", id=broken)
    look_at_everything(world, broken)
    shown = world.run(broken).error
    assert shown is not None
    assert shown.type == "DamagedRecordError"
    assert column in shown.message
    for run_id in (broken, sound):
        assert world.answer(world.pending(run_id)[0].id, {"approved": True}).status == "accepted"
    assert world.run(broken).status == "failed"
    assert world.run(sound).status == "completed"


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize("place", ["runs set updated_at", "items set at", "threads set created_at"])
def test_a_time_that_python_does_not_have_hides_nothing(world: World, place: str, value: str) -> None:
    broken, sound = parked(world), parked(world)
    key = {"runs": "id", "items": "run_id", "threads": "id"}[place.split()[0]]
    id = world.run(broken).thread_id if place.startswith("threads") else broken
    damage(world, f"update adjourn.{place} = '{value}' where {key} = :id", id=id)
    look_at_everything(world, broken)
    world.answer(world.pending(sound)[0].id, {"approved": True})
    assert world.run(sound).status == "completed"


@pytest.mark.parametrize("body", [DEEP, f'{{"kind":"message","text":{DEEP}}}'])
def test_an_item_that_is_nested_too_deeply_is_a_damaged_one(world: World, body: str) -> None:
    broken, sound = parked(world), parked(world)
    damage(world, "update adjourn.items set body = :body where run_id = :id and seq = 1", body=body, id=broken)
    look_at_everything(world, broken)
    for run_id in (broken, sound):
        world.answer(world.pending(run_id)[0].id, {"approved": True})
    error = world.run(broken).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert world.run(sound).status == "completed"


def test_an_answer_without_its_time_is_left_out_of_what_is_shown(world: World) -> None:
    run_id = parked(world)
    world.answer(world.pending(run_id)[0].id, {"approved": True})
    damage(world, "update adjourn.actions set resolved_at = 'infinity' where run_id = :id", id=run_id)
    shown = [item.body for item in runs.items_to_show(world.db, run_id)]
    assert [body.answer for body in shown if body.kind == "resolution"] == [None]


# --- rows that contradict one another ----------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["seq = 1", "seq = 0", "seq = 2147483647", f"revision = {2**63 - 1}"])
@pytest.mark.parametrize("how", ["answer", "deadline"])
def test_a_run_that_can_record_nothing_fails_alone(world: World, how: str, statement: str) -> None:
    broken, sound = parked(world), parked(world)
    (action,) = world.pending(broken)
    damage(world, f"update adjourn.runs set {statement} where id = :id", id=broken)
    if how == "answer":
        receipt = world.answer(action.id, {"approved": True})
        assert receipt.status == "unknown"
        assert broken in (receipt.detail or "")
    else:
        world.advance(61)
        world.sweep()
        assert world.run(sound).status == "completed", "its deadline has passed as well"
    error = world.run(broken).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert f"row {broken} of table adjourn.runs" in error.message
    assert world.status_of(action.id) == "cancelled"


@pytest.mark.parametrize("statement", ["seq = 1", "seq = -1"])
def test_a_run_at_work_that_can_record_nothing_fails_alone(world: World, statement: str) -> None:
    run_id = parked(world)
    world.answer(world.pending(run_id)[0].id, {"approved": True}, settle=False)
    damage(world, f"update adjourn.runs set {statement} where id = :id", id=run_id)
    world.settle()
    error = world.run(run_id).error
    assert error is not None
    assert error.type == "DamagedRecordError"


@pytest.mark.parametrize("column", ["deaths", "wakeups"])
def test_a_counter_at_its_end_stops_no_search_of_the_sweep(world: World, column: str) -> None:
    broken, sound = world.enqueue().run_id, world.enqueue().run_id
    world.wakeups.waiting.clear()
    damage(world, f"update adjourn.runs set {column} = 2147483647 where id = :id", id=broken)
    if column == "deaths":
        damage(
            world,
            "update adjourn.runs set status = 'running', token = 'gone', lease_until = adjourn.adjourn_now()",
        )
    world.advance(world.tuning.lease_seconds + 31)
    report = world.sweep()
    assert (report.unsent, report.abandoned) == ((2, 0) if column == "wakeups" else (0, 1))
    assert world.run(sound).status in ("queued", "parked")
    assert world.run(broken).status == ("parked" if column == "wakeups" else "failed")


def test_an_answer_to_an_action_without_a_run_ends(world: World) -> None:
    lost, sound = parked(world), parked(world)
    (action,) = world.pending(lost)
    damage(world, "update adjourn.actions set run_id = 'run_lost' where run_id = :id", id=lost)
    receipt = world.answer(action.id, {"approved": True})
    assert receipt.status == "unknown"
    assert "run_lost" in (receipt.detail or "")
    world.answer(world.pending(sound)[0].id, {"approved": True})
    assert world.run(sound).status == "completed"


def test_a_parent_that_can_record_nothing_fails_when_its_child_has_ended(plant: Plant, counters: Counters) -> None:
    world = plant(boss(SubAgent(digger(counters)), call("digger", task="gold"), counters=counters))
    broken, sound = world.start(agent="boss"), world.start(agent="boss")
    child = child_of(world, broken)
    damage(world, "update adjourn.runs set seq = 1 where id = :id", id=broken)
    world.answer(world.pending(broken)[0], True)
    error = world.run(broken).error
    assert error is not None
    assert error.type == "DamagedRecordError"
    assert world.run(child.id).status == "completed"
    world.answer(world.pending(sound)[0], True)
    assert world.run(sound).status == "completed"
