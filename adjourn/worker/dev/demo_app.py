"""The app of `adjourn demo`: an agent whose one tool asks a person before it acts. Needs no network."""

from __future__ import annotations

import os
from datetime import timedelta

from pydantic import BaseModel

from adjourn import Agent, App, Context, ModelRequest, ResultTurn, ScriptedModel, WaitPoint, call, tool

AGENT = "reporter"


class Ask(BaseModel):
    """What the person is shown."""

    prompt: str


class Approval(BaseModel):
    """What the person answers."""

    approved: bool
    comment: str | None = None


class Sent(BaseModel):
    """What came of it, and which process did it."""

    sent: bool
    comment: str | None
    worker: int


approval = WaitPoint("approval", suspend=Ask, resume=Approval, timeout=timedelta(days=7), on_timeout="error")


@tool(wait_points=[approval])
def send_report(ctx: Context, summary: str) -> Sent:
    """Send the quarterly report."""
    decision = ctx.ask(approval, Ask(prompt=f"Send {summary!r} to the board?"))
    return Sent(sent=decision.approved, comment=decision.comment, worker=os.getpid())


def _closing(request: ModelRequest) -> str:
    result = request.conversation[-1]
    sent = (
        Sent.model_validate(result.content) if isinstance(result, ResultTurn) and result.outcome == "success" else None
    )
    if sent is None or not sent.sent:
        return "The report was not sent."
    return f"The report is sent, by worker {sent.worker}. The approval said: {sent.comment}"


script = ScriptedModel([call("send_report", summary="Q3: revenue up 4 %"), _closing])
app = App(agents=[Agent(AGENT, model=script, instructions="Send reports when asked to.", tools=[send_report])])
