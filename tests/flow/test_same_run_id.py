"""A run id of one's own: the same request returns the run, another one is refused and hears what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from typer.testing import CliRunner

from adjourn import (
    Agent,
    Client,
    ForkRefusedError,
    Limits,
    RequestError,
    RunIdClashError,
    SubAgent,
    UnusableHandleError,
    call,
)
from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.runs import WakeUp
from adjourn.worker.cli.program import app as program
from adjourn.worker.config.settings import Settings
from tests.families import boss, child_of, digger
from tests.flow.conftest import Plant
from tests.flow.gate_app import AGENT
from tests.world import Counters, World, scripted


class Order(BaseModel):
    item: str
    amount: float = 1.0


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    with Client(Settings(database_url=database_url, redis_url=redis_url)) as made:
        yield made


FIRST: dict[str, Any] = {"agent": "a", "message": {"n": 1, "to": ["x"]}, "thread_id": "t", "limits": Limits(cost=1)}


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"thread_id": None},
        {"when_busy": "enqueue"},
        {"when_busy": "supersede"},
        {"message": {"to": ["x"], "n": 1}},
        {"message": {"n": 1.0, "to": ["x"]}},
        {"limits": Limits(cost=1.0, turns=50)},
    ],
)
def test_the_same_request_returns_the_run(client: Client, again: dict[str, Any]) -> None:
    first = client.start(run_id="run_1", **FIRST)
    assert client.start(run_id="run_1", **FIRST | again) == first
    assert client.thread("t").state().runs == (first.state(),)


@pytest.mark.parametrize(
    ("again", "differing"),
    [
        ({"message": {"n": True, "to": ["x"]}}, ("message",)),
        ({"message": {"n": "1", "to": ["x"]}}, ("message",)),
        ({"message": {"n": 1, "to": ["x", None]}}, ("message",)),
        ({"message": {"n": 1, "to": ["x"], "more": None}}, ("message",)),
        ({"message": '{"n":1,"to":["x"]}'}, ("message",)),
        ({"agent": "b"}, ("agent",)),
        ({"thread_id": "u"}, ("thread_id",)),
        ({"limits": None}, ("limits",)),
        ({"limits": Limits(cost=2)}, ("limits",)),
        ({"agent": "b", "message": "x", "thread_id": "u", "limits": None}, ("agent", "message", "thread_id", "limits")),
    ],
)
@pytest.mark.parametrize("when_busy", ["refuse", "supersede"])
def test_another_request_is_refused_and_hears_what_differs(
    client: Client, again: dict[str, Any], differing: tuple[str, ...], when_busy: Any
) -> None:
    first = client.start(run_id="run_1", **FIRST)
    with pytest.raises(RunIdClashError) as refused:
        client.start(run_id="run_1", when_busy=when_busy, **FIRST | again)
    assert isinstance(refused.value, RequestError)
    assert (refused.value.run_id, refused.value.differing) == ("run_1", differing)
    assert all(name in str(refused.value) for name in ("run_1", *differing))
    assert client.thread("t").state().runs == (first.state(),)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("null", None, False),
        ("5", 5, False),
        ("x\x00", "x\ufffd", True),
        (Order(item="x"), {"amount": 1, "item": "x"}, True),
        (Order(item="x"), {"item": "x"}, False),
        ({"x": float("nan")}, {"x": None}, True),
        ({"x": "\ud800"}, {"x": "\ufffd"}, True),
    ],
)
def test_messages_are_compared_as_they_are_stored(client: Client, one: Any, other: Any, same: bool) -> None:
    first = client.start("a", one, run_id="run_1")
    if same:
        assert client.start("a", other, run_id="run_1") == first
        return
    with pytest.raises(RunIdClashError):
        client.start("a", other, run_id="run_1")


def test_the_same_request_is_the_same_after_the_run_has_ended_and_was_retried_with_other_limits(
    plant: Plant, client: Client
) -> None:
    def refused(_: Any) -> Any:
        raise ModelRequestError("a", "is refused", retryable=False)

    w = plant(Agent("a", model=scripted(refused)))
    first = client.start("a", "go", run_id="run_1", limits=Limits(turns=3))
    w.wakeups.publish(WakeUp(run_id=first.id, due="turn"))
    w.settle()
    assert client.start("a", "go", run_id="run_1", limits=Limits(turns=3)).state().status == "failed"
    with pytest.raises(RunIdClashError):
        client.start("a", "stop", run_id="run_1", limits=Limits(turns=3))
    client.retry("run_1", limits=Limits(turns=9))
    assert client.start("a", "go", run_id="run_1", limits=Limits(turns=3)).id == first.id


def test_the_id_of_a_child_is_not_free_either(plant: Plant, client: Client) -> None:
    counters = Counters()
    w = plant(boss(SubAgent(digger(counters)), call("digger", task="x"), counters=counters))
    child = child_of(w, w.start(agent="boss"))
    with pytest.raises(RunIdClashError):
        client.start("digger", "y", run_id=child.id)


def test_a_damaged_message_is_not_compared(client: Client, plant: Plant) -> None:
    w: World = plant(Agent("a", model=scripted("x")))
    client.start("a", "go", run_id="run_1")
    w.db.execute(DAMAGE, {})
    assert client.start("a", "go", run_id="run_1").id == "run_1"


def test_a_handle_is_woken_once_with_one_message(client: Client) -> None:
    with client.thread("root") as root:
        handle = root.spawn("a", name="one")
        first = handle.send("go", run_id="run_1")
        assert handle.send("go", run_id="run_1") == first
        with pytest.raises(RunIdClashError) as refused:
            handle.send("stop", run_id="run_1")
        assert refused.value.differing == ("message",)
        with pytest.raises(RunIdClashError) as refused:
            root.spawn("a", name="two").send("go", run_id="run_1")
        assert refused.value.differing == ("thread_id",)
        assert root.spawn("a", name="one") == handle
        with pytest.raises(UnusableHandleError, match="'a', not 'b'"):
            root.spawn("b", name="one")


def test_the_id_of_a_fork_is_of_one_fork(plant: Plant, client: Client) -> None:
    w = plant(Agent("a", model=scripted("x")))
    run = client.start("a", "go")
    w.wakeups.publish(WakeUp(run_id=run.id, due="turn"))
    w.settle()
    assert client.fork(run.thread_id, new_thread_id="fork") == client.fork(run.thread_id, new_thread_id="fork")
    with pytest.raises(ForkRefusedError):
        client.fork(run.thread_id, run.id, 1, new_thread_id="fork")


def test_the_command_takes_a_run_id(monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str) -> None:
    monkeypatch.setenv("ADJOURN_DATABASE_URL", database_url)
    monkeypatch.setenv("ADJOURN_REDIS_URL", redis_url)
    monkeypatch.delenv("ADJOURN_BROKER_URL", raising=False)
    monkeypatch.setenv("ADJOURN_APP", "tests.flow.gate_app:app")
    told = [CliRunner().invoke(program, ["run", AGENT, said, "--run-id", "run_1", "--json"]) for said in ("go",) * 2]
    assert [json.loads(each.stdout)["id"] for each in told] == ["run_1", "run_1"]
    refused = CliRunner().invoke(program, ["run", AGENT, "stop", "--run-id", "run_1"])
    assert refused.exit_code != 0
    assert "another message" in refused.stderr


DAMAGE: Any = sa.text("update adjourn.items set body = '{' where seq = 1")
