"""User code outside the bodies of tools may raise or return anything: its run pays for it, and no worker."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field
from pydantic_core import core_schema

from adjourn import App, Client, Context, WaitPoint, tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.runs import Run
from adjourn.store.faulty import Act
from adjourn.tasks.host.leases import LeaseKeeper
from adjourn.tasks.lifecycle import sweep as sweeping
from adjourn.worker.config.settings import Settings
from adjourn.worker.process.sweep_loop import SweepLoop
from adjourn.worker.process.wakeup_tasks import register
from tests.conftest import ProcessFactory
from tests.flow import odd_app
from tests.flow.answering import ROOT, WORKER
from tests.waiting import LIMIT_SECONDS, wait_until
from tests.world import World

RAISED = list(odd_app.RAISED)
NAMED = {
    "tools": ("ToolResolverError", "the tools of agent 'tools-"),
    "user": ("PromptError", "'user-"),
    "selector": ("SelectorError", "the selector of router 'selector-"),
    "settings": ("ModelRequestError", "agent 'settings-"),
    "model": ("ModelRequestError", "agent 'model-"),
    "request": ("ModelRequestError", "scripted"),
}


def _world(database_url: str, redis_url: str) -> World:
    # A request of a model that was cancelled is tried again, unless there are no retries.
    return World(odd_app.app, database_url, redis_url, Tuning(model_retries=0))


@pytest.mark.parametrize("place", list(NAMED))
def test_what_code_of_a_run_raises_ends_its_run_and_names_the_code(
    database_url: str, redis_url: str, place: str
) -> None:
    w = _world(database_url, redis_url)
    try:
        for kind in RAISED:
            run = w.run(w.start(agent=f"{place}-{kind}"))
            assert run.status == "failed", kind
            assert run.error is not None
            assert run.error.type == NAMED[place][0], (kind, run.error)
            assert NAMED[place][1] in run.error.message, kind
        assert w.run(w.start(agent="ordinary")).status == "completed"
    finally:
        w.close()


@pytest.mark.parametrize("kind", list(odd_app.DOES))
def test_a_call_that_a_policy_cannot_judge_does_not_run(database_url: str, redis_url: str, kind: str) -> None:
    w = _world(database_url, redis_url)
    try:
        run_id = w.start(agent=f"policy-{kind}")
        assert w.run(run_id).status == "completed"
        (output,) = w.outputs(run_id)
        assert output.outcome == "error"
        assert "policy" in output.content
    finally:
        w.close()


@pytest.mark.parametrize("kind", list(odd_app.DOES))
def test_a_resolver_that_fails_leaves_its_action_to_others(database_url: str, redis_url: str, kind: str) -> None:
    w = _world(database_url, redis_url)
    try:
        run_id = w.start(agent=f"resolver-{kind}")
        assert w.run(run_id).status == "parked"
        w.answer(w.the_action(run_id), "yes")
        assert w.run(run_id).status == "completed"
    finally:
        w.close()


@pytest.mark.parametrize("kind", ["hostile", "awaitable", "generator"])
@pytest.mark.parametrize("place", ["tools", "user", "selector"])
def test_what_code_of_a_run_returns_that_it_may_not_ends_its_run(
    database_url: str, redis_url: str, place: str, kind: str
) -> None:
    w = _world(database_url, redis_url)
    try:
        run = w.run(w.start(agent=f"{place}-{kind}"))
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.type == NAMED[place][0]
    finally:
        w.close()


def panic(*_: Any, **__: Any) -> Any:
    raise odd_app.PanicException("in a thread of the worker")


class Speechless:
    """A number that panics when it is compared, or written again."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        raise odd_app.PanicException("not to be compared")

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        written = core_schema.plain_serializer_function_ser_schema(panic)
        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema(), serialization=written)


class Numbered(BaseModel):
    """A value that is made, so that each answer is compared and written when it comes."""

    number: Speechless
    id: UUID = Field(default_factory=uuid4)


def test_an_answer_whose_comparison_panics_costs_no_reader(database_url: str, redis_url: str) -> None:
    point = WaitPoint("number", suspend=str, resume=Numbered)

    @tool(wait_points=[point])
    def gate(ctx: Context) -> int:
        return ctx.ask(point, "Which?").number.value

    w = World(App(blocks=[gate]), database_url, redis_url)
    try:
        run_id = w.enqueue(agent="gate", data={}).run_id
        w.settle()
        assert w.answer(w.the_action(run_id), {"number": 3}).status == "accepted"
        assert w.run(run_id).output == 3
    finally:
        w.close()


