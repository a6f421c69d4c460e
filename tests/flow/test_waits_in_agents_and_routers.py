"""Waits of tools in agents, and of agents behind a router: what runs again, and what does not."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, Context, Router, Sequential, WaitPoint, tool
from adjourn.schemas.errors import Declined, DefinitionError
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import MemoItem, ResponseItem
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, ModelTurn, ResultTurn, UserTurn
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import USAGE, ScriptedModel, call, say
from tests.world import Counters, World


class Note(BaseModel):
    note: str | None


class Request(BaseModel):
    request: str


class Ask(BaseModel):
    prompt: str


class Decision(BaseModel):
    approved: bool


def start(w: World, block: str, data: BaseModel) -> str:
    """Start a run with an input that is more than text, and settle."""
    run_id, text = new_run_id(), data.model_dump_json()
    given: dict[str, Any] = {"agent": block, "text": text, "data": json.loads(text), "limits": None, "enqueue": False}
    runs.start(w.db, run_id=run_id, thread_id=new_thread_id(), **given)
    w.wakeups.publish(WakeUp(run_id=run_id, due="turn"))
    w.settle()
    return run_id


def resume(w: World, run_id: str, data: Any = None, **fields: Any) -> None:
    """Answer the one action of a run, on a fresh process."""
    action = w.the_action(run_id)
    w.deploy(w.app)
    assert w.answer(action, data, **fields).status == "accepted"


class Heard:
    """Every request that a model got."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def playing(self, *steps: Any) -> ScriptedModel:
        return ScriptedModel(list(steps), on_request=self.requests.append)

    def results(self) -> list[Any]:
        """What the calls came to, as the model read it last."""
        return [turn.content for turn in self.requests[-1].conversation if isinstance(turn, ResultTurn)]


# --- the example: a gate in a tool, in the tool loop of an agent -----------------------------------


def publishing(counters: Counters) -> Block:
    @tool(name="publish-post")
    def publish_post(ctx: Context, title: str, body: str) -> dict[str, str]:
        decision = ctx.ask(reason="human_approval", message=f"Publish {title!r}?", resume=Note)
        counters.bump(f"published with {decision.note}")
        return {"url": f"https://blog/{title}"}

    return publish_post


def writer(counters: Counters, heard: Heard) -> Agent:
    model = heard.playing(call("publish-post", title="Whales", body="They sing."), "It is out.")
    return Agent("writer", model, tools=[publishing(counters)], input_type=Request, prompt=lambda given: given.request)


def test_a_tool_waits_in_the_loop_and_the_model_reads_what_the_tool_returns(plant: Any, counters: Counters) -> None:
    heard = Heard()
    w = plant(writer(counters, heard))
    run_id = start(w, "writer", Request(request="Write about whales."))
    action = w.the_action(run_id)
    assert (action.name, action.prompt) == ("publish-post.human_approval", "Publish 'Whales'?")
    assert (action.resume_schema["required"], counters.seen) == (["note"], {})

    resume(w, run_id, {"note": "at noon"})
    assert counters.seen == {"published with at noon": 1}
    assert w.run(run_id).output == "It is out."
    assert heard.requests[0].conversation == (UserTurn(text="Write about whales."),)
    assert len(heard.requests) == 2, "the turn before the wait was recorded, and is not asked again"
    assert heard.results() == [{"url": "https://blog/Whales"}], "the answer is a decision, and no result"


def test_a_rejection_is_a_denial_that_the_model_reads(plant: Any, counters: Counters) -> None:
    heard = Heard()
    w = plant(writer(counters, heard))
    run_id = start(w, "writer", Request(request="Write about whales."))
    resume(w, run_id, kind="cancel", reason="not on a Sunday")
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", "It is out.")
    assert heard.results() == ["declined: Publish 'Whales'? (reason: not on a Sunday)"]
    assert [output.outcome for output in w.outputs(run_id)] == ["declined"]
    assert counters.seen == {}


