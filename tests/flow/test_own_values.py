"""What a body, a selector or a model is given is its own: whatever it does to it, all others are given what it was."""

from __future__ import annotations

import asyncio
import threading
from copy import deepcopy
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Limits, Parallel, Router, Sequential, WaitPoint, call, say, tool
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.store.scratch import move_clock
from tests.flow.conftest import Plant
from tests.world import World, scripted, world


class Ask(BaseModel):
    prompt: str


approval = WaitPoint("approval", suspend=Ask, resume=bool)


def agent(*tools: Any, says: list[Any], **options: Any) -> Agent:
    return Agent("agent", model=scripted(*says), tools=tools, **options)


# --- values --------------------------------------------------------------------------------------


def test_branches_that_change_their_input_are_each_given_it_whole_on_every_pass(plant: Plant) -> None:
    def branch(name: str) -> Any:
        @tool(name=name, wait_points=[approval])
        def body(ctx: Context, given: dict[str, Any]) -> str:
            seen = str(given)
            given["marks"].append(name)
            ctx.ask(approval, Ask(prompt=seen))
            return seen

        return body

    w = plant(Parallel("both", [branch("one"), branch("two")]))
    run_id = w.enqueue(agent="both", data={"marks": []}).run_id
    w.settle()
    for action in w.pending(run_id):
        w.answer(action, True)
    assert w.run(run_id).output == {"one": "{'marks': []}", "two": "{'marks': []}"}


@pytest.mark.parametrize("order", [("clears", "routes"), ("routes", "clears")])
def test_a_router_chooses_by_what_it_was_given_and_not_by_what_a_branch_beside_it_made_of_it(
    plant: Plant, order: tuple[str, str]
) -> None:
    @tool
    def clears(given: dict[str, Any]) -> str:
        given["items"].clear()
        return "cleared"

    @tool
    def big(given: dict[str, Any]) -> str:
        return "big"

    @tool
    def small(given: dict[str, Any]) -> str:
        return "small"

    @tool
    def makes(said: str) -> dict[str, Any]:
        return {"items": [said]}

    routes = Router("routes", [big, small], lambda given: "big" if given["items"] else "small")
    parts = {"clears": clears, "routes": Sequential("steps", [passes_on, routes])}
    w = plant(Sequential("all", [makes, Parallel("both", {name: parts[name] for name in order})]))
    assert w.run(w.start(agent="all")).output["routes"] == "big"


@tool
def passes_on(given: dict[str, Any]) -> dict[str, Any]:
    return given


def test_every_attempt_is_given_what_was_called(database_url: str, redis_url: str) -> None:
    ran: list[list[str]] = []

    @tool(retries=2)
    def pay(ctx: Context, to: list[str]) -> str:
        assert ctx.input.to == to
        ran.append([*to])
        to.append("mallory")
        if len(ran) < 3:
            raise OSError("the network")
        return "paid"

    with world(database_url, redis_url, pay, model=scripted(call("pay", to=["ada"]), "done")) as w:
        assert w.run(w.start()).status == "completed"
    assert ran == [["ada"]] * 3


def test_a_memo_is_given_out_as_it_was_recorded(database_url: str, redis_url: str) -> None:
    given: list[list[int]] = []

    @tool(retries=1)
    def counts(ctx: Context) -> str:
        numbers = ctx.run_once("numbers", lambda: [1])
        given.append([*numbers])
        numbers.append(2)
        if len(given) == 1:
            raise OSError("the network")
        return "counted"

    with world(database_url, redis_url, counts, model=scripted(call("counts"), "done")) as w:
        assert w.run(w.start()).status == "completed"
    assert given == [[1], [1]]


def test_a_model_that_changes_its_settings_changes_them_for_nobody_else(database_url: str, redis_url: str) -> None:
    seen: list[dict[str, Any]] = []

    class Pops:
        name = "pops"

        async def request(self, request: ModelRequest) -> ModelResponse:
            seen.append(deepcopy(request.settings))
            request.settings["stop"].append("!")
            return say("done")

    with world(database_url, redis_url, model=Pops(), model_settings={"stop": ["."]}) as w:
        w.start()
        w.start()
    assert seen == [{"stop": ["."]}] * 2


