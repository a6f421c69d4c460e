"""No entry, fold or field is lost without a word: in outputs, suspend data, memos, defaults and what a client gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from adjourn import Agent, Client, Context, DefinitionError, WaitPoint, call, say, tool
from adjourn.schemas.errors import AdjournError
from tests.flow.conftest import Plant
from tests.unit.test_odd_arguments import THREAD_START
from tests.world import AGENT, Counters, scripted

TWO: Any = {1: "i", "1": "s"}
FOLDED = datetime(2026, 10, 25, 2, 30, fold=1)


@dataclasses.dataclass
class Sum:
    parts: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


def changed() -> Sum:
    made = Sum([1, 2])
    made.total = 99
    return made


LOSSY: dict[str, tuple[Any, Any, str]] = {
    "keys": (dict[int | str, str], TWO, "/1"),
    "keys in a list": (list[dict[int | str, str]], [TWO], "/0/1"),
    "keys of anything": (Any, {"a": [TWO]}, "/a/0/1"),
    "fold": (datetime, FOLDED, "fold=1"),
    "fold in a list": (list[datetime], [FOLDED], "/0"),
    "field": (Sum, changed(), "/total"),
    "field in a list": (list[Sum], [changed()], "/0/total"),
}


@pytest.mark.parametrize("what", LOSSY)
@pytest.mark.parametrize("way", ["ask", "suspend", "request", "run_once", "step"])
def test_what_would_lose_something_is_refused_at_its_path(plant: Plant, way: str, what: str) -> None:
    type_, value, path = LOSSY[what]
    point: WaitPoint[Any, Any] = WaitPoint("gate", suspend=type_, resume=bool)
    ways: dict[str, Callable[[Context], Any]] = {
        "ask": lambda ctx: ctx.ask(point, value),
        "suspend": lambda ctx: ctx.suspend(point, value),
        "request": lambda ctx: ctx.request(data={"value": value}),
        "run_once": lambda ctx: ctx.run_once("key", lambda: value, returns=type_),
        "step": lambda ctx: ctx.step("name", lambda: value, returns=type_),
    }

    @tool(name="act", wait_points=[point])
    def act(ctx: Context) -> str:
        return str(ways[way](ctx))

    w = plant(Agent(AGENT, scripted(call("act"), say("done")), tools=[act]))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert (output.outcome, w.pending(run_id)) == ("error", [])
    assert ("/value" if way == "request" else path) in output.content


def test_a_default_that_would_lose_something_is_refused_where_it_is_made() -> None:
    for type_, value, path in LOSSY.values():
        with pytest.raises(DefinitionError) as refused:
            WaitPoint("gate", suspend=str, resume=type_, timeout=timedelta(1), default=value)
        assert path in str(refused.value)


@pytest.mark.parametrize("value", [TWO, [TWO], FOLDED, {"a": FOLDED}, changed(), [changed()]])
def test_a_client_is_told_of_what_would_be_lost(value: Any) -> None:
    with Client(THREAD_START) as client:
        for way in (lambda: client.submit("act_1", value), lambda: client.start("agent", value)):
            with pytest.raises(AdjournError, match=r"same text in JSON|fold=1|/total"):
                way()


def test_an_output_keeps_both_entries_and_the_tool_is_not_run_again(plant: Plant, counters: Counters) -> None:
    @tool(name="send")
    def send() -> dict[int | str, str]:
        counters.bump("sent")
        return {1: "i", "1": "s"}

    @tool(name="add")
    def add() -> Sum:
        return Sum([1, 2])

    w = plant(Agent(AGENT, scripted([call("send"), call("add")], say("done")), tools=[send, add]))
    run_id = w.start()
    contents = {output.tool: (output.outcome, output.content) for output in w.outputs(run_id)}
    assert contents == {
        "send": ("success", {"1": "s", "1~2": "i"}),
        "add": ("success", {"parts": [1, 2], "total": 3}),
    }
    assert counters["sent"] == 1
