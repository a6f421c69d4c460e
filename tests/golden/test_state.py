"""The stored state of every released schema is migrated and resumed.

A new schema gets a file of its own (`python -m tests.golden.record`) and an app beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adjourn.store.migrations import current, head, upgrade
from adjourn.store.postgres.database import Database
from tests.golden.app_0001 import app
from tests.golden.record import FOLDER, load
from tests.world import World

FILES = sorted(FOLDER.glob("*.json"))


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def old(request: pytest.FixtureRequest, empty_database_url: str, redis_url: str) -> Iterator[World]:
    """A world on a database that an old version left, brought to the newest schema."""
    revision = request.param.stem
    upgrade(empty_database_url, revision)
    db = Database(empty_database_url)
    load(db, json.loads(request.param.read_text()))
    upgrade(empty_database_url)
    assert current(db) == head()
    db.dispose()
    w = World(app, empty_database_url, redis_url)
    try:
        w.sweep()
        yield w
    finally:
        w.close()


def test_there_is_a_state_of_the_newest_schema() -> None:
    assert head() in {file.stem for file in FILES}


@pytest.mark.parametrize(
    ("run_id", "said", "output"),
    [
        ("run_parked_first", ("one", "two"), "inline is done"),
        ("run_parked_second", ("two",), "inline is done"),
        ("run_entry_first", ("one", "two"), "entry is done"),
        ("run_entry_second", ("two",), "entry is done"),
        ("run_answered", ("two",), "entry is done"),
        ("run_queued", ("one", "two"), "inline is done"),
    ],
)
def test_runs_go_on(old: World, run_id: str, said: tuple[str, ...], output: str) -> None:
    for comment in said:
        assert old.answer(old.the_action(run_id), {"approved": True, "comment": comment}).status == "accepted"
    assert (old.run(run_id).status, old.run(run_id).output) == ("completed", output)
    assert old.outputs(run_id)[-1].content.endswith("two")


def test_a_client_tool_goes_on(old: World) -> None:
    assert old.answer(old.the_action("run_client"), {"file_id": "f"}).status == "accepted"
    assert old.run("run_client").output == "client is done"


def test_what_was_queued_behind_goes_on_after_it(old: World) -> None:
    assert old.run("run_behind").status == "queued"
    for comment in ("one", "two"):
        old.answer(old.the_action("run_parked_first"), {"approved": True, "comment": comment})
    assert old.run("run_behind").status == "parked"


def test_a_body_that_died_is_asked_about(old: World) -> None:
    action = old.the_action("run_died")
    assert action.name == "once_only.outcome"
    assert old.answer(action, {"happened": True, "output": "yes"}).status == "accepted"
    assert old.run("run_died").output == "once is done"


def test_what_had_ended_has_ended(old: World) -> None:
    assert [old.run(f"run_{name}").status for name in ("completed", "cancelled")] == ["completed", "cancelled"]
    assert old.pending("run_cancelled") == []


@pytest.mark.parametrize(
    ("run_id", "data", "output"),
    [
        ("run_routed", {"approved": True, "comment": "yes"}, "draft of a risk, yes"),
        ("run_branched", {"approved": True, "comment": "two"}, {"left": "text, one", "right": "text, two"}),
        ("run_guarded", {"approved": True}, "guarded is done"),
    ],
)
def test_blocks_go_on(old: World, run_id: str, data: dict[str, Any], output: Any) -> None:
    assert old.answer(old.the_action(run_id), data).status == "accepted"
    assert old.run(run_id).output == output


def test_a_child_goes_on_and_its_parent_hears_of_it(old: World) -> None:
    (action,) = (each for each in old.pending() if each.origin.block_path[0] == "boss")
    assert action.origin.block_path == ("boss", "digger", "gate")
    assert old.answer(action, {"approved": True, "comment": "found"}).status == "accepted"
    assert old.run("run_boss").output == "gold, found"


def test_an_agent_within_a_run_hears_of_its_child(old: World) -> None:
    (action,) = (each for each in old.pending() if each.origin.block_path[0] == "host")
    assert action.origin.block_path == ("host", "boss", "digger", "gate")
    assert old.answer(action, {"approved": True, "comment": "found"}).status == "accepted"
    assert old.run("run_host").output == "gold, found"


def test_an_answer_beside_a_model_that_is_left_alone_takes_effect(old: World) -> None:
    assert old.answer(old.the_action("run_paused"), {"approved": True, "comment": "yes"}).status == "accepted"
    assert [output.content for output in old.outputs("run_paused")] == ["text, yes"]
    assert old.run("run_paused").status == "queued"


def test_the_first_answer_and_an_edit_take_effect(old: World) -> None:
    deputy = next(action for action in old.pending("run_first") if action.origin.wait_point == "deputy")
    assert old.answer(deputy, {"approved": True, "comment": "now"}).status == "accepted"
    assert old.outputs("run_first")[0].content == "deputy: now"
    old.advance(600)
    old.sweep()
    assert old.outputs("run_first_answered")[0].content.endswith(": kept")
    assert old.outputs("run_edited")[0].content == "paid 4 to me"
