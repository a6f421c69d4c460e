"""Two gated children, answered in reverse and at the same moment, again and again.

`ADJOURN_SIBLINGS=1000 pytest tests/flow/test_siblings.py` is the long way to do it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from adjourn import Agent, App, Context, SubAgent, WaitPoint, call, say, tool
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.execution.drive import drive
from tests.world import Counters, World, scripted

pytestmark = pytest.mark.timeout(900)
TIMES = int(os.environ.get("ADJOURN_SIBLINGS", "60"))
WAKES = sa.text("select revision from adjourn.runs where id = :run_id")
MODEL_CALLS = 6
"""Two of the parent, two of each child, interrupted or not."""


class Ask(BaseModel):
    prompt: str


approval = WaitPoint("approval", suspend=Ask, resume=str)


@tool(wait_points=[approval])
def send(ctx: Context, what: str) -> str:
    """Send it."""
    return f"{what} {ctx.ask(approval, Ask(prompt=what))}"


def task(request: ModelRequest) -> Any:
    return call("send", what=request.conversation[0].text)  # type: ignore[union-attr]


def result(request: ModelRequest) -> str:
    return str(request.conversation[-1].content)  # type: ignore[union-attr]


def results(request: ModelRequest) -> ModelResponse:
    return say("; ".join(str(turn.content) for turn in request.conversation if turn.kind == "result"))


def test_two_children_that_are_answered_at_the_same_moment_wake_their_parent_once(
    database_url: str, redis_url: str
) -> None:
    counters = Counters()
    digger = Agent("digger", scripted(task, result, counters=counters), tools=[send])
    calls = say("", call("digger", task="tin"), call("digger", task="gold"))
    boss = Agent("boss", scripted(calls, results, counters=counters), tools=[SubAgent(digger)])
    w = World(App(agents=[boss]), database_url, redis_url)
    try:
        with ThreadPoolExecutor(2) as both:
            for number in range(TIMES):
                run_id = w.start(agent="boss")
                asked = sorted(w.pending(), key=lambda action: str(action.input), reverse=True)
                at_once(both, [partial(w.answer, a, f"{number}", settle=False) for a in asked])
                due = [w.wakeups.waiting.popleft() for _ in asked]
                assert {wakeup.run_id for wakeup in due} == {action.origin.run_id for action in asked}
                at_once(both, [partial(drive, w.services, wakeup) for wakeup in due])
                assert [wakeup.run_id for wakeup in w.wakeups.waiting] == [run_id]
                assert w.db.one(WAKES, {"run_id": run_id}).revision == 1, "woken once, by the last of them"
                w.settle()
                run = w.run(run_id)
                assert (run.output, run.turns) == (f"tin {number}; gold {number}", MODEL_CALLS)
                assert counters["model"] == MODEL_CALLS * (number + 1)
    finally:
        w.close()


def at_once(pool: ThreadPoolExecutor, works: Sequence[Callable[[], Any]]) -> None:
    start = Barrier(len(works))

    def begin(work: Callable[[], Any]) -> Any:
        start.wait()
        return work()

    for done in [pool.submit(begin, work) for work in works]:
        done.result()
