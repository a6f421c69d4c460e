"""The fixture of the cases: a tool that asks before it acts, in every way to write it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from adjourn import Context, ModelRequest, PendingAction, ResultTurn, Resume, Run, RunHandle, Tool, WaitPoint, tool
from tests.waiting import wait_until
from tests.world import Counters

if TYPE_CHECKING:
    from tests.deployment import Deployment


class Question(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool
    note: str | None = None


class Done(BaseModel):
    x: int
    note: str | None = None


q = WaitPoint("q", suspend=Question, resume=Verdict)

WAYS = ("entry", "inline", "async entry", "async inline")
"""How `ask` can be written."""
YES: dict[str, Any] = {"approved": True}
DENIALS: tuple[dict[str, Any], ...] = (
    {"data": {"approved": False, "note": "no"}},
    {"kind": "cancel", "reason": "no"},
    {"kind": "fail", "message": "no"},
)
"""Every way to say no, as fields of an answer."""


def written(way: str, *, entry: Callable[..., Any], inline: Callable[..., Any]) -> Callable[..., Any]:
    """The body of one of `WAYS`."""
    body = entry if way.endswith("entry") else inline

    @wraps(body)
    async def async_body(*args: Any, **kwargs: Any) -> Any:
        return body(*args, **kwargs)

    return async_body if way.startswith("async") else body


def asking(
    way: str, fx: Counters, *, name: str = "ask", point: WaitPoint[Question, Verdict] = q, **options: Any
) -> Tool[..., Any]:
    """`ask(x)`: what stands behind its gate bumps `fx`, and `fx:x`, if the verdict is a yes.

    Every pass bumps `passes`.
    """

    def act(x: int, verdict: Verdict) -> Done:
        if verdict.approved:
            fx.bump("fx")
            fx.bump(f"fx:{x}")
        return Done(x=x, note=verdict.note)

    def inline(ctx: Context, x: int) -> Done:
        fx.bump("passes")
        return act(x, ctx.ask(point, Question(prompt=f"May {x} be?")))

    def entry(ctx: Context, x: int) -> Done:
        fx.bump("passes")
        if isinstance(ctx.entry, Resume):
            return act(x, ctx.entry.resume)
        ctx.suspend(point, Question(prompt=f"May {x} be?"))

    body = written(way, entry=entry, inline=inline)
    return tool(name=name, description="Ask, then act.", wait_points=[point], **options)(body)


def asking_twice(way: str, fx: Counters) -> Tool[..., Any]:
    """`ask_twice()`: asks the same question at the same wait point two times, and returns both notes.

    Every pass bumps `passes`.
    """
    question = Question(prompt="May I?")

    def inline(ctx: Context) -> list[str | None]:
        fx.bump("passes")
        return [ctx.ask(q, question).note, ctx.ask(q, question).note]

    def entry(ctx: Context) -> list[str | None]:
        fx.bump("passes")
        if len(ctx.suspend_history) < 2:
            ctx.suspend(q, question)
        return [record.resume.note for record in ctx.suspend_history]

    body = written(way, entry=entry, inline=inline)
    return tool(name="ask_twice", description="Ask two times.", wait_points=[q])(body)


def counting(name: str, fx: Counters, **options: Any) -> Tool[..., Any]:
    """A plain tool that bumps its own name and returns it."""

    def body(ctx: Context) -> str:
        fx.bump(name)
        return name

    return tool(name=name, description="Count.", **options)(body)


class Reader:
    """The last step of a script: says "done", and keeps the results that it was given, each time it is asked."""

    def __init__(self) -> None:
        self.results: list[list[Any]] = []

    def step(self, request: ModelRequest) -> str:
        self.results.append([turn.content for turn in request.conversation if isinstance(turn, ResultTurn)])
        return "done"


def number_asked(action: PendingAction) -> int:
    """The `x` that an action of `ask` is about."""
    return int(action.input["prompt"].split()[1])


def wait_for_outputs(live: Deployment, run: Run | RunHandle, count: int) -> None:
    """Wait until so many calls of the run have their outputs recorded."""

    def recorded() -> bool:
        return [item.body.kind for item in live.client.items(run.id)].count("output") == count

    wait_until(recorded, what=f"{count} outputs of run {run.id}")
