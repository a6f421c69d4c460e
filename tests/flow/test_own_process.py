"""Tools that run in processes of their own: they do all that others do, and can be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from adjourn import App, DefinitionError, tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.items import StartItem
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.lifecycle.retry import retry
from adjourn.worker.config.settings import Settings
from adjourn.worker.process.tool_processes import Launcher
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.effects import FOLDER, Effects
from tests.flow import own_process_app
from tests.waiting import wait_until
from tests.world import World

APP = "tests.flow.own_process_app:app"
PROMPT = 10.0
"""Seconds within which a process has to be gone. Leases of these deployments last ten minutes."""
SLOW = {"lease_seconds": 600.0, "sweep_seconds": 0.3, "wakeup_retry_seconds": 1.0}


@pytest.fixture
def effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Effects:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Effects(tmp_path)


@pytest.fixture
def w(database_url: str, redis_url: str, effects: Effects) -> Iterator[World]:
    """A world that starts processes for the tools of the app that ask for one."""
    made = World(own_process_app.app, database_url, redis_url, Tuning(max_output_bytes=4_000))
    settings = Settings(database_url=database_url, redis_url=redis_url, app=APP)
    made.services = replace(made.services, tool_processes=Launcher(settings))
    yield made
    made.close()


def output(w: World, run_id: str) -> Any:
    (found,) = w.outputs(run_id)
    return found.content


def started(folder: Path, kind: str) -> int:
    """The process that a tool has started."""
    (name,) = [line.split()[0] for line in (folder / "notes").read_text().splitlines() if f"{kind}-" in line]
    return int(name.removeprefix(f"{kind}-"))


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- what a context offers ------------------------------------------------------------------------


def test_a_body_asks_remembers_and_reads_its_history_across_processes(w: World, effects: Effects) -> None:
    run_id = w.start(agent="consulting")
    action = w.the_action(run_id)
    w.advance(3_600)
    assert action.prompt == "May 7 be?"
    assert action.origin.block_path == ("consulting", "consult")
    w.answer(action, {"approved": True, "note": "fine"})
    said = output(w, run_id)
    assert w.run(run_id).status == "completed"
    assert said["handed"] == said["action"] == action.id == action.input["seen"]
    assert (said["ticket"], said["note"], said["typed"]) == (70, "fine", "Verdict")
    assert said["history"] == ["q", "submitted", "fine"]
    assert said["thread"] == w.run(run_id).thread_id
    assert said["key"].startswith(f"{run_id}:")
    assert len({said["first_process"], said["process"], os.getpid()}) == 3
    assert said["parent"] == os.getpid()
    assert datetime.fromisoformat(said["began"]) < action.opened_at
    assert effects.count("ticket") == 1


def test_an_approval_is_read_in_the_process(w: World) -> None:
    run_id = w.start(agent="approving")
    w.answer(w.the_action(run_id), {"approved": True, "comment": "go on"})
    w.answer(w.the_action(run_id), {"approved": True, "note": "fine"})
    assert output(w, run_id)["approvals"] == ["go on"]


def test_entry_style_and_requests(w: World) -> None:
    entering, requesting = w.start(agent="entering"), w.start(agent="requesting")
    w.answer(w.the_action(entering), {"approved": True, "note": "yes"})
    assert output(w, entering) == "yes to well?"
    w.answer(w.the_action(requesting), {"b": 2})
    assert output(w, requesting) == ["7", True, {"b": 2}]


def test_an_async_body(w: World, effects: Effects) -> None:
    run_id = w.start(agent="asynchronous")
    w.answer(w.the_action(run_id), {"approved": True, "note": "fine"})
    assert output(w, run_id) == "made: fine"
    assert effects.count("made") == 1


def test_a_deadline_and_a_refusal_are_read_as_elsewhere(w: World) -> None:
    run_id = w.start(agent="consulting")
    w.answer(w.the_action(run_id), kind="cancel", reason="not today")
    (closed,) = w.outputs(run_id)
    assert closed.outcome == "declined"
    assert "not today" in closed.content


@pytest.mark.parametrize(
    ("agent", "function", "times"),
    [("throwing", "throw", len(own_process_app.ODD)), ("giving", "give", len(own_process_app.VALUES))],
)
def test_what_is_raised_and_returned_is_what_it_is_in_the_worker(
    w: World, agent: str, function: str, times: int
) -> None:
    run_id = w.start(agent=agent)
    outputs = {(o.call_id): o for o in w.outputs(run_id)}
    in_order = [outputs[call.id] for item in w.items(run_id) for call in getattr(item.body, "calls", ())]
    assert len(in_order) == 2 * times
    for apart, here in zip(in_order[::2], in_order[1::2], strict=True):
        assert (apart.tool, here.tool) == (function, f"{function}_here")
        assert (apart.outcome, apart.content) == (here.outcome, here.content)


def test_a_memo_that_is_too_large_is_refused_in_the_body(w: World) -> None:
    assert output(w, w.start(agent="large")) == "TooLargeError over 4000"


def test_what_is_too_large_is_refused_in_the_process_and_does_not_reach_the_worker(
    w: World, database_url: str, redis_url: str
) -> None:
    # The process has a smaller limit than the worker, so the limit that the error names tells where it was refused.
    smaller = Tuning(max_output_bytes=2_000)
    settings = Settings(database_url=database_url, redis_url=redis_url, app=APP, tuning=smaller)
    w.services = replace(w.services, tool_processes=Launcher(settings))
    assert output(w, w.start(agent="large")) == "TooLargeError over 2000"
    assert output(w, w.start(agent="lengthy")) == "the output of lengthy has 3002 bytes, the limit is 2000 bytes"


def test_a_mismatch_fails_the_run_even_where_the_body_catches_it(w: World, effects: Effects) -> None:
    run = w.run(w.start(agent="reordering"))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ReplayMismatchError"
    assert "'step of pass 1'" in run.error.message
    assert effects.count("caught") == 1


# --- which tool ----------------------------------------------------------------------------------


def test_two_at_once_of_tools_that_functions_have_made(w: World) -> None:
    run_id = w.start(agent="two")
    said = [str(each.content) for each in w.outputs(run_id)]
    assert sorted(text.split(" from ")[0] for text in said) == ["hello, Ada", "hello, Bob"]
    assert len({text.split(" from ")[1] for text in said} | {str(os.getpid())}) == 3


def test_tools_of_a_run_of_a_child_and_of_a_sequence(w: World) -> None:
    varying = w.start(agent="varying")
    assert output(w, varying).startswith(f"run {varying}, Ada from ")
    outer = w.start(agent="outer")
    (child,) = [run for run in runs.list(w.db, limit=10) if run.parent_run_id == outer]
    assert output(w, child.id).startswith("inner, Eve from ")
    steps = w.enqueue(agent="steps", data="Ada").run_id
    alone = w.enqueue(agent="greet", data="Ada").run_id
    w.settle()
    assert str(w.run(steps).output).startswith("step, Ada")
    assert str(w.run(alone).output).startswith("alone, Ada")


def test_a_body_that_cannot_begin_fails_the_run_which_a_retry_takes_up(
    w: World, database_url: str, redis_url: str
) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url, app="tests.flow.nowhere:app")
    able, w.services = w.services, replace(w.services, tool_processes=Launcher(settings))
    failed: list[str] = []
    for agent in ("two", "once"):
        run = w.run(w.start(agent=agent))
        assert run.error is not None
        assert run.error.type == "ToolProcessError"
        assert "there is no module 'tests.flow.nowhere'" in run.error.message
        assert w.outputs(run.id) == []
        # A start that is written down would have the retry ask an operator about a body that has not run.
        assert not any(isinstance(item.body, StartItem) for item in w.items(run.id))
        failed.append(run.id)
    w.services = able
    retry(w.services, failed[0])
    w.settle()
    assert (w.run(failed[0]).status, len(w.outputs(failed[0]))) == ("completed", 2)


def test_a_body_that_stops_at_a_mismatch_leaves_no_start_behind(w: World) -> None:
    run_id = w.start(agent="mismatched")
    w.answer(w.the_action(run_id), {"approved": True})
    for _ in range(2):
        run = w.run(run_id)
        assert run.error is not None
        assert run.error.type == "ReplayMismatchError"
        retry(w.services, run_id)
        w.settle()
        assert w.pending() == [], "nobody is asked whether it ran"


def test_without_an_app_to_import_it_runs_in_this_process(database_url: str, redis_url: str) -> None:
    w = World(App(blocks=[own_process_app.made("here")]), database_url, redis_url)
    try:
        run_id = w.enqueue(agent="greet", data="Ada").run_id
        w.settle()
        assert w.run(run_id).output == f"here, Ada from {os.getpid()}"
    finally:
        w.close()


def test_own_process_is_a_bool() -> None:
    with pytest.raises(DefinitionError, match="own_process"):
        tool(own_process="yes")(own_process_app.throw_here)  # type: ignore[call-overload]


# --- a process that ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "said"), [("exit", "exit code 7"), ("segfault", "SIGSEGV"), ("signal", "SIGKILL")])
def test_a_body_that_ends_its_process_is_a_tool_error_after_its_retries(
    w: World, effects: Effects, how: str, said: str
) -> None:
    run_id = w.start(agent=f"ending-{how}")
    (closed,) = w.outputs(run_id)
    assert (closed.outcome, w.run(run_id).status) == ("error", "completed")
    assert f"its process ended with {said}" in closed.content
    assert (effects.count("begun"), effects.count("before")) == (2, 1)


def test_a_tool_that_is_not_repeatable_asks_an_operator(w: World, effects: Effects) -> None:
    run_id = w.start(agent="once")
    action = w.the_action(run_id)
    assert action.name == "end_once.outcome"
    w.answer(action, {"happened": True, "output": "it did"})
    assert output(w, run_id) == "it did"
    assert effects.count("begun") == 1


def test_verify_is_asked(w: World, effects: Effects) -> None:
    assert output(w, w.start(agent="verified")) == "found"
    assert effects.count("begun") == 1
    assert "exit code 7" in output(w, w.start(agent="not-found"))
    assert (effects.count("begun"), effects.count("looked")) == (3, 2)


def test_what_a_body_has_started_is_gone_when_it_returns(w: World, effects: Effects, tmp_path: Path) -> None:
    assert output(w, w.start(agent="leaving")) == "left"
    wait_until(lambda: is_gone(started(tmp_path, "grandchild")), PROMPT)


def test_a_body_that_forks_and_returns_twice_returns_once(w: World, effects: Effects) -> None:
    assert output(w, w.start(agent="forking")) == "here"
    assert effects.count("refused") == 1


def test_a_body_is_killed_when_the_seconds_of_its_run_are_over(w: World, effects: Effects) -> None:
    run_id = w.start(agent="limited")
    run = w.run(run_id)
    assert (run.status, w.outputs(run_id)) == ("failed", [])
    assert run.error is not None
    assert (run.error.type, run.error.data["limit"]) == ("LimitExceededError", "seconds")
    assert all(is_gone(pid) for pid in effects.pids("held"))
    assert effects.count("went-on") == 0


def test_a_body_over_its_timeout_is_killed_with_what_it_has_started(w: World, effects: Effects, tmp_path: Path) -> None:
    run_id = w.start(agent="briefly")
    (closed,) = w.outputs(run_id)
    assert closed.outcome == "interrupted"
    assert "timed out after 2 s" in closed.content
    assert is_gone(effects.pids("held")[0])
    wait_until(lambda: is_gone(started(tmp_path, "grandchild")), PROMPT)
    assert effects.count("went-on") == 0


# --- real workers -----------------------------------------------------------------------------------


def held(d: Deployment, agent: str) -> tuple[str, int]:
    """A run whose body has begun, and the process of that."""
    run = d.client.start(agent, "go")
    return run.id, d.noted("held")


def test_a_cancelled_run_takes_its_process_along(deploy: Deploy, tmp_path: Path) -> None:
    with deploy(app=APP, tuning=SLOW) as d:
        d.ready_worker()
        run_id, pid = held(d, "holding")
        assert not is_gone(pid)
        program = started(tmp_path, "grandchild")
        d.client.cancel_run(run_id)
        wait_until(lambda: is_gone(pid), PROMPT)
        wait_until(lambda: is_gone(program), PROMPT)
        d.effects.release("held")
        assert d.client.get_run(run_id).status == "cancelled"
        assert (d.effects.count("went-on"), d.effects.count("after")) == (0, 0)


@pytest.mark.parametrize("agent", ["holding", "freezing"])
def test_the_death_of_a_worker_is_that_of_its_process(deploy: Deploy, tmp_path: Path, agent: str) -> None:
    with deploy(app=APP) as d:
        worker = d.ready_worker()
        run_id, pid = held(d, agent)
        worker.send(signal.SIGKILL)
        wait_until(lambda: is_gone(pid), PROMPT)
        if agent == "holding":
            wait_until(lambda: is_gone(started(tmp_path, "grandchild")), PROMPT)
        d.client.cancel_run(run_id)


def test_the_death_of_a_worker_is_noticed_beside_a_copy_of_it(deploy: Deploy, tmp_path: Path) -> None:
    """A fork of the worker holds its ends of the channel and of the lifeline open."""
    with deploy(app=APP) as d:
        worker = d.ready_worker()
        run_id, pid = held(d, "forked")
        d.noted("forked")
        copy = started(tmp_path, "copy")
        try:
            worker.send(signal.SIGKILL)
            wait_until(lambda: is_gone(pid), PROMPT)
            assert not is_gone(copy)
        finally:
            os.kill(copy, signal.SIGKILL)
        d.client.cancel_run(run_id)


def test_a_stopping_worker_gives_the_run_back_and_another_runs_the_body_again(deploy: Deploy) -> None:
    with deploy(app=APP, tuning={**SLOW, "shutdown_seconds": 1.0}) as d:
        worker = d.ready_worker()
        run_id, pid = held(d, "holding")
        os.kill(pid, signal.SIGTERM)  # as a service manager does, to all processes of a service
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        wait_until(lambda: is_gone(pid), PROMPT)
        d.effects.release("held")
        d.ready_worker()
        assert d.ended(run_id).status == "completed"
        assert (d.effects.count("held"), d.effects.count("after")) == (2, 1)


def test_an_answer_resumes_in_a_new_process_of_another_worker(deploy: Deploy) -> None:
    with deploy(app=APP) as d:
        worker = d.ready_worker()
        run = d.parked("consulting")
        worker.send(signal.SIGTERM)
        worker.wait()
        d.ready_worker()
        (action,) = d.client.pending(run_id=run.id)
        d.client.submit(action.id, {"approved": True, "note": "fine"})
        assert d.ended(run).status == "completed"
        assert d.effects.count("ticket") == 1