def test_what_nothing_nearer_has_caught_costs_an_answer_and_no_reader(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = _world(database_url, redis_url)
    try:
        run_id = w.start(agent="resolver-panic")
        action = w.the_action(run_id)
        with monkeypatch.context() as patched:
            patched.setattr("adjourn.tasks.answers.answering.validated", panic)
            assert w.answer(action, "yes").status == "malformed"
        assert w.answer(action, "yes").status == "accepted"
    finally:
        w.close()


# --- real workers -----------------------------------------------------------------------------------


def test_a_worker_of_two_slots_outlives_all_of_it(database_url: str, redis_url: str, process: ProcessFactory) -> None:
    settings = Settings(
        database_url=database_url,
        redis_url=redis_url,
        app="tests.flow.odd_app:app",
        concurrency=2,
        tuning=Tuning(sweep_seconds=0.3, lease_seconds=30, wakeup_retry_seconds=0.5, model_retries=0),
    )
    worker = process(WORKER, env=settings.as_environment(), cwd=ROOT)
    worker.wait_for_log("worker ready")
    with Client(settings) as client:
        started = {
            f"{place}-{kind}": client.start(f"{place}-{kind}", "go").id for place in NAMED for kind in odd_app.RAISED
        }
        started |= {
            name: client.start(name, "go").id for kind in RAISED for name in (f"policy-{kind}", f"output-{kind}")
        }
        ended: dict[str, Run] = {name: client.wait(run_id, timeout=LIMIT_SECONDS) for name, run_id in started.items()}
        assert all(run.ended for run in ended.values())
        assert {run.deaths for run in ended.values()} == {0}, "none of them was taken for a killer of workers"
        assert client.wait(client.start("ordinary", "go").id, timeout=LIMIT_SECONDS).status == "completed"
    assert worker.exit_code is None


# --- the threads of a worker --------------------------------------------------------------------------


def test_a_wakeup_that_panics_gives_its_slot_back() -> None:
    class Registry:
        def __init__(self) -> None:
            self.tasks: list[Any] = []

        def task(self, **_: Any) -> Any:
            return self.tasks.append

    registry: Any = Registry()
    register(registry, panic)
    for task in registry.tasks:
        task({"run_id": "run_1", "due": "turn"})


def test_a_driver_that_panics_ends_the_run(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adjourn.tasks.execution.drive.plan", panic)
    w = _world(database_url, redis_url)
    try:
        run = w.run(w.start(agent="ordinary"))
        assert run.error is not None
        assert (run.error.type, run.status) == ("DriverFaultError", "failed")
    finally:
        w.close()


def test_ctrl_c_stops_a_program_that_drives_in_its_main_thread(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("adjourn.tasks.execution.drive.plan", interrupted)
    w = _world(database_url, redis_url)
    try:
        with pytest.raises(KeyboardInterrupt):
            w.start(agent="ordinary")
    finally:
        w.close()


def test_the_renewal_of_leases_outlives_a_panic(database_url: str, redis_url: str) -> None:
    w = _world(database_url, redis_url)
    supervisor = LeaseKeeper(w.store, Tuning(lease_seconds=0.3))
    asked = threading.Event()
    faults: list[Any] = [panic, panic]

    def renewing(act: Act) -> None:
        if act.name != "claims.renew":
            return
        if faults:
            faults.pop()()
        asked.set()

    w.store.before = renewing
    try:
        with supervisor.hold("run_1", "token") as lease, lease.interrupting(panic):
            wait_until(lambda: lease.lost, what="the lease is found lost by the thread that panicked before")
        assert asked.is_set()
    finally:
        supervisor.stop()
        w.close()


def test_the_sweep_outlives_a_panic(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(odd_app.app, database_url, redis_url, Tuning(sweep_seconds=0.05))
    swept = threading.Event()
    faults: list[Any] = [panic, panic]

    def deployment() -> Any:
        if faults:
            faults.pop()()
        swept.set()
        return w.services

    loop = SweepLoop(deployment)
    try:
        loop.start()
        wait_until(swept.is_set, what="a sweep after two panics")
    finally:
        loop.stop()
        w.close()


def test_a_search_that_panics_costs_that_search_only(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = _world(database_url, redis_url)
    try:
        run_id = w.enqueue(agent="ordinary").run_id
        w.wakeups.waiting.clear()
        w.advance(w.tuning.wakeup_retry_seconds + 1)
        monkeypatch.setattr(sweeping, "_expire", panic)
        w.sweep()
        assert w.run(run_id).status == "completed"
    finally:
        w.close()