@pytest.mark.parametrize("root", ["agent", "pipeline"])
def test_a_rejection_that_is_made_into_an_error_is_one(plant: Any, root: str) -> None:
    """Of a tool the model reads it, as any error of a tool; a step that fails fails its sequence."""

    @tool
    def strict(ctx: Context, text: str) -> str:
        try:
            return ctx.ask(reason="may_i", message="May I?", resume=Note).note or ""
        except Declined as declined:
            raise RuntimeError("then I cannot work") from declined

    heard = Heard()
    agent = Agent("agent", heard.playing(call("strict", text="x"), "Sorry."), tools=[strict])
    w = plant(agent, Sequential("pipeline", [strict]))
    run_id = w.start("go", agent=root)
    resume(w, run_id, kind="cancel")
    run = w.run(run_id)
    if root == "agent":
        assert (run.status, heard.results()) == ("completed", ["RuntimeError: then I cannot work"])
    else:
        assert (run.status, run.error.type) == ("failed", "BlockFailedError")
        assert "then I cannot work" in run.error.message


# --- how a resume rebuilds the conversation --------------------------------------------------------


def counting(counters: Counters, name: str) -> Block:
    @tool(name=name)
    def count(number: int) -> str:
        counters.bump(f"{name} {number}")
        return f"{name} {number}"

    return count


approval = WaitPoint("approval", suspend=Ask, resume=Decision)


def gated(counters: Counters, point: WaitPoint[Ask, Decision] = approval, **options: Any) -> Block:
    @tool(wait_points=[point], **options)
    def gated(ctx: Context, number: int) -> str:
        counters.bump(f"entered {number}")
        approved = ctx.ask(point, Ask(prompt=f"May {number} be?")).approved
        counters.bump(f"gated {number}")
        return f"{number}: {approved}"

    return gated


def test_of_three_calls_of_a_turn_only_the_one_that_waited_goes_on(plant: Any, counters: Counters) -> None:
    heard = Heard()
    turn = [call("count", number=1), call("gated", number=2), call("count", number=3)]
    w = plant(Agent("agent", heard.playing(turn, "Done."), tools=[counting(counters, "count"), gated(counters)]))
    run_id = w.start("go", agent="agent")
    assert counters.seen == {"count 1": 1, "entered 2": 1, "count 3": 1}
    resume(w, run_id, {"approved": True})
    assert counters.seen == {"count 1": 1, "entered 2": 2, "gated 2": 1, "count 3": 1}
    assert heard.results() == ["count 1", "2: True", "count 3"]
    assert len(heard.requests) == 2


def test_a_run_that_waited_asks_its_model_as_often_as_one_that_did_not(plant: Any, counters: Counters) -> None:
    heard = Heard()
    steps = [call("count", number=1), call("count", number=2), call("gated", number=3), "Done."]
    w = plant(Agent("agent", heard.playing(*steps), tools=[counting(counters, "count"), gated(counters)]))
    run_id = w.start("go", agent="agent")
    resume(w, run_id, {"approved": True})
    assert (len(heard.requests), w.run(run_id).turns) == (4, 4)
    assert [len(request.conversation) for request in heard.requests] == [1, 3, 5, 7]
    assert counters.seen == {"count 1": 1, "count 2": 1, "entered 3": 2, "gated 3": 1}


# --- routers ---------------------------------------------------------------------------------------


class Ticket(BaseModel):
    text: str
    risk: float


def triage(counters: Counters, select: Any) -> Router:
    @tool(name="auto-reply", input=Ticket)
    def auto_reply(ticket: Ticket) -> str:
        counters.bump("auto")
        return "answered by itself"

    @tool(input=Ticket)
    def summarise(ticket: Ticket) -> int:
        counters.bump("summarise")
        return len(ticket.text)

    human_review = Sequential("human-review", [summarise, gated(counters)])
    routes = {"auto-reply": auto_reply, "human-review": human_review}
    return Router("triage", routes, lambda ticket: routes[select(ticket)], input=Ticket)


def by_risk(ticket: Ticket) -> str:
    return "human-review" if ticket.risk > 0.8 else "auto-reply"


