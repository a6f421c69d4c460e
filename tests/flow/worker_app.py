"""The app that worker processes of the tests run: agents whose tools ask, linger, leave, and kill their process."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
from adjourn.tasks.models.scripted import call, say
from tests.waiting import wait_until


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
def linger(ctx: Context) -> str:
    """Take as long as it takes for a file to be there; say that it has begun with another."""
    folder = Path(os.environ["LINGER_IN"])
    (folder / "begun").touch()
    wait_until((folder / "enough").exists)
    return "at last"


@tool
def leave(ctx: Context) -> str:
    """Raise what ends a thread."""
    raise SystemExit(1)


@tool
def die(ctx: Context) -> str:
    """Take the worker along, every time."""
    os._exit(1)


app = App(
    agents=[
        Agent("asker", model=ScriptedModel([call("ask", x=7), say("done")]), tools=[ask]),
        Agent("lingerer", model=ScriptedModel([call("linger"), say("done")]), tools=[linger]),
        Agent("leaver", model=ScriptedModel([call("leave"), say("done")]), tools=[leave]),
        Agent("killer", model=ScriptedModel([call("die"), say("never")]), tools=[die]),
    ]
)
