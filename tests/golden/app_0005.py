"""The app that the stored state of schema 0005 was made with: that of 0004, and more. It may not change.

A tool that takes the first of two answers, a call that a person has edited, and a question with a time in it.
"""

from __future__ import annotations

from pydantic import BaseModel

from adjourn import Agent, App, Context, Question, ScriptedModel, WaitPoint, call, require_approval, tool
from tests.golden.app_0003 import heard
from tests.golden.app_0004 import app as app_0004


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool
    comment: str | None = None


manager = WaitPoint("manager", suspend=Ask, resume=Verdict)
deputy = WaitPoint("deputy", suspend=Ask, resume=Verdict)


@tool(wait_points=[manager, deputy])
def either(ctx: Context) -> str:
    """Take the first of two answers."""
    at = ctx.now().isoformat()
    first = ctx.ask_any(Question(manager, Ask(prompt=f"At {at}?")), Question(deputy, Ask(prompt=f"At {at}?")))
    return f"{first.question.point.name}: {first.answer.comment}"


@tool
def pay(ctx: Context, amount: int, to: str = "me") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


first = Agent("first", ScriptedModel([call("either"), heard]), tools=[either])
edited = Agent(
    "edited", ScriptedModel([call("pay", amount=5), heard]), tools=[pay], policies=[require_approval("pay", edit=True)]
)
app = App(blocks=[*app_0004.blocks.values(), first, edited])
