"""The app that the stored state of schema 0003 was made with: that of 0002, and a sub-agent. It may not change."""

from __future__ import annotations

from adjourn import Agent, App, ScriptedModel, SubAgent, call
from adjourn.schemas.records.messages import ModelRequest
from tests.golden.app_0002 import app as app_0002
from tests.golden.app_0002 import gate


def heard(request: ModelRequest) -> str:
    """What was told last."""
    return str(getattr(request.conversation[-1], "content", "nothing"))


digger = Agent("digger", ScriptedModel([call("gate", text="gold"), heard]), tools=[gate])
boss = Agent("boss", ScriptedModel([call("digger", task="dig", key="k"), heard]), tools=[SubAgent(digger)])
app = App(blocks=[*app_0002.blocks.values(), boss])
