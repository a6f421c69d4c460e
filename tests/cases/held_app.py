"""An app for worker processes whose tools stop at named places until the test lets them go on."""

from __future__ import annotations

from typing import Any

from adjourn import Agent, App, Context, ModelRequest, ScriptedModel, tool
from adjourn.tasks.models.scripted import call, say
from tests.cases.tools import Done, Question, Verdict, q
from tests.effects import Effects

effects = Effects.of_this_process()


@tool
def a() -> str:
    """Done at once."""
    effects.note("a")
    return "a"


@tool
def b() -> str:
    """Held before it is done."""
    effects.hold("in-b")
    effects.note("b")
    return "b"


@tool
async def b_async() -> str:
    """Held before it is done, on the loop."""
    await effects.hold_async("in-b")
    effects.note("b")
    return "b"


@tool(wait_points=[q])
def ask(ctx: Context, x: int) -> Done:
    """Ask, then act. Held before it acts."""
    verdict: Verdict = ctx.ask(q, Question(prompt=f"May {x} be?"))
    effects.hold("behind-gate")
    if verdict.approved:
        effects.note("fx")
    return Done(x=x, note=verdict.note)


def asked(request: ModelRequest) -> None:
    effects.note("model")


def agent(name: str, *steps: Any) -> Agent:
    return Agent(name, model=ScriptedModel(steps, on_request=asked), tools=[a, b, b_async, ask])


app = App(
    agents=[
        agent("plain", [call("a"), call("b")], say("done")),
        agent("plain_async", [call("a"), call("b_async")], say("done")),
        agent("asker", call("ask", x=1), say("done")),
        agent("mixed", [call("a"), call("ask", x=1)], say("done")),
        agent("three", [call("ask", x=x) for x in (1, 2, 3)], say("done")),
    ]
)
