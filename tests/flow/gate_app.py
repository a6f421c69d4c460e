"""The app that worker processes and clients of these tests share: one agent with one gated tool."""

from __future__ import annotations

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
from adjourn.tasks.models.scripted import call

AGENT = "gatekeeper"
GUARDED = "guarded"
ASKING = "ask"


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool
    note: str | None = None


gate = WaitPoint("gate", suspend=Ask, resume=Approval)
alice_only = WaitPoint("alice", suspend=Ask, resume=Approval, answerers=["alice"])


@tool(wait_points=[gate])
def ask(ctx: Context, x: int) -> str:
    """Ask whether to go on."""
    return f"approved: {ctx.ask(gate, Ask(prompt=f'Go on with {x}?')).approved}"


@tool(wait_points=[alice_only])
def ask_alice(ctx: Context) -> bool:
    """Ask alice."""
    return ctx.ask(alice_only, Ask(prompt="Alice?")).approved


app = App(
    blocks=[ask],
    agents=[
        Agent(AGENT, model=ScriptedModel([call("ask", x=1), "done"]), tools=[ask]),
        Agent(GUARDED, model=ScriptedModel([call("ask_alice"), "done"]), tools=[ask_alice]),
    ],
)