def test_a_router_goes_on_in_the_branch_that_it_chose(plant: Any, counters: Counters) -> None:
    w = plant(triage(counters, by_risk))
    run_id = start(w, "triage", Ticket(text="help", risk=0.9))
    assert w.the_action(run_id).origin.block_path == ("triage", "human-review", "gated")
    resume(w, run_id, {"approved": True})
    assert w.run(run_id).output == "4: True"
    assert counters.seen == {"summarise": 1, "entered 4": 2, "gated 4": 1}, "what was done in the branch is replayed"


def test_the_other_branch_does_not_wait_at_all(plant: Any, counters: Counters) -> None:
    w = plant(triage(counters, by_risk))
    run_id = start(w, "triage", Ticket(text="help", risk=0.2))
    assert (w.run(run_id).output, counters.seen) == ("answered by itself", {"auto": 1})


def test_a_selector_that_reads_what_has_changed_fails_the_run(plant: Any, counters: Counters) -> None:
    limits = [0.8]
    w = plant(triage(counters, lambda ticket: "human-review" if ticket.risk > limits[0] else "auto-reply"))
    run_id = start(w, "triage", Ticket(text="help", risk=0.9))
    limits[0] = 0.95
    resume(w, run_id, {"approved": True})
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", "RouteUnavailableError")
    assert "'human-review'" in run.error.message
    assert "'auto-reply'" in run.error.message
    assert "auto" not in counters.seen
    assert "gated 4" not in counters.seen


# --- what runs again -------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [False, True])
def test_what_stands_before_the_wait_runs_again_unless_it_is_guarded(
    plant: Any, counters: Counters, guarded: bool
) -> None:
    @tool(wait_points=[approval])
    def gated(ctx: Context) -> str:
        before = ctx.run_once("draft", draft) if guarded else draft()
        ctx.ask(approval, Ask(prompt=str(before) if guarded else "?"))
        counters.bump("after")
        return f"draft {before}"

    def draft() -> int:
        return counters.bump("before")

    w = plant(Agent("agent", Heard().playing(call("gated"), "Done."), tools=[gated]))
    run_id = w.start("go", agent="agent")
    resume(w, run_id, {"approved": True})
    assert counters.seen == {"before": 1 if guarded else 2, "after": 1}
    assert [output.content for output in w.outputs(run_id)] == ["draft 1" if guarded else "draft 2"]
    assert sum(isinstance(item.body, MemoItem) for item in w.items(run_id)) == guarded


# --- the limits of the first version ---------------------------------------------------------------


def test_lifted_several_gates_of_a_turn_wait_at_once(plant: Any, counters: Counters) -> None:
    heard = Heard()
    turn = [call("gated", number=number) for number in (1, 2, 3)]
    w = plant(Agent("agent", heard.playing(turn, "Done."), tools=[gated(counters)]))
    run_id = w.start("go", agent="agent")
    third, first, second = (
        next(each for each in w.pending(run_id) if str(number) in each.prompt) for number in (3, 1, 2)
    )
    for action, approved in ((third, True), (first, False), (second, True)):
        assert len(heard.requests) == 1
        w.deploy(w.app)
        w.answer(action, {"approved": approved})
    assert heard.results() == ["1: False", "2: True", "3: True"]
    assert [counters[f"entered {number}"] for number in (1, 2, 3)] == [2, 2, 2]


def test_refused_a_gated_tool_is_not_cacheable(counters: Counters) -> None:
    with pytest.raises(DefinitionError, match="cacheable"):
        gated(counters, cacheable=True)


def test_refused_nor_does_a_cacheable_tool_wait_ad_hoc(plant: Any) -> None:
    @tool(cacheable=True)
    def sly(ctx: Context) -> str:
        return ctx.ask(reason="may_i", message="May I?", resume=Note).note or ""

    w = plant(Agent("agent", Heard().playing(call("sly"), "Done."), tools=[sly]))
    run_id = w.start("go", agent="agent")
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert "cacheable" in output.content
    assert (w.pending(run_id), w.run(run_id).status) == ([], "completed")


