"""The app of two builds that run side by side: `TEST_BUILD` says which of them a process is."""

from __future__ import annotations

import os

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, tool
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


def agent(name: str) -> Agent:
    return Agent(name, model=ScriptedModel([call("ask"), say("done")]), tools=[ask])


app = App(agents=[agent("both"), agent(f"only_{BUILD}")], build=BUILD)
