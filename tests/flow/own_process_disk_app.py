"""The app of a worker whose files a deploy replaces: `TEST_DISK` says what a process that starts now finds there."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from adjourn import Agent, App, Context, Tool, WaitPoint, call, say, tool
from adjourn.schemas.records.runs import Run
from tests.effects import Effects
from tests.world import scripted

DISK = "TEST_DISK"
disk = os.environ.get(DISK, "as it was")

if disk == "cannot be imported":
    raise ImportError("half of a deploy")
if disk == "ends the process":
    os._exit(3)


class Ask(BaseModel):
    prompt: str


class Yes(BaseModel):
    approved: bool


class YesAndWhy(Yes):
    why: str


question = WaitPoint("q", suspend=Ask, resume=YesAndWhy if disk == "another wait point" else Yes)


def work(ctx: Context, x: int) -> str:
    """Work on it once somebody has said yes."""
    Effects.of_this_process().note("body")
    return f"{x}: {ctx.ask(question, Ask(prompt='?')).approved}"


def work_on_text(ctx: Context, x: str) -> str:
    """Take another input."""
    return x


def _work() -> Tool[..., Any]:
    function = work_on_text if disk == "another input" else work
    version = "2" if disk == "another version" else "1"
    return tool(name="work", own_process=True, wait_points=[question], version=version, repeatable=False)(function)


def tools_of(run: Run) -> list[Tool[..., Any]]:
    """The tools of any run."""
    if disk == "cannot say its tools":
        raise RuntimeError("no database of tools here")
    return [] if disk == "no such tool" else [_work()]


app = App(
    agents=[]
    if disk == "no such agent"
    else [Agent("agent", model=scripted(call("work", x=1), say("done")), tools=tools_of)]
)