def test_lifted_what_a_provider_ran_itself_is_kept_across_the_wait(plant: Any, counters: Counters) -> None:
    """The provider's own message comes back to it word for word."""
    searched = ModelResponse(
        text="", calls=(call("count", number=1),), usage=USAGE, raw='{"search": "whales"}', provider="some"
    )
    heard = Heard()
    model = heard.playing(searched, call("gated", number=2), "Done.")
    w = plant(Agent("agent", model, tools=[counting(counters, "count"), gated(counters)]))
    run_id = w.start("go", agent="agent")
    resume(w, run_id, {"approved": True})
    said = [turn for turn in heard.requests[-1].conversation if isinstance(turn, ModelTurn)]
    assert [(turn.raw, turn.provider) for turn in said] == [('{"search": "whales"}', "some"), (None, None)]
    recorded = [item.body for item in w.items(run_id) if isinstance(item.body, ResponseItem)]
    assert [response.raw for response in recorded] == ['{"search": "whales"}', None, None]


@pytest.mark.parametrize("change", ["none", "gone", "other schema", "other version"])
def test_tools_by_a_function_have_to_keep_the_one_that_waits(plant: Any, counters: Counters, change: str) -> None:
    other = WaitPoint("approval", suspend=Ask, resume=Note)

    @tool(name="gated", wait_points=[other])
    def changed(ctx: Context, number: int) -> str:
        counters.bump("changed ran")
        return ctx.ask(other, Ask(prompt="?")).note or ""

    now: list[Block] = [gated(counters)]
    heard = Heard()
    w = plant(Agent("agent", heard.playing(call("gated", number=1), "Done."), tools=lambda run: tuple(now)))
    run_id = w.start("go", agent="agent")
    later: dict[str, list[Block]] = {
        "none": now,
        "gone": [],
        "other schema": [changed],
        "other version": [gated(counters, version="2")],
    }
    now = later[change]
    resume(w, run_id, {"approved": True})
    run = w.run(run_id)
    if change == "none":
        assert (run.status, counters["gated 1"]) == ("completed", 1)
    else:
        assert (run.status, run.error.type, len(heard.requests)) == ("failed", "ToolChangedError", 1)
        assert (counters["gated 1"], counters["changed ran"]) == (0, 0)


EXPIRED = "gated.approval expired before anybody answered: May 1 be?"
ON_TIMEOUT: dict[str, tuple[Any, str, list[tuple[str, Any]]]] = {
    "fail_run": ({"on_timeout": "fail_run"}, "failed", []),
    "error": ({"on_timeout": "error"}, "completed", [("expired", EXPIRED)]),
    "default": ({"default": Decision(approved=False)}, "completed", [("success", "1: False")]),
}


@pytest.mark.parametrize("policy", ON_TIMEOUT)
@pytest.mark.parametrize("nested", [False, True], ids=["agent", "agent in a sequence"])
def test_lifted_a_gate_in_an_agent_may_have_a_deadline(
    plant: Any, counters: Counters, policy: str, nested: bool
) -> None:
    deadline, status, read = ON_TIMEOUT[policy]
    point = WaitPoint("approval", suspend=Ask, resume=Decision, timeout=timedelta(hours=1), **deadline)
    heard = Heard()
    agent = Agent("agent", heard.playing(call("gated", number=1), say("Done.")), tools=[gated(counters, point)])
    w = plant(Sequential("root", [agent]) if nested else agent)
    run_id = w.start("go", agent="root" if nested else "agent")
    w.deploy(w.app)
    w.advance(3601)
    w.sweep()
    run = w.run(run_id)
    assert run.status == status
    outputs = [(each.outcome, each.content) for each in w.outputs(run_id) if each.tool == "gated"]
    assert outputs == read
    assert counters["gated 1"] == (policy == "default"), "a tool whose wait has expired is not tried again"
    if policy == "fail_run":
        assert (run.error.type, len(heard.requests)) == ("ActionExpiredError", 1)
    else:
        assert len(heard.requests) == 2