@pytest.mark.parametrize("instructions", [None, 3, b"Be brief."])
def test_instructions_that_are_no_text_are_refused(instructions: Any) -> None:
    with pytest.raises(DefinitionError, match="give text"):
        agent(says=["done"], instructions=instructions)


# --- asking inside what runs once ------------------------------------------------------------------


@pytest.mark.parametrize("style", ["step", "run_once", "suspend"])
def test_an_ask_inside_of_what_runs_once_is_refused_by_name(database_url: str, redis_url: str, style: str) -> None:
    ran: list[str] = []

    @tool(wait_points=[approval])
    def pay(ctx: Context) -> str:
        def asks() -> bool:
            if style == "suspend":
                ctx.suspend(approval, Ask(prompt="May I?"))
            return ctx.ask(approval, Ask(prompt="May I?"))

        (ctx.step if style == "step" else ctx.run_once)("check", asks)
        if ctx.ask(approval, Ask(prompt="May I?")):
            ran.append("paid")
        return "done"

    with world(database_url, redis_url, pay, model=scripted(call("pay"), "done")) as w:
        run_id = w.start()
        (output,) = w.outputs(run_id)
        assert (w.pending(run_id), ran) == ([], [])
    assert output.outcome == "error"
    assert "'approval' inside" in str(output.content)
    assert "check" in str(output.content)


def test_an_ask_beside_what_runs_once_is_none_inside_it(database_url: str, redis_url: str) -> None:
    @tool(wait_points=[approval])
    async def pay(ctx: Context) -> str:
        async def draft() -> str:
            return "draft"

        text = await ctx.run_once("draft", draft)
        return text if ctx.ask(approval, Ask(prompt=text)) else "kept"

    with world(database_url, redis_url, pay, model=scripted(call("pay"), "done")) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), True)
        assert w.outputs(run_id)[0].content == "draft"


# --- limits and slots ------------------------------------------------------------------------------


def test_the_time_limit_is_looked_at_before_each_exclusive_body(database_url: str, redis_url: str) -> None:
    ran: list[int] = []
    worlds: list[World] = []

    @tool(exclusive=True)
    def slow(n: int) -> int:
        ran.append(n)
        move_clock(worlds[0].db, 10)
        return n

    calls = say("", *(call("slow", n=n) for n in range(3)))
    with world(database_url, redis_url, slow, model=scripted(calls, "done")) as w:
        worlds.append(w)
        run = w.run(w.start(limits=Limits(seconds=5)))
    assert ran == [0]
    assert run.error is not None
    assert run.error.type == "LimitExceededError"


def test_nothing_begins_in_a_run_that_has_to_fail(plant: Plant) -> None:
    ran: list[str] = []

    @tool(exclusive=True)
    def late() -> str:
        ran.append("late")
        return "late"

    @tool(wait_points=[approval])
    def asks(ctx: Context) -> str:
        ctx.ask(approval, Ask(prompt=f"question {len(ran)}"))
        return "asked"

    both = say("", call("asks"), call("late"))
    w = plant(agent(asks, says=[call("asks"), both, "done"]))
    run_id = w.start()
    ran.append("changed")
    changed = agent(asks, late, says=[call("asks"), both, "done"])
    w.deploy(App(agents=[changed]))
    w.answer(w.the_action(run_id), True)
    ran.append("changed again")
    w.answer(w.the_action(run_id), True)
    assert w.run(run_id).status == "failed"
    assert ran == ["changed", "changed again"]


def test_a_run_that_is_given_back_waits_for_no_resolver(database_url: str, redis_url: str) -> None:
    asked = threading.Event()

    async def never(_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    @tool(wait_points=[approval], resolver=never)
    def asks(ctx: Context) -> str:
        return "yes" if ctx.ask(approval, Ask(prompt="May I?")) else "no"

    with world(database_url, redis_url, asks, model=scripted(call("asks"), "done"), tuning=Tuning()) as w:
        w.enqueue()
        driving = threading.Thread(target=w.settle)
        driving.start()
        assert asked.wait(30)
        w.services.leases.put_back_all()
        driving.join(30)
        assert not driving.is_alive()
        assert w.services.leases.count == 0
