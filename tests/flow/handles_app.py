"""The app of `test_handles_across_restarts`, for worker processes and for worlds in the test's own process."""

from __future__ import annotations

from pydantic import BaseModel

from adjourn import Agent, App, Context, ScriptedModel, SubAgent, WaitPoint, call, tool
from adjourn.schemas.records.messages import ModelRequest, ResultTurn

PROMPT = "approve the secret action?"


class Ask(BaseModel):
    prompt: str


class Answered(BaseModel):
    by: str


signature = WaitPoint("signature", suspend=Ask, resume=Answered)


@tool
def secret_action(ctx: Context) -> str:
    """Does something that needs approval."""
    if ctx.answer is None:
        ctx.request(id="req-1", kind="authorization", prompt=PROMPT, data={"amount": 7})
    return "action performed"


@tool(wait_points=[signature])
def sign(ctx: Context, page: int) -> str:
    """Has a page signed."""
    return f"{page}: {ctx.ask(signature, Ask(prompt=f'sign {page}?')).by}"


def results(request: ModelRequest) -> str:
    """What the tools of the last turn came to, word for word."""
    turns = [turn for turn in request.conversation if isinstance(turn, ResultTurn)]
    return ", ".join(str(turn.content) for turn in turns)


approver = Agent("approver", ScriptedModel([call("secret_action"), results]), tools=[secret_action])
middle = Agent("middle", ScriptedModel([call("approver", task="go", key="k"), results]), tools=[SubAgent(approver)])

app = App(
    agents=[
        approver,
        Agent("boss", ScriptedModel([call("middle", task="go", key="k"), results]), tools=[SubAgent(middle)]),
        Agent("signer", ScriptedModel([[call("sign", page=1), call("sign", page=2)], results]), tools=[sign]),
    ]
)
