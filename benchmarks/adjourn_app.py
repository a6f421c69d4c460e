"""The agents that Adjourn's workers run in the benchmark: one with a gate, and one that is only slow.

`adjourn worker --app benchmarks.adjourn_app:app` imports this in each worker process.
"""

from __future__ import annotations

import asyncio
import os
import time

from pydantic import BaseModel
from redis import Redis

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.models.scripted import call, say

LATENCIES_URL = "BENCH_LATENCIES_URL"
"""The variable that says where re-entries report how long their answer took."""
LATENCIES = "latencies"
UNTIMED = 0
"""In place of the time of an answer: nobody wants to know how long it took."""
CALLS = 200
SLOW_SECONDS = 1.0

_reports = Redis.from_url(os.environ[LATENCIES_URL]) if LATENCIES_URL in os.environ else None


class Ask(BaseModel):
    prompt: str


class Decision(BaseModel):
    approved: bool
    comment: str
    t: int
    """When the answer was sent: monotonic nanoseconds of this machine."""


class Sent(BaseModel):
    approved: bool
    comment: str


approval = WaitPoint("approval", suspend=Ask, resume=Decision)


@tool(wait_points=[approval])
def send_report(ctx: Context, summary: str) -> Sent:
    """Send the quarterly report."""
    decision = ctx.ask(approval, Ask(prompt=summary))
    if decision.t != UNTIMED and _reports is not None:
        _reports.rpush(LATENCIES, time.monotonic_ns() - decision.t)
    return Sent(approved=decision.approved, comment=decision.comment)


gated = ScriptedModel([call("send_report", summary="Q3 revenue is up 4%."), "Report sent."], strict=False)


class SlowModel:
    """Answers after `SLOW_SECONDS`, from the moment on at which `CALLS` calls have been in flight together.

    So that they are, however slowly the machine takes the runs on.
    """

    name = "slow"

    def __init__(self) -> None:
        self._waiting = 0
        self._together = asyncio.Event()

    async def request(self, request: ModelRequest) -> ModelResponse:
        self._waiting += 1
        if self._waiting == CALLS:
            self._together.set()
        await self._together.wait()
        await asyncio.sleep(SLOW_SECONDS)
        return say("Done.")


app = App(agents=[Agent("reporter", model=gated, tools=[send_report]), Agent("slow", model=SlowModel())])
