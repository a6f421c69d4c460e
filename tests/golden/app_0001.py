"""The app that the stored state of schema 0001 was made with. It may not change: old runs are resumed with it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from adjourn import Agent, App, Context, Resume, ScriptedModel, WaitPoint, call, client_tool, say, tool


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Ask(BaseModel):
    prompt: str
    level: Level
    due: date
    shares: dict[int, Decimal]


class Approval(BaseModel):
    approved: bool
    comment: str | None = None


class File(BaseModel):
    file_id: str


approval = WaitPoint("approval", suspend=Ask, resume=Approval)
second = WaitPoint("second", suspend=Ask, resume=Approval)
ASKED = Ask(prompt="Go on?", level=Level.HIGH, due=date(2026, 1, 31), shares={1: Decimal("0.50")})


@tool(wait_points=[approval, second])
def inline(ctx: Context) -> str:
    """Two inline waits, and something done once."""
    once = ctx.run_once("made", lambda: "made before the wait")
    first = ctx.ask(approval, ASKED)
    then = ctx.ask(second, ASKED)
    return f"{once}, {first.comment}, {then.comment}"


@tool(wait_points=[approval, second])
def entry(ctx: Context) -> str:
    """Two entry-style waits."""
    if not isinstance(ctx.entry, Resume):
        ctx.suspend(approval, ASKED)
    if ctx.entry.name == "approval":
        ctx.suspend(second, ASKED)
    first, then = ctx.suspend_history
    assert first.input == ASKED
    assert type(first.input.level) is Level
    return f"{first.resume.comment}, {then.resume.comment}"


@tool(repeatable=False)
def once_only() -> str:
    """Never run twice."""
    return "done"


@tool
def plain(n: int) -> int:
    """No wait."""
    return n + 1


pick = client_tool("pick", description="Pick a file.", input=Ask, output=File)

AGENTS = {
    "inline": [[call("plain", n=1), call("inline")], say("inline is done")],
    "entry": [call("entry"), say("entry is done")],
    "client": [
        call("pick", prompt="Which?", level="low", due="2026-01-31", shares={"2": "1.5"}),
        say("client is done"),
    ],
    "once": [call("once_only"), say("once is done")],
}
app = App(
    agents=[
        Agent(name, model=ScriptedModel(script), tools=[inline, entry, once_only, plain, pick])
        for name, script in AGENTS.items()
    ]
)
