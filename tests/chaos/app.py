"""The agents of the chaos. Each tool and model writes down what it does; the models are strict."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from datetime import timedelta
from typing import Final

from adjourn import Agent, App, Context, ScriptedModel, WaitPoint, call, say, tool
from adjourn.schemas.records.entries import Resume
from adjourn.schemas.records.messages import RequestedCall
from tests.chaos.ledger import WITHOUT, note, note_models
from tests.crash.mutations import MUTATIONS
from tests.crash.tools import Ask, Reply, entry, first, second, third

# So that whoever waits in vain can be made to say where it hangs.
faulthandler.register(signal.SIGUSR1, all_threads=True)

if missing := os.environ.get(WITHOUT):
    MUTATIONS[missing].apply()

WORK_SECONDS: Final = 0.1
"""What models and tools take: long enough to be killed inside of."""


gate = WaitPoint("gate", suspend=Ask, resume=Reply, timeout=timedelta(days=1))


def _work() -> None:
    threading.Event().wait(WORK_SECONDS)


def _ask(ctx: Context, point: WaitPoint[Ask, Reply]) -> str:
    value = ctx.ask(point, Ask(prompt=f"{point.name}?")).value
    note(ctx, "answer", point.name, value)
    return value


@tool
def plain(ctx: Context) -> str:
    """Do something."""
    note(ctx, "body", "plain")
    _work()
    note(ctx, "effect", "plain")
    return "did it"


@tool(wait_points=[gate])
def gated(ctx: Context, x: int) -> str:
    """Ask, then do something."""
    note(ctx, "body", "gated")
    value = _ask(ctx, gate)
    _work()
    note(ctx, "effect", "gated")
    return f"{x}: {value}"


@tool(wait_points=[first, second, third])
async def chain(ctx: Context) -> list[str]:
    """Ask three times, each with the answers before."""
    note(ctx, "body", "chain")
    values = [_ask(ctx, point) for point in (first, second, third)]
    await asyncio.sleep(WORK_SECONDS)
    note(ctx, "effect", "chain")
    return values


@tool(wait_points=[entry])
def staged(ctx: Context) -> str:
    """Ask in the entry style."""
    note(ctx, "body", "staged")
    if not isinstance(ctx.entry, Resume):
        ctx.suspend(entry, Ask(prompt="entry?"))
    note(ctx, "answer", "entry", ctx.entry.resume.value)
    note(ctx, "effect", "staged")
    return str(ctx.entry.resume.value)


@tool(wait_points=[gate])
def once(ctx: Context) -> str:
    """Charge once, ask, and go on with what was charged."""
    note(ctx, "body", "once")

    def charge() -> str:
        note(ctx, "once", "charge")
        return "charged"

    charged = ctx.run_once("charge", charge)
    value = _ask(ctx, gate)
    note(ctx, "effect", "once")
    return f"{charged} {value}"


def calling(*calls: RequestedCall) -> ScriptedModel:
    """A model that makes these calls, and then ends."""
    return ScriptedModel([say("", *calls), say("done")], delay=WORK_SECONDS)


note_models()
app = App(
    agents=[
        Agent("gate", model=calling(call("gated", x=1)), tools=[gated]),
        Agent(
            "gates",
            model=calling(call("plain"), *(call("gated", x=x) for x in (1, 2, 3))),
            tools=[plain, gated],
        ),
        Agent("chain", model=calling(call("chain")), tools=[chain]),
        Agent("mixed", model=calling(call("staged"), call("once")), tools=[staged, once]),
    ]
)
