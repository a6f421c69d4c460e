"""The app that the stored state of schema 0004 was made with: that of 0003, and more. It may not change.

An agent within a run that starts a child, and a model that cannot be asked.
"""

from __future__ import annotations

from adjourn import Agent, App, Parallel, ScriptedModel, call
from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from tests.golden.app_0002 import gate
from tests.golden.app_0003 import app as app_0003
from tests.golden.app_0003 import boss, heard


def away(request: ModelRequest) -> ModelResponse:
    """Cannot be asked."""
    raise ModelRequestError("away", "503", retryable=True)


host = Agent("host", ScriptedModel([call("boss", input="dig"), heard]), tools=[boss])
paused = Parallel("paused", {"gate": gate, "away": Agent("away", ScriptedModel([away]))})
app = App(blocks=[*app_0003.blocks.values(), host, paused])
