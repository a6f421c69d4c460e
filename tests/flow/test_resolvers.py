"""Waits that code in the worker answers on the spot: nothing parks, and the history shows it all the same."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Agent, Answer, App, Context, PendingAction, tool
from adjourn.tasks.models.scripted import call, say
from tests.flow.report_tools import Approval, Prompt, approval, approval_entry, approval_inline
from tests.world import AGENT, World, scripted, world

SCRIPT = (call("request_approval", summary="Send?"), say("ok"))


def yes(action: PendingAction) -> Answer:
    return Answer(action_id=action.id, data={"approved": True, "comment": action.prompt})


async def yes_async(action: PendingAction) -> Answer:
    return yes(action)


@pytest.mark.parametrize("resolver", [yes, yes_async])
@pytest.mark.parametrize("ask", [approval_entry, approval_inline], ids=["entry", "inline"])
def test_a_resolver_answers_on_the_spot(database_url: str, redis_url: str, resolver: Any, ask: Any) -> None:
    with world(database_url, redis_url, ask, model=scripted(*SCRIPT), resolver=resolver) as w:
        run_id = w.start()
        assert w.run(run_id).status == "completed"
        (output,) = w.outputs(run_id)
        assert output.content == {"approved": True, "comment": "Send?"}
        kinds = [item.body.kind for item in w.items(run_id)]
        assert kinds == ["message", "response", "suspension", "resolution", "output", "response", "end"]
        assert [wakeup.due for wakeup in w.wakeups.published] == ["turn", "turn"]


@pytest.mark.parametrize("said", [None, "nonsense", "raises", "no Answer"])
def test_what_a_resolver_leaves_open_parks(database_url: str, redis_url: str, said: str | None) -> None:
    def resolver(action: PendingAction) -> Any:
        if said == "raises":
            raise RuntimeError("no idea")
        if said == "no Answer":
            return {"approved": True}
        return Answer(action_id=action.id, data={"approved": said}) if said else None

    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT), resolver=resolver) as w:
        run_id = w.start()
        assert w.run(run_id).status == "parked"
        assert w.answer(w.the_action(run_id), {"approved": False}).status == "accepted"
        assert w.run(run_id).status == "completed"


def test_the_nearest_resolver_is_asked(database_url: str, redis_url: str) -> None:
    def answering(comment: str) -> Any:
        return lambda action: Answer(action_id=action.id, data={"approved": True, "comment": comment})

    @tool(wait_points=[approval], resolver=answering("tool"))
    def own(ctx: Context) -> str | None:
        """Has its own resolver."""
        return ctx.ask(approval, Prompt(prompt="?")).comment

    @tool(wait_points=[approval])
    def none(ctx: Context) -> str | None:
        """Has none."""
        decision: Approval = ctx.ask(approval, Prompt(prompt="?"))
        return decision.comment

    script = scripted([call("own"), call("none")], say("ok"))
    agents = [
        Agent(AGENT, model=script, tools=[own, none], resolver=answering("agent")),
        Agent("other", model=script, tools=[own, none]),
        Agent("dynamic", model=script, tools=lambda run: [own, none], resolver=answering("agent")),
    ]
    w = World(App(agents=agents, resolver=answering("app")), database_url, redis_url)
    try:
        said = {
            agent: {o.tool: o.content for o in w.outputs(w.start(agent=agent))} for agent in (AGENT, "other", "dynamic")
        }
    finally:
        w.close()
    of_agent = {"own": "tool", "none": "agent"}
    assert said == {AGENT: of_agent, "other": {"own": "tool", "none": "app"}, "dynamic": of_agent}
