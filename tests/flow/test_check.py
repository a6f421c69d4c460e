"""`adjourn check`: the logs of runs against a build, before it is deployed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from pydantic import BaseModel
from typer.testing import CliRunner

from adjourn import Agent, App, Context, Parallel, Router, Sequential, Tool, WaitPoint, tool
from adjourn.schemas.internal.checks import Check
from adjourn.schemas.records.items import ResponseItem, SuspensionItem
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.cli import options
from adjourn.worker.cli.program import app as program
from tests.world import World

YES = {"approved": True}


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Verdict)


class Wider(BaseModel):
    """It reads every `Verdict`."""

    approved: bool
    note: str | None = None


class Other(BaseModel):
    approved: bool
    note: str


def gate(name: str = "gate", resume: Any = Verdict) -> Tool[..., Any]:
    point = WaitPoint("approval", suspend=Ask, resume=resume)

    @tool(name=name, wait_points=[point])
    def body(ctx: Context, text: str) -> str:
        return f"{text} {ctx.ask(point, Ask(prompt=text)).approved}"

    return body


@tool
def shout(text: str) -> str:
    return text.upper()


def agent(*tools: Block, name: str = "agent") -> Agent:
    return Agent(name, model=ScriptedModel([call("gate", text="x"), say("done")]), tools=tools)


def against(w: World, *blocks: Block) -> list[Check]:
    """What a build would do to the runs that have not ended."""
    return [check(log, App(blocks=blocks).blocks) for log in logs.unfinished(w.db, page=2)]


def errors(checked: list[Check]) -> list[str | None]:
    return [each.error.type if each.error else None for each in checked]


def test_runs_that_fit_fit_and_nothing_is_changed(plant: Any) -> None:
    w = plant(agent(gate()), Sequential("pipeline", [shout, gate()]))
    ids = {w.start(agent=name) for name in ("agent", "pipeline", "agent")} | {w.enqueue(agent="agent").run_id}
    before = {run_id: (w.run(run_id), w.items(run_id)) for run_id in ids}
    checked = against(w, agent(gate()), Sequential("pipeline", [shout, gate()]))
    assert {each.run_id for each in checked} == ids
    assert errors(checked) == [None] * 4
    assert {run_id: (w.run(run_id), w.items(run_id)) for run_id in ids} == before


def no_tools(run: Run) -> list[Block]:
    raise OSError("the registry is away")


CHANGED = [
    (agent(), "ToolChangedError"),
    (agent(gate(resume=Other)), "ToolChangedError"),
    (agent(gate(), name="other"), "UnknownBlockError"),
    (Agent("agent", model=ScriptedModel([]), tools=no_tools), "ToolResolverError"),
]


@pytest.mark.parametrize(("build", "error"), CHANGED)
def test_a_parked_run_that_a_build_would_fail_is_found_with_what_it_then_fails_with(
    plant: Any, build: Block, error: str
) -> None:
    w = plant(agent(gate()))
    run_id = w.start(agent="agent")
    (checked,) = against(w, build)
    assert (checked.run_id, checked.fits) == (run_id, False)
    assert errors([checked]) == [error]
    w.deploy(App(blocks=[build]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error == checked.error, "the check says what the deploy then does"


def test_a_renamed_step_a_new_choice_and_a_changed_branch_are_found(plant: Any) -> None:
    def triage(select: Callable[[str], str]) -> Router:
        return Router("triage", {"a": gate("a"), "b": gate("b")}, select)

    w = plant(
        Sequential("pipeline", {"first": shout, "second": gate()}),
        triage(lambda text: "a"),
        Parallel("both", {"left": gate("left"), "right": gate("right")}),
    )
    for name in ("pipeline", "triage", "both"):
        w.start("x", agent=name)
    found = against(
        w,
        Sequential("pipeline", {"first": shout, "renamed": gate()}),
        triage(lambda text: "b"),
        Parallel("both", {"left": gate("left"), "right": gate("right", resume=Other)}),
    )
    named = {each.agent: each.error.type for each in found if each.error}
    assert named == {"pipeline": "BlockChangedError", "triage": "RouteUnavailableError", "both": "ToolChangedError"}


def test_runs_that_have_ended_are_replayed_to_their_end(plant: Any) -> None:
    w = plant(agent(gate()), Sequential("pipeline", {"shout": shout, "gate": gate()}))
    ended = [w.start("x", agent=name) for name in ("agent", "pipeline")]
    for run_id in ended:
        w.answer(w.the_action(run_id), YES)
    longer = [agent(gate()), Sequential("pipeline", {"shout": shout, "gate": gate(), "again": shout})]
    for run_id, problem in zip(ended, (None, "go on with pipeline / again"), strict=True):
        log = logs.of_run(w.db, run_id)
        assert log is not None
        assert log.run.status == "completed"
        assert check(log, w.app.blocks).fits
        error = check(log, App(blocks=longer).blocks).error
        assert (error is None) == (problem is None)
        assert problem is None or (error is not None and problem in error.message)


def test_a_passed_deadline_is_no_fault_of_the_build(plant: Any) -> None:
    point = WaitPoint("approval", suspend=Ask, resume=Verdict, timeout=timedelta(seconds=1))

    @tool(wait_points=[point])
    def gate(ctx: Context, text: str) -> bool:
        """Ask."""
        return ctx.ask(point, Ask(prompt=text)).approved

    w = plant(agent(gate))
    w.start(agent="agent")
    w.advance(2)
    assert errors(against(w, agent(gate))) == [None]


def test_bodies_are_not_run_and_models_are_not_asked(plant: Any) -> None:
    ran: list[str] = []

    @tool(name="gate", wait_points=[approval])
    def counted(ctx: Context, text: str) -> bool:
        """Ask."""
        ran.append(text)
        return ctx.ask(approval, Ask(prompt=text)).approved

    model = ScriptedModel([call("gate", text="x"), say("done")], on_request=lambda request: ran.append("model"))
    build = Agent("agent", model=model, tools=[counted])
    w = plant(build)
    parked, queued = w.start(agent="agent"), w.enqueue(agent="agent").run_id
    assert ran == ["model", "x"]
    assert {each.run_id for each in against(w, build)} == {parked, queued}
    assert ran == ["model", "x"]


def test_pages_hold_every_run_once(plant: Any) -> None:
    w = plant(agent(gate()))
    parked = [w.start(agent="agent") for _ in range(5)]
    thread_id = w.run(parked[0]).thread_id
    behind = [w.enqueue(agent="agent", thread_id=thread_id, enqueue=True).run_id for _ in range(3)]
    for page in (1, 2, 3, 100):
        assert sorted(log.run.id for log in logs.unfinished(w.db, page=page)) == sorted(parked + behind)
    log = logs.of_run(w.db, parked[0])
    assert log is not None
    kinds = [type(item.body) for item in log.items]
    assert kinds[1:] == [ResponseItem, SuspensionItem]


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str) -> Iterator[Callable[..., Any]]:
    monkeypatch.setenv("ADJOURN_DATABASE_URL", database_url)
    monkeypatch.setenv("ADJOURN_REDIS_URL", redis_url)
    monkeypatch.setenv("ADJOURN_APP", "module:app")

    def run(build: list[Block], *args: str) -> Any:
        monkeypatch.setattr(options, "load_app", lambda name: App(blocks=build))
        return CliRunner().invoke(program, args)

    yield run
    structlog.reset_defaults()


def test_the_command_lists_what_a_build_would_fail(plant: Any, command: Callable[..., Any]) -> None:
    w = plant(agent(gate()))
    run_id = w.start(agent="agent")
    fits = command([agent(gate())], "check")
    assert (fits.exit_code, fits.stdout, fits.stderr) == (0, "", "runs checked: 1, that do not fit: 0\n")
    said = command([agent()], "check")
    assert said.exit_code == 1
    assert said.stdout.startswith(f"{run_id}  agent  parked  ToolChangedError: tool 'gate' changed")
    (listed,) = json.loads(command([agent()], "check", "--json").stdout)
    assert (listed["run_id"], listed["error"]["type"], listed["fits"]) == (run_id, "ToolChangedError", False)


def test_the_command_says_so_of_one_run(plant: Any, command: Callable[..., Any]) -> None:
    w = plant(agent(gate()))
    run_id = w.start(agent="agent")
    assert command([agent(gate())], "check", run_id).stdout == f"{run_id}  agent  parked  fits\n"
    said = command([agent()], "check", run_id, "--json")
    assert (said.exit_code, json.loads(said.stdout)["fits"]) == (1, False)
    unknown = command([agent()], "check", "run_none")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: no run run_none\n")
