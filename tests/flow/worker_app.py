"""The app that worker processes of the tests run: one agent whose tool asks, one that kills its process."""

from __future__ import annotations

import os

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
from adjourn.tasks.models.scripted import call, say


class Question(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool
    note: str | None = None


question = WaitPoint("q", suspend=Question, resume=Verdict)


@tool(wait_points=[question])
def ask(ctx: Context, x: int) -> dict[str, str | int | None]:
    """Ask whether x may be."""
    verdict = ctx.ask(question, Question(prompt=f"May {x} be?"))
    return {"x": x, "note": verdict.note}


@tool
def die(ctx: Context) -> str:
    """Take the worker along, every time."""
    os._exit(1)


app = App(
    agents=[
        Agent("asker", model=ScriptedModel([call("ask", x=7), say("done")]), tools=[ask]),
        Agent("killer", model=ScriptedModel([call("die"), say("never")]), tools=[die]),
    ]
)
