"""The app that the stored state of schema 0002 was made with: that of 0001, and blocks. It may not change."""

from __future__ import annotations

from adjourn import Agent, App, Context, Parallel, Router, ScriptedModel, Sequential, call, require_approval, tool
from tests.golden.app_0001 import ASKED, approval, plain
from tests.golden.app_0001 import app as app_0001


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
app = App(blocks=[*app_0001.blocks.values(), sequence, router, parallel, guarded])
