"""The agent of the first page, on the small model: it drafts a report, and a person decides whether it goes out."""

from __future__ import annotations

from pydantic import BaseModel
from small_model import model

from adjourn import Agent, App, Context, WaitPoint, tool


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool
    comment: str | None = None


class Sent(BaseModel):
    sent: bool
    note: str | None = None


approval = WaitPoint("approval", suspend=Ask, resume=Approval)


@tool(wait_points=[approval])
def send_report(ctx: Context, summary: str) -> Sent:
    """Send the report to the board."""
    decision = ctx.ask(approval, Ask(prompt=f"Send {summary!r}?"))
    if not decision.approved:
        return Sent(sent=False, note=decision.comment)
    return Sent(sent=True, note="sent to the board")


app = App(agents=[Agent("reporter", model=model, instructions="You are a helpful assistant.", tools=[send_report])])
