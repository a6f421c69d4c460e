"""The agents of the recovery measurements: one that asks, one whose model and tool take a while."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, call, tool

THINKING_SECONDS = 2.0


class Ask(BaseModel):
    prompt: str


class Decision(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Decision)


@tool(wait_points=[approval])
def send(ctx: Context) -> bool:
    """Ask, then do it."""
    return ctx.ask(approval, Ask(prompt="Send?")).approved


@tool
async def work(ctx: Context) -> str:
    """Take a while."""
    await asyncio.sleep(THINKING_SECONDS)
    return "worked"


app = App(
    agents=[
        Agent("asker", model=ScriptedModel([call("send"), "done"]), tools=[send]),
        Agent("worker", model=ScriptedModel([call("work"), "done"]), tools=[work]),
    ]
)
