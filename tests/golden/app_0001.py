"""The app that the stored state of schema 0001 was made with. It may not change: old runs are resumed with it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from adjourn import (
    Agent,
    App,
    Context,
    ModelRequest,
    ModelResponse,
    Parallel,
    Question,
    Resume,
    Router,
    ScriptedModel,
    Sequential,
    SubAgent,
    WaitPoint,
    call,
    client_tool,
    require_approval,
    say,
    tool,
)
from adjourn.schemas.errors import ModelRequestError


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
simple = [
    Agent(name, model=ScriptedModel(script), tools=[inline, entry, once_only, plain, pick])
    for name, script in AGENTS.items()
]


# --- blocks of blocks, and an approval


@tool
def draft(text: str) -> str:
    """No wait."""
    return f"draft of {text}"


@tool(wait_points=[approval])
def gate(ctx: Context, text: str) -> str:
    """One wait."""
    return f"{text}, {ctx.ask(approval, ASKED).comment}"


sequence = Sequential("sequence", [draft, gate])
router = Router("router", {"gated": sequence, "plain": draft}, lambda text: "gated" if "risk" in text else "plain")
parallel = Parallel("parallel", {"left": gate, "right": gate})
guarded = Agent(
    "guarded",
    ScriptedModel([call("plain", n=1), "guarded is done"]),
    tools=[plain],
    policies=[require_approval("plain")],
)


# --- sub-agents


def heard(request: ModelRequest) -> str:
    """What was told last."""
    return str(getattr(request.conversation[-1], "content", "nothing"))


digger = Agent("digger", ScriptedModel([call("gate", text="gold"), heard]), tools=[gate])
boss = Agent("boss", ScriptedModel([call("digger", task="dig", key="k"), heard]), tools=[SubAgent(digger)])


# --- an agent within a run that starts a child, and a model that cannot be asked


def away(request: ModelRequest) -> ModelResponse:
    """Cannot be asked."""
    raise ModelRequestError("away", "503", retryable=True)


host = Agent("host", ScriptedModel([call("boss", input="dig"), heard]), tools=[boss])
paused = Parallel("paused", {"gate": gate, "away": Agent("away", ScriptedModel([away]))})


# --- the first of two answers, and a call that a person has edited


class Matter(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool
    comment: str | None = None


manager = WaitPoint("manager", suspend=Matter, resume=Verdict)
deputy = WaitPoint("deputy", suspend=Matter, resume=Verdict)


@tool(wait_points=[manager, deputy])
def either(ctx: Context) -> str:
    """Take the first of two answers."""
    at = ctx.now().isoformat()
    first = ctx.ask_any(Question(manager, Matter(prompt=f"At {at}?")), Question(deputy, Matter(prompt=f"At {at}?")))
    return f"{first.question.point.name}: {first.answer.comment}"


@tool
def pay(ctx: Context, amount: int, to: str = "me") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


first = Agent("first", ScriptedModel([call("either"), heard]), tools=[either])
edited = Agent(
    "edited", ScriptedModel([call("pay", amount=5), heard]), tools=[pay], policies=[require_approval("pay", edit=True)]
)

app = App(agents=simple, blocks=[sequence, router, parallel, guarded, boss, host, paused, first, edited])
