"""A process of a tool imports the app from disk, where a deploy may have put other code than its worker has loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adjourn.schemas.errors import CodeMismatchError, ToolProcessError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.items import StartItem
from adjourn.store.rules import LEFT_WAKE_UPS
from adjourn.tasks.host.builds import Build
from adjourn.tasks.lifecycle.retry import retry
from adjourn.worker.config.settings import Settings
from adjourn.worker.process.tool_processes import Launcher
from tests.conftest import Deploy
from tests.deployment import QUICK
from tests.effects import FOLDER, Effects
from tests.flow import own_process_disk_app
from tests.flow.own_process_disk_app import DISK
from tests.world import World

APP = "tests.flow.own_process_disk_app:app"
TUNING = Tuning(lease_seconds=600, build_seconds=60)
YES = {"approved": True}
STALE = {
    "another version": "version changed",
    "another input": "input changed",
    "another wait point": "wait point q resume changed",
    "no such tool": "no such tool",
    "no such agent": "no such tool",
    "cannot say its tools": "no database of tools here",
    "cannot be imported": "half of a deploy",
    "ends the process": "exit code 3",
}
"""What a deploy leaves on the disk of a worker, and what the error says of it."""


@pytest.fixture
def effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Effects:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Effects(tmp_path)


@pytest.fixture
def up(database_url: str, redis_url: str, effects: Effects) -> Iterator[Callable[[str], World]]:
    """Start a world, as a build of that name, whose processes import the app from disk."""
    made: list[World] = []

    def start(name: str) -> World:
        world = World(own_process_disk_app.app, database_url, redis_url, TUNING)
        made.append(world)
        world.deploy(own_process_disk_app.app, Build(world.store, name))
        settings = Settings(database_url=database_url, redis_url=redis_url, app=APP)
        world.services = replace(world.services, tool_processes=Launcher(settings))
        world.sweep()  # the first one finds Redis empty, and gives all wake-ups again
        return world

    yield start
    for world in made:
        world.close()


Up = Callable[[str], World]


def handed_to(world: World) -> None:
    """The next time that a run that was left is announced, this build takes the wake-up."""
    world.advance(TUNING.wakeup_retry_seconds / LEFT_WAKE_UPS)
    world.sweep()


@pytest.mark.parametrize("disk", STALE)
def test_code_on_disk_that_is_not_the_worker_s_is_a_mismatch(
    up: Up, effects: Effects, monkeypatch: pytest.MonkeyPatch, disk: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = up("old"), up("new")
    monkeypatch.setenv(DISK, disk)
    run_id = old.start()
    assert (old.run(run_id).status, old.run(run_id).deaths, old.outputs(run_id)) == ("queued", 0, [])
    (said,) = [each.__dict__ for each in caplog.records if each.getMessage() == "run left to a newer build"]
    assert (said["build"], said["error"]) == ("old", "ToolProcessError")
    assert STALE[disk] in said["problem"]

    handed_to(new)
    run = new.run(run_id)
    assert (run.status, new.outputs(run_id)) == ("failed", []), "the newest that is live fails it"
    assert run.error is not None
    assert run.error.type == "ToolProcessError"
    assert STALE[disk] in run.error.message
    # A start that is written down would have the retry ask an operator about a body that has not run.
    assert not any(isinstance(item.body, StartItem) for item in new.items(run_id))
    assert effects.count("body") == 0

    monkeypatch.delenv(DISK)
    retry(new.services, run_id)
    new.settle()
    new.answer(new.the_action(run_id), YES)
    assert new.run(run_id).status == "completed"
    assert effects.count("body") == 2


def test_it_is_a_mismatch_on_a_re_entry_too(up: Up, effects: Effects, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = up("old"), up("new")
    run_id = old.start()
    monkeypatch.setenv(DISK, "another version")
    old.answer(old.the_action(run_id), YES)
    assert old.run(run_id).status == "queued"
    monkeypatch.delenv(DISK)  # the files of the newer build are its own
    handed_to(new)
    assert new.run(run_id).status == "completed"
    assert [output.content for output in new.outputs(run_id)] == ["1: True"]
    assert effects.count("body") == 2


def test_an_error_of_a_process_is_a_mismatch_of_code() -> None:
    assert issubclass(ToolProcessError, CodeMismatchError)
    assert "this attempt" in str(ToolProcessError("t", "p")), "an earlier one may have run the body"


CODE = '''
from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
from adjourn.tasks.models.scripted import call, say


class Ask(BaseModel):
    prompt: str


class Yes(BaseModel):
    approved: bool


point = WaitPoint("q", suspend=Ask, resume=Yes)


@tool(own_process=True, wait_points=[point], version="VERSION", resumes_from=["1"])
def work(ctx: Context) -> str:
    """Work on it once somebody has said yes."""
    return f"VERSION: {ctx.ask(point, Ask(prompt='?')).approved}"


app = App(agents=[Agent("worker", model=ScriptedModel([call("work"), say("done")]), tools=[work])], build="VERSION")
'''


def test_a_deploy_that_replaces_the_files_of_a_worker_that_runs(deploy: Deploy, tmp_path: Path) -> None:
    code = tmp_path / "replaced_app.py"
    code.write_text(CODE.replace("VERSION", "1"))
    tuning = {**QUICK["tuning"], "build_seconds": 30.0}
    with deploy(app="replaced_app:app", tuning=tuning) as d:
        old = d.ready_worker(PYTHONPATH=str(tmp_path))
        parked = d.parked("worker").id
        code.write_text(CODE.replace("VERSION", "2"))
        new = d.ready_worker(PYTHONPATH=str(tmp_path))
        run_ids = [parked, *(d.client.start("worker", "go").id for _ in range(6))]
        for run_id in run_ids:
            d.client.wait(run_id, until=["parked"], timeout=90)
            (action,) = d.client.pending(run_id=run_id)
            d.client.submit(action.id, YES)
        ended = [d.ended(run_id) for run_id in run_ids]
        assert [(run.status, run.deaths) for run in ended] == [("completed", 0)] * len(run_ids)
        assert "run left to a newer build" in old.log
        assert "ToolProcessError" not in new.log
