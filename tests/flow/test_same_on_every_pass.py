"""What a body draws or reads of its waits is the same on every pass, and typed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, Context, WaitPoint, tool
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import AGENT


class Yes(BaseModel):
    approved: bool


gate = WaitPoint("gate", suspend=str, resume=Yes)
other = WaitPoint("other", suspend=str, resume=int)


def test_uuid_and_random_are_those_of_the_first_pass_and_of_one_call(plant: Any) -> None:
    drawn: dict[str, list[Any]] = {}

    @tool(wait_points=[gate], retries=1)
    def act(ctx: Context, name: str) -> str:
        values = [ctx.uuid(), ctx.uuid(), ctx.random(), ctx.random()]
        drawn.setdefault(name, []).append(values)
        answer = ctx.ask(gate, f"May I use {values[0]}?")
        if len(drawn[name]) == 2:
            raise RuntimeError("tried again")
        return str(answer)

    turn = [call("act", name="a"), call("act", name="b")]
    w = plant(Agent(AGENT, ScriptedModel([turn, say("done")]), tools=[act]))
    run_id = w.start()
    for action in w.pending(run_id):
        w.deploy(w.app)
        w.answer(action, {"approved": True})
    assert w.run(run_id).status == "completed"
    assert {name: len(passes) for name, passes in drawn.items()} == {"a": 3, "b": 3}
    assert all(values == passes[0] for passes in drawn.values() for values in passes)
    assert len({value for passes in drawn.values() for value in passes[0]}) == 8
    assert all(0 <= number < 1 for passes in drawn.values() for number in passes[0][2:])


def test_entries_and_history_are_read_by_wait_point(plant: Any) -> None:
    seen: list[Any] = []

    @tool(wait_points=[gate, other])
    def act(ctx: Context) -> str:
        first, second = ctx.resumed(gate), ctx.resumed(other)
        seen.append((first and first.resume, second and second.resume))
        if second is not None:
            (record,) = ctx.history(gate)
            assert record.resume is not None
            return f"{record.input} {record.resume.approved} {second.resume + 1}"
        if first is not None:
            ctx.suspend(other, "How many?")
        ctx.suspend(gate, "May I?")

    w = plant(Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=[act]))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": True})
    w.answer(w.the_action(run_id), 7)
    assert seen == [(None, None), (Yes(approved=True), None), (None, 7)]
    assert w.outputs(run_id)[0].content == "May I? True 8"


@pytest.mark.parametrize("reading", ["resumed", "history"])
def test_a_wait_point_of_another_tool_is_refused(plant: Any, reading: str) -> None:
    @tool(wait_points=[gate])
    def act(ctx: Context) -> str:
        return str(getattr(ctx, reading)(other))

    w = plant(Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=[act]))
    (output,) = w.outputs(w.start())
    assert output.outcome == "error"
    assert "is not one of its own" in output.content
