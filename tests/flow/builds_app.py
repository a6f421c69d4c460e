"""The app of two builds that run side by side: `TEST_BUILD` says which of them a process is."""

from __future__ import annotations

import os
from typing import Any

from adjourn import Agent, App, Context, ScriptedModel, Tool, WaitPoint, tool
from adjourn.tasks.models.scripted import call, say
from tests.cases.tools import Question, Verdict
from tests.effects import Effects

effects = Effects.of_this_process()
BUILD = os.environ["TEST_BUILD"]
IS_NEW = BUILD == "new"
q = WaitPoint("q", suspend=Question, resume=Verdict)


@tool(wait_points=[q], version="2" if IS_NEW else "1", resumes_from=["1"] if IS_NEW else [])
def ask(ctx: Context) -> bool:
    """Ask."""
    effects.note(f"ask_{BUILD}")
    return ctx.ask(q, Question(prompt="May it be?")).approved


@tool
def die_once(ctx: Context) -> str:
    """Take the first process along, and work in the next."""
    effects.note("die_once")
    if effects.count("die_once") == 1:
        os._exit(1)
    return "survived"


@tool
def held(ctx: Context) -> str:
    """Work until the test says that it is enough."""
    effects.hold("held")
    return "held"


def agent(name: str, tool: Tool[..., Any] = ask) -> Agent:
    return Agent(name, model=ScriptedModel([call(tool.name), say("done")]), tools=[tool])


own = [agent(f"only_{BUILD}"), agent(f"dies_{BUILD}", die_once), agent(f"holds_{BUILD}", held)]
app = App(agents=[agent("both"), *own], build=BUILD)
