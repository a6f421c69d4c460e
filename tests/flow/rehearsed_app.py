"""An app for the tests of the test helpers. `sent` counts in memory, which a fresh process has not."""

from __future__ import annotations

import os
from datetime import timedelta

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, call, say, tool


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool


first = WaitPoint("first", suspend=Ask, resume=Approval, timeout=timedelta(days=7), on_timeout="error")
second = WaitPoint("second", suspend=Ask, resume=Approval)
effects: list[str] = []


@tool(wait_points=[first, second], retries=2)
def send(ctx: Context, what: str) -> str:
    """Ask two people, and send."""
    draft = ctx.run_once("draft", lambda: effects.append("draft") or f"draft of {what}")
    for point in (first, second):
        if not ctx.ask(point, Ask(prompt=f"{point.name}: {draft}?")).approved:
            return "not sent"
    effects.append(f"sent with {ctx.idempotency_key}")
    return f"sent {draft}"


@tool
def passes() -> int:
    """How often this process has run this body."""
    effects.append("pass")
    return effects.count("pass")


@tool
def die() -> None:
    """Take the worker along."""
    os._exit(1)


def sending(what: str, *, last: str = "Done.") -> ScriptedModel:
    return ScriptedModel([call("send", what=what), say(last)])


app = App(agents=[Agent("sender", model=sending("Q3"), tools=[send, passes, die])])
provided = App(agents=[Agent("sender", model="openai:gpt-5.4-mini", tools=[send])])
