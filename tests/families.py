"""Agents that start agents, for tests: a boss that hands tasks over, and diggers that ask before they send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from adjourn import Agent, Context, Limits, WaitPoint, call, say, tool
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, UserTurn
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.blocks.block import Block
from tests.world import Counters, World, scripted


class Ask(BaseModel):
    prompt: str


approval = WaitPoint("approval", suspend=Ask, resume=bool)


def gate(counters: Counters) -> Any:
    """A tool that asks once, and counts what it does."""

    @tool(wait_points=[approval])
    def send(ctx: Context, what: str) -> str:
        """Send it."""
        if not ctx.ask(approval, Ask(prompt=f"Send {what}?")):
            return "kept"
        counters.bump(f"sent {what}")
        return f"sent {what}"

    return send


def last_result(request: ModelRequest) -> str:
    """What a model says that repeats what it was told last."""
    turn = request.conversation[-1]
    return turn.text if isinstance(turn, UserTurn) else str(getattr(turn, "content", turn))


def results(request: ModelRequest) -> ModelResponse:
    said = [str(turn.content) for turn in request.conversation if turn.kind == "result"]
    return say(" + ".join(said))


def digger(counters: Counters, name: str = "digger") -> Agent:
    model = scripted(lambda r: call("send", what=last_result(r)), last_result, counters=counters)
    return Agent(name, model=model, tools=[gate(counters)], limits=Limits(turns=2))


def boss(sub: Block | Sequence[Block], *calls: Any, counters: Counters, **options: Any) -> Agent:
    tools = [sub] if isinstance(sub, Block) else [*sub]
    return Agent("boss", model=scripted(say("", *calls), results, counters=counters), tools=tools, **options)


def child_of(w: World, run_id: str, number: int = 0) -> Run:
    return children_of(w, run_id)[number]


def children_of(w: World, run_id: str) -> list[Run]:
    found = [run for run in runs.list(w.db, limit=5000) if run.parent_run_id == run_id]
    return sorted(found, key=lambda run: run.id)
