"""The app of the worker processes of `tests.deployment`. Its tools note what they do where the test can read it."""

from __future__ import annotations

import gc
import os
import threading
from asyncio import TimerHandle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import redis.asyncio
from kombu.asynchronous.timer import Entry

from adjourn import Agent, App, Context, Limits, ScriptedModel, SubAgent, WaitPoint, tool
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, RequestedCall, ResultTurn, UserTurn
from adjourn.tasks.models.scripted import call, say
from tests.cases.tools import Question, Verdict
from tests.effects import Effects
from tests.odd_errors import ODD_ERRORS

effects = Effects.of_this_process()
q = WaitPoint("q", suspend=Question, resume=Verdict)


# --- asks, then acts -----------------------------------------------------------------------------


@tool(wait_points=[q])
def ask(ctx: Context, x: int) -> dict[str, Any]:
    """Ask, then act."""
    effects.note("ask")
    verdict = ctx.ask(q, Question(prompt=f"May {x} be?"))
    if verdict.approved:
        effects.note("fx")
    return {"x": x, "note": verdict.note}


# --- one tool that finishes, one that is held ------------------------------------------------------


@tool
def first(ctx: Context) -> str:
    """Finish at once."""
    effects.note("first")
    return "first"


@tool
def second(ctx: Context) -> str:
    """Finish when the test says so."""
    effects.hold("second")
    return "second"


# --- tools that break something --------------------------------------------------------------------


@tool
def die(ctx: Context) -> str:
    """Take the process along."""
    effects.note("die")
    os._exit(1)


def _said(request: ModelRequest) -> str:
    return next(turn.text for turn in reversed(request.conversation) if isinstance(turn, UserTurn))


def _odd(request: ModelRequest) -> RequestedCall:
    kind, _, name = _said(request).partition(" ")
    return call(kind, name=name)


@tool
def odd(ctx: Context, name: str) -> str:
    """Raise an odd error."""
    raise ODD_ERRORS[name]()


@tool
async def odd_async(ctx: Context, name: str) -> str:
    """Raise an odd error on the loop."""
    raise ODD_ERRORS[name]()


# --- one pooled client for all turns -----------------------------------------------------------------

pool = redis.asyncio.from_url(os.environ["ADJOURN_REDIS_URL"], max_connections=1)


@tool
async def pooled(ctx: Context) -> int:
    """Use the one connection of a pool that belongs to the loop on which it was first used."""
    return int(await pool.incr("pooled"))


# --- deadlines -----------------------------------------------------------------------------------------


def timed(seconds: int) -> Agent:
    point = WaitPoint("q", suspend=Question, resume=Verdict, timeout=timedelta(seconds=seconds), on_timeout="error")

    @tool(name="timed", wait_points=[point])
    def body(ctx: Context) -> bool:
        """Ask, for a while."""
        return ctx.ask(point, Question(prompt=f"{seconds} s?")).approved

    return Agent(f"timed{seconds}", model=ScriptedModel([call("timed"), say("done")]), tools=[body])


# --- what a process holds ------------------------------------------------------------------------------


@tool(exclusive=True)
def census(ctx: Context) -> dict[str, int]:
    """Threads of this process, and timers that somebody has set in it."""
    gc.collect()
    return {
        "threads": threading.active_count(),
        "timers": sum(_is_set_timer(each) for each in gc.get_objects()),
    }


def _is_set_timer(each: object) -> bool:
    if isinstance(each, TimerHandle | Entry):
        return not (each.cancelled() if isinstance(each, TimerHandle) else each.canceled)
    return isinstance(each, threading.Timer) and each.is_alive()


class HeldModel:
    """A model whose request is in flight until the test says so."""

    name = "held"

    async def request(self, request: ModelRequest) -> ModelResponse:
        await effects.hold_async("model")
        return say("done")


# --- agents that start agents ----------------------------------------------------------------------


def _asked_by(name: str) -> Callable[[ModelRequest], None]:
    return lambda request: effects.note(f"model_of_{name}")


def _many(request: ModelRequest) -> ModelResponse:
    """As many tasks as the message says."""
    (turn,) = request.conversation
    assert isinstance(turn, UserTurn)
    return say("", *(call("digger", task=f"task {number}") for number in range(int(turn.text))))


def _counted(request: ModelRequest) -> str:
    results = [turn for turn in request.conversation if isinstance(turn, ResultTurn)]
    return f"{len({turn.content for turn in results})} of {len(results)}"


def _heard(request: ModelRequest) -> str:
    return str(getattr(request.conversation[-1], "content", ""))


def _task_done(request: ModelRequest) -> str:
    (turn,) = request.conversation
    assert isinstance(turn, UserTurn)
    effects.note("dug")
    return f"{turn.text} is done"


digger = Agent("digger", model=ScriptedModel(_task_done))
leaf = Agent("leaf", model=ScriptedModel([call("ask", x=1), _heard], on_request=_asked_by("leaf")), tools=[ask])
middle = Agent(
    "middle",
    model=ScriptedModel([call("leaf", task="go"), _heard], on_request=_asked_by("middle")),
    tools=[SubAgent(leaf)],
)
careful = Agent("careful", model=ScriptedModel([call("second"), call("ask", x=2), _heard]), tools=[second, ask])

app = App(
    agents=[
        Agent("asker", model=ScriptedModel([call("ask", x=1), say("done")]), tools=[ask]),
        Agent("steps", model=ScriptedModel([[call("first"), call("second")], say("done")]), tools=[first, second]),
        Agent("killer", model=ScriptedModel([call("die"), say("never")]), tools=[die]),
        Agent("odd", model=ScriptedModel([_odd, say("done")]), tools=[odd, odd_async]),
        Agent("pooled", model=ScriptedModel([call("pooled"), call("pooled"), say("done")]), tools=[pooled]),
        Agent("census", model=ScriptedModel([call("census"), say("done")]), tools=[census]),
        Agent("held", model=HeldModel()),
        Agent("many", model=ScriptedModel([_many, _counted]), tools=[SubAgent(digger)], limits=Limits(turns=None)),
        Agent("deep", model=ScriptedModel([call("middle", task="go"), _heard]), tools=[SubAgent(middle)]),
        Agent("chief", model=ScriptedModel([call("careful", task="go"), _heard]), tools=[SubAgent(careful)]),
        *(timed(seconds) for seconds in (1, 2, 30, 60)),
    ]
)
