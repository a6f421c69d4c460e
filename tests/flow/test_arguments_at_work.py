"""Arguments that show what they do only in a run: on real servers, with tools, steps, handles and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from adjourn import (
    Agent,
    AnswerRefusedError,
    Client,
    Context,
    Question,
    RunIdClashError,
    Sequential,
    UnusableHandleError,
    WaitPoint,
    call,
    require_approval,
    say,
    tool,
)
from adjourn.worker.cli.program import app as program
from adjourn.worker.config.settings import Settings
from tests.flow.conftest import Plant
from tests.world import AGENT, Counters, World, scripted

MINUTE = timedelta(minutes=1)


class Verdict(BaseModel):
    approved: bool


point = WaitPoint("gate", suspend=str, resume=Verdict)
ada_only = WaitPoint("gate", suspend=str, resume=Verdict, answerers=["ada"])


@pytest.fixture
def settings(database_url: Any, redis_url: Any) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as made:
        yield made


# --- asks -------------------------------------------------------------------------------------------

ASKS: dict[str, tuple[Callable[[Context], Any], str]] = {
    "prompt": (lambda ctx: ctx.ask(point, "?", prompt=7), "prompt is 7"),  # type: ignore[call-overload]
    "prompt of a suspend": (lambda ctx: ctx.suspend(point, "?", prompt=7), "prompt is 7"),  # type: ignore[call-overload]
    "prompt of a request": (lambda ctx: ctx.request(prompt=7), "prompt is 7"),  # type: ignore[arg-type]
    "prompt of a question": (lambda ctx: ctx.ask_any(Question(point, "?", prompt=7)), "prompt is 7"),  # type: ignore[arg-type]
    "key": (lambda ctx: ctx.ask(point, "?", key=7), "key is 7"),  # type: ignore[call-overload]
    "key of a question": (lambda ctx: ctx.ask_any(Question(point, "?", key=7)), "key is 7"),  # type: ignore[arg-type]
    "key of an id": (lambda ctx: ctx.action_id(point, key=7), "key is 7"),  # type: ignore[arg-type]
    "kind": (lambda ctx: ctx.request(kind=7), "kind is 7"),  # type: ignore[arg-type]
    "reason": (lambda ctx: ctx.ask(reason=7, message="?", resume=bool), "reason is 7"),  # type: ignore[call-overload]
    "message": (lambda ctx: ctx.ask(reason="r", message=7, resume=bool), "message is 7"),  # type: ignore[call-overload]
    "point": (lambda ctx: ctx.ask(7, "?"), "7 is not a wait point"),  # type: ignore[call-overload]
    "key of a memo": (lambda ctx: ctx.run_once(7, str), "key is 7"),  # type: ignore[arg-type]
    "name of a step": (lambda ctx: ctx.step(7, str), "name is 7"),  # type: ignore[arg-type]
    "default": (lambda ctx: ctx.ask(point, "?", timeout=MINUTE, on_timeout="default"), "it has no default"),
}


@pytest.mark.parametrize("how", ASKS)
def test_an_ask_names_the_argument_that_it_cannot_take(plant: Plant, how: str) -> None:
    ask, said = ASKS[how]

    @tool(name="act", wait_points=[point])
    def act(ctx: Context) -> str:
        return str(ask(ctx))

    w = plant(Agent(AGENT, scripted(call("act"), say("done")), tools=[act]))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert (output.outcome, w.pending(run_id)) == ("error", [])
    assert said in output.content


def test_an_empty_prompt_is_a_prompt(plant: Plant) -> None:
    class Shown(BaseModel):
        prompt: str

    shown = WaitPoint("gate", suspend=Shown, resume=Verdict)

    @tool(name="act", wait_points=[shown])
    def act(ctx: Context) -> str:
        return str(ctx.ask(shown, Shown(prompt="of the data"), prompt=""))

    w = plant(Agent(AGENT, scripted(call("act"), say("done")), tools=[act]))
    assert w.the_action(w.start()).prompt == ""


def test_an_ask_takes_the_default_of_its_wait_point_by_name(plant: Plant) -> None:
    with_default = WaitPoint("gate", suspend=str, resume=Verdict, default=Verdict(approved=True))

    @tool(name="act", wait_points=[with_default])
    def act(ctx: Context) -> str:
        return str(ctx.ask(with_default, "?", timeout=MINUTE, on_timeout="default").approved)

    w = plant(Agent(AGENT, scripted(call("act"), say("done")), tools=[act]))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert w.outputs(run_id)[0].content == "True"


def test_the_deadline_of_a_demanded_approval_may_have_a_default(plant: Plant) -> None:
    @tool
    def act() -> str:
        return "acted"

    tuning = require_approval("act", timeout=MINUTE, default={"approved": True, "comment": "nobody minded"})
    w = plant(Agent(AGENT, scripted(call("act"), say("done")), tools=[act], policies=[tuning]))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert [output.content for output in w.outputs(run_id)] == ["acted"]


# --- steps ------------------------------------------------------------------------------------------


def looking(counters: Counters) -> Any:
    @tool(cacheable=True)
    def look(what: str) -> str:
        return f"{what} {counters.bump('look')}"

    return look


def test_a_cacheable_step_is_reused_for_equal_input_within_the_thread(plant: Plant, counters: Counters) -> None:
    look = looking(counters)

    @tool
    def back(text: str) -> str:
        return text.split(maxsplit=1)[0]

    w = plant(Sequential("twice", {"one": look, "between": back, "two": look}), look)
    first = w.start("whales", agent="twice", thread_id="thr_1")
    assert w.run(first).output == "whales 1"
    assert w.run(w.start("whales", agent="twice", thread_id="thr_1")).output == "whales 1"
    assert w.run(w.start("whales", agent="look", thread_id="thr_1")).output == "whales 1"
    assert counters["look"] == 1
    assert w.run(w.start("whales", agent="look", thread_id="thr_2")).output == "whales 2"
    assert w.run(w.start("crabs", agent="look", thread_id="thr_1")).output == "crabs 3"


def test_a_cacheable_step_reuses_what_a_model_has_called(plant: Plant, counters: Counters) -> None:
    look = looking(counters)
    asking = Agent(AGENT, scripted(call("look", what="whales"), say("whales")), tools=[look])
    w = plant(Sequential("steps", [asking, look]))
    assert w.run(w.start("go", agent="steps")).output == "whales 1"


# --- handles ----------------------------------------------------------------------------------------


def two_agents(plant: Plant, wait: WaitPoint[Any, Any] = point) -> World:
    @tool(name="act", wait_points=[wait])
    def act(ctx: Context) -> str:
        return str(ctx.ask(wait, "?", request_id="req-1").approved)

    return plant(*(Agent(name, scripted(call("act"), say("done")), tools=[act]) for name in ("a", "b")))


def test_a_handle_of_another_agent_is_refused_in_another_process_too(plant: Plant, client: Client) -> None:
    two_agents(plant)
    run = client.thread("root").spawn("a", name="one").send("go")
    for where in ({"name": "one"}, {"thread_id": "root:one"}):
        other = client.thread("root")
        for error in (RunIdClashError, UnusableHandleError):
            with pytest.raises(error, match=f"has run {run.id} for agent 'a', not 'b'") as refused:
                other.spawn("b", **where)
        assert (refused.value.run_id, refused.value.differing) == (run.id, ("agent",))  # type: ignore[attr-defined]
        assert other.spawn("a", **where) == client.thread("root:one") == run.thread


def test_a_handle_that_another_process_has_woken_for_another_agent_is_not_woken(plant: Plant, client: Client) -> None:
    two_agents(plant)
    mine, theirs = (client.thread("root").spawn(agent, name="one") for agent in "ab")
    theirs.send("go")
    with pytest.raises(RunIdClashError, match="for agent 'b', not 'a'"):
        mine.send("go")
    assert [run.agent for run in client.thread("root:one").state().runs] == ["b"]


@pytest.mark.parametrize("ok", [True, False])
def test_a_short_answer_is_from_somebody(plant: Plant, client: Client, ok: bool) -> None:
    w = two_agents(plant, ada_only)
    run_id = w.start(agent="a")
    answer: dict[str, Any] = {"id": "req-1", "ok": ok, **({"data": {"approved": True}} if ok else {})}
    for who in ({}, {"identity": "bob"}, {"credential": client.issue_credential("bob")}):
        with pytest.raises(AnswerRefusedError, match="forbidden"):
            client.resume(answer, **who)
    assert client.resume(**answer, identity="ada").status == "accepted"
    proof = client.issue_credential("ada")
    assert client.resume(answer, credential=proof).status == "duplicate"
    (state,) = [client.action(item.body.action_id) for item in w.items(run_id) if item.body.kind == "suspension"]
    assert state.resolution is not None
    assert state.resolution.answered_by == "ada"


WAYS: dict[str, Callable[[Any], Any]] = {
    "submit": lambda request: request.submit({"approved": True}, identity="ada", answer_id="mine"),
    "cancel": lambda request: request.cancel("no", identity="ada", answer_id="mine"),
    "fail": lambda request: request.fail("no", identity="ada", answer_id="mine"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_request_is_answered_as_somebody(plant: Plant, client: Client, way: str) -> None:
    w = two_agents(plant, ada_only)
    with client.thread() as root:
        handle = root.spawn("a")
        w.wakeups.publish(_turn(handle.send("go").id))
        w.settle()
        request = handle.snapshot().pending
        assert request is not None
        assert WAYS[way](request).status == "accepted"
        resolution = client.action(request.action_id).resolution
        assert resolution is not None
        assert (resolution.answered_by, resolution.answer_id) == ("ada", "mine")


def _turn(run_id: str) -> Any:
    from adjourn.schemas.records.runs import WakeUp

    return WakeUp(run_id=run_id, due="turn")


def test_a_run_is_not_cancelled_with_an_answer_id(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    w = two_agents(plant)
    run_id = w.start(agent="a")
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    refused = CliRunner().invoke(program, ["cancel", run_id, "--answer-id", "mine"])
    assert (refused.exit_code, w.run(run_id).status) == (2, "parked")
    assert CliRunner().invoke(program, ["cancel", w.the_action(run_id).id, "--answer-id", "mine"]).exit_code == 0
