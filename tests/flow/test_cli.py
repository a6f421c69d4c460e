"""The commands against real servers: what programs read from them, and what they change."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from adjourn import Agent, App, ScriptedModel
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.redis.connection import connect
from adjourn.tasks.host.wakeups import QUEUES
from adjourn.worker.cli.program import app as program
from adjourn.worker.embedded.servers import EmbeddedServers, wait_until_stopped
from tests.flow.gate_app import AGENT, ASKING, app
from tests.processes import ChildProcess
from tests.world import World

ROOT = Path(__file__).parents[2]
THREAD_START = "127.0.0.1:1"


def adjourn(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, args, input=stdin)


def read(*args: str) -> Any:
    """What a command tells a program."""
    said = adjourn(*args, "--json")
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("ADJOURN_DATABASE_URL", database_url)
    monkeypatch.setenv("ADJOURN_REDIS_URL", redis_url)
    monkeypatch.delenv("ADJOURN_BROKER_URL", raising=False)
    monkeypatch.setenv("ADJOURN_APP", "tests.flow.gate_app:app")
    yield monkeypatch
    structlog.reset_defaults()


@pytest.fixture
def world(database_url: str, redis_url: str) -> Iterator[World]:
    made = World(app, database_url, redis_url)
    yield made
    made.close()


@pytest.fixture
def parked(world: World) -> tuple[str, str]:
    """A run that is parked, and the action that it waits for."""
    run_id = world.start(agent=AGENT)
    return run_id, world.the_action(run_id).id


# --- runs -------------------------------------------------------------------------------------


def test_a_run_is_started_and_told_about(world: World) -> None:
    started = read("run", AGENT, "go")
    assert (started["agent"], started["status"]) == (AGENT, "queued")
    world.wakeups.publish(WakeUp(run_id=started["id"], due="turn"))
    world.settle()
    shown = read("show", started["id"])
    assert [item["body"]["kind"] for item in shown["items"]] == ["message", "response", "suspension"]
    assert [action["name"] for action in shown["pending"]] == ["ask.gate"]
    assert shown["run"]["status"] == "parked"


def test_a_block_that_takes_more_than_text_is_given_data(world: World) -> None:
    for given in (["--data", "7"], ["--data", "-"]):
        said = adjourn("run", ASKING, *given, "--json", stdin="7")
        started = json.loads(said.stdout)["id"]
        world.wakeups.publish(WakeUp(run_id=started, due="turn"))
        world.settle()
        assert world.run(started).error is None, given
        assert world.the_action(started).prompt == "Go on with 7?"


@pytest.mark.parametrize("given", [[], ["go", "--data", "{}"]])
def test_a_run_is_given_either_text_or_data(given: list[str]) -> None:
    said = adjourn("run", ASKING, *given)
    assert said.exit_code == 2
    assert "give either TEXT or --data" in said.stderr


def test_data_that_is_no_json_starts_nothing(world: World) -> None:
    said = adjourn("run", ASKING, "--data", "{x: 7}")
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("Error: ")
    assert read("threads") == []


def test_an_agent_that_the_app_does_not_have_is_refused() -> None:
    said = adjourn("run", "nobody", "go")
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("Error: no block named 'nobody' in this app (it has: ")


def test_a_busy_thread_is_refused_or_superseded(world: World, parked: tuple[str, str]) -> None:
    thread = world.run(parked[0]).thread_id
    refused = adjourn("run", AGENT, "again", "--thread", thread)
    assert (refused.exit_code, refused.stderr.partition(";")[0]) == (
        1,
        f"Error: thread busy: {thread} has run {parked[0]} (parked)",
    )
    assert read("run", AGENT, "again", "--thread", thread, "--when-busy", "supersede")["status"] == "queued"
    assert world.run(parked[0]).status == "cancelled"


def test_a_failed_run_is_let_go_on(world: World, parked: tuple[str, str]) -> None:
    refused = adjourn("retry", parked[0])
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"Error: run {parked[0]} is parked; only a failed run is retried\n",
    )
    world.deploy(App(agents=[Agent(AGENT, model=ScriptedModel([]))]))
    world.answer(parked[1], {"approved": True})
    assert read("show", parked[0])["run"]["error"]["type"] == "ToolChangedError"
    world.deploy(app)
    assert read("retry", parked[0])["status"] == "queued"
    world.wakeups.publish(WakeUp(run_id=parked[0], due="turn"))
    world.settle()
    assert read("show", parked[0])["run"]["output"] == "done"


def test_following_a_run_goes_on_over_its_waits_to_its_end(world: World, parked: tuple[str, str]) -> None:
    run_id, action_id = parked
    in_vain = adjourn("show", run_id, "--follow", "--timeout", "0")
    assert in_vain.exit_code == 1
    assert f"the end of run {run_id} (now parked) did not come" in in_vain.stderr
    assert [line.split()[-1] for line in in_vain.stdout.splitlines()[-1:]] == ["parked"]
    world.answer(action_id, {"approved": True})
    followed = adjourn("show", run_id, "--follow")
    assert followed.exit_code == 0
    assert [line.split()[3] for line in followed.stdout.splitlines() if line.split()[0].isdigit()] == [
        "message", "response", "suspension", "resolution", "output", "response", "end",
    ]  # fmt: skip
    assert f"{action_id}  ask.gate  Go on with 1?" in followed.stdout
    events = [json.loads(line) for line in adjourn("show", run_id, "--follow", "--json").stdout.splitlines()]
    assert [event["kind"] for event in events] == ["item", "item", "suspension", "item", "item", "item", "end"]
    assert (events[-1]["reason"], events[-1]["output"]) == ("completed", "done")


def test_following_a_run_that_fails_fails(world: World) -> None:
    run_id = world.start(agent="nobody")
    followed = adjourn("show", run_id, "--follow", "--json")
    assert (followed.exit_code, json.loads(followed.stdout.splitlines()[-1])["reason"]) == (1, "failed")
    assert adjourn("show", "run_none", "--follow").exit_code == 1


def test_show_is_a_line_per_item_and_per_wait(parked: tuple[str, str]) -> None:
    run_id, action_id = parked
    lines = adjourn("show", run_id).stdout.splitlines()
    assert lines[0].startswith(f"{run_id}  {AGENT}  parked")
    assert [line.split()[3] for line in lines[1:-1]] == ["message", "response", "suspension"]
    assert lines[-1].endswith(f"{action_id}  ask.gate  Go on with 1?")


def test_what_is_unknown_is_said_to_be() -> None:
    said = adjourn("show", "run_none")
    assert (said.exit_code, said.stderr) == (1, "Error: no run run_none\n")


@pytest.mark.parametrize("command", ["threads", "pending"])
def test_more_rows_than_can_be_counted_are_a_wrong_use(command: str) -> None:
    assert adjourn(command, "--limit", str(10**20)).exit_code == 2


def test_threads_are_lines_for_a_program(world: World, parked: tuple[str, str]) -> None:
    thread = world.run(parked[0]).thread_id
    assert adjourn("threads").stdout.rstrip("\n").split("\t")[:4] == [thread, "parked", AGENT, parked[0]]
    assert read("threads")[0]["thread_id"] == thread


# --- answers ----------------------------------------------------------------------------------


def test_a_fork_is_the_id_of_a_thread(world: World, parked: tuple[str, str]) -> None:
    run_id, _ = parked
    thread_id = world.run(run_id).thread_id
    assert adjourn("fork", thread_id, "--run", run_id, "--item", "1", "--as", "mine").stdout == "mine\n"
    assert len(world.snapshot("mine")[1]) == 2
    refused = adjourn("fork", thread_id)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "no run of it has ended" in refused.stderr


def test_pending_is_lines_for_a_program(parked: tuple[str, str]) -> None:
    run_id, action_id = parked
    line = adjourn("pending").stdout.rstrip("\n").split("\t")
    assert line == [action_id, "ask.gate", "", "Go on with 1?"]
    (action,) = read("pending", "--run", run_id)
    assert action["resume_schema"]["required"] == ["approved"]


@pytest.mark.parametrize("stdin", [None, '{"approved": true}'])
def test_an_answer_is_an_argument_or_standard_input(world: World, parked: tuple[str, str], stdin: str | None) -> None:
    said = adjourn("answer", parked[1], "-" if stdin else '{"approved": true}', stdin=stdin)
    assert (said.exit_code, said.stdout) == (0, f"accepted: {parked[1]}\n")
    assert world.status_of(parked[1]) == "submitted"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('{"approved": "yes"}', "Error: invalid: "),
        ('{"approved": true, "more": 1}', "Error: invalid: "),
        ('{"approved": tru', "Error: malformed JSON"),
        ('{"approved": true, "approved": false}', "Error: malformed JSON"),
        ('{"approved": NaN}', "Error: malformed JSON"),
        ('"a\\u0000b"', "Error: malformed JSON"),
        (f'"{"x" * 1_000_000}"', "Error: "),
    ],
)
def test_a_bad_answer_is_one_line_and_the_action_waits_on(
    world: World, parked: tuple[str, str], data: str, problem: str
) -> None:
    said = adjourn("answer", parked[1], "-", stdin=data)
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith(problem)
    assert said.stderr.count("\n") == 1
    assert world.status_of(parked[1]) == "pending"


def test_a_refusal_is_a_receipt_for_a_program(parked: tuple[str, str]) -> None:
    said = adjourn("answer", parked[1], "{}", "--json")
    assert said.exit_code == 1
    receipt = json.loads(said.stdout)
    assert (receipt["status"], receipt["issues"][0]["path"]) == ("invalid", "/approved")


def test_an_answer_with_an_id_of_its_own_is_taken_once(parked: tuple[str, str]) -> None:
    args = ("answer", parked[1], '{"approved": true}', "--answer-id", "mine")
    assert [read(*args)["status"] for _ in range(2)] == ["accepted", "duplicate"]


def test_cancel_takes_an_action_or_a_run(world: World, parked: tuple[str, str]) -> None:
    assert adjourn("cancel", parked[1], "--reason", "not now").stdout == f"accepted: {parked[1]}\n"
    assert (world.status_of(parked[1]), world.run(parked[0]).ended) == ("cancelled", False)
    assert adjourn("cancel", parked[0]).stdout == f"{parked[0]} is cancelled\n"
    assert world.run(parked[0]).status == "cancelled"
    assert adjourn("cancel", "act_none").exit_code == 1


def test_fail_says_why(world: World, parked: tuple[str, str]) -> None:
    assert adjourn("fail", parked[1], "the file is lost").exit_code == 0
    assert world.status_of(parked[1]) == "failed"


# --- the deployment ---------------------------------------------------------------------------


def _found(findings: list[dict[str, str]]) -> dict[str, str]:
    return {finding["what"]: finding["status"] for finding in findings}


def test_doctor_finds_a_deployment_in_order() -> None:
    findings = read("doctor")
    assert _found(findings) == dict.fromkeys(("database", "migrations", "redis", "broker", "queues", "app"), "ok")
    assert f"{QUEUES['turn']} 0" in next(each["detail"] for each in findings if each["what"] == "queues")


def test_doctor_finds_a_database_without_migrations(environment: pytest.MonkeyPatch, empty_database_url: str) -> None:
    environment.setenv("ADJOURN_DATABASE_URL", empty_database_url)
    said = adjourn("doctor", "--json")
    assert said.exit_code == 1
    assert _found(json.loads(said.stdout))["migrations"] == "wrong"
    assert adjourn("migrate").exit_code == 0
    assert adjourn("migrate").exit_code == 0
    assert _found(read("doctor"))["migrations"] == "ok"


def test_doctor_looks_at_everything_whatever_it_finds_on_the_way(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ADJOURN_DATABASE_URL", f"postgresql://me:secret@{THREAD_START}/none")
    environment.setenv("ADJOURN_REDIS_URL", f"redis://:secret@{THREAD_START}/0")
    environment.setenv("ADJOURN_BROKER_URL", f"amqp://me:secret@{THREAD_START}//")
    environment.setenv("ADJOURN_APP", "no.such.module:app")
    said = adjourn("doctor", "--json")
    assert said.exit_code == 1
    assert _found(json.loads(said.stdout)) == dict.fromkeys(("database", "redis", "broker", "app"), "wrong")
    assert "secret" not in said.output


def test_doctor_finds_a_redis_that_forgets(
    environment: pytest.MonkeyPatch, own_servers: Callable[..., EmbeddedServers]
) -> None:
    redis_url = own_servers(durable=False).redis_url
    environment.setenv("ADJOURN_REDIS_URL", redis_url)
    client = connect(redis_url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("appendonly", "no")
    client.close()
    said = adjourn("doctor", "--json")
    found = _found(json.loads(said.stdout))
    assert (said.exit_code, found["redis eviction"], found["redis persistence"]) == (1, "wrong", "warning")


# --- processes --------------------------------------------------------------------------------


def test_run_waits_and_tells_each_change(
    process: Callable[..., ChildProcess], database_url: str, redis_url: str
) -> None:
    env = {
        "ADJOURN_DATABASE_URL": database_url,
        "ADJOURN_REDIS_URL": redis_url,
        "ADJOURN_APP": "tests.flow.gate_app:app",
    }
    process([sys.executable, "-m", "adjourn", "worker", "--concurrency", "4"], env=env, cwd=ROOT)
    waiting = process(
        [sys.executable, "-m", "adjourn", "run", AGENT, "go", "--wait", "--timeout", "60"], env=env, cwd=ROOT
    )
    assert waiting.wait() == 0
    lines = waiting.log.splitlines()
    assert f"{AGENT}  queued" in lines[0]
    assert f"{AGENT}  parked" in lines[-2]
    assert lines[-1].endswith("ask.gate  Go on with 1?")


def test_dev_runs_everything_and_reloads_what_changed(
    process: Callable[..., ChildProcess], server_folder: Path, tmp_path: Path
) -> None:
    code = tmp_path / "project"
    code.mkdir()
    source = (Path(__file__).parent / "gate_app.py").read_text()
    (code / "gates.py").write_text(source)
    env = {"ADJOURN_DATA_DIR": str(server_folder / "dev")}
    dev = process([sys.executable, "-m", "adjourn", "dev", "--app", "gates:app"], env=env, cwd=code)
    dev.wait_for_log("Ctrl-C stops everything")

    def ask(expected: str) -> None:
        args = ["run", AGENT, "go", "--wait", "--timeout", "60"]
        run = process([sys.executable, "-m", "adjourn", *args], env=env, cwd=code)
        assert run.wait() == 0
        assert expected in run.log

    ask("Go on with 1?")
    (code / "gates.py").write_text(source.replace("Go on with", "Proceed with"))
    dev.wait_for_log("gates.py changed: the worker starts again")
    ask("Proceed with 1?")
    pending = process([sys.executable, "-m", "adjourn", "pending"], env=env, cwd=code)
    assert pending.wait() == 0
    assert len(pending.log.splitlines()) == 2
    second = process([sys.executable, "-m", "adjourn", "dev", "--app", "gates:app"], env=env, cwd=code)
    second.wait_for_log("These servers ran already")
    second.send(signal.SIGINT)
    assert second.wait() == 0
    assert "These servers ran already" not in dev.log
    dev.send(signal.SIGINT)
    assert dev.wait() == 0
    assert "Traceback" not in dev.log
    wait_until_stopped(server_folder / "dev")
