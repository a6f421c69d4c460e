"""The agents and tools of the scenarios. Each writes down what it does (`ledger`); the models are strict."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, field_validator

from adjourn import (
    Agent,
    Answer,
    App,
    Context,
    ModelRequest,
    ModelRequestError,
    ModelResponse,
    Parallel,
    PendingAction,
    PolicyCall,
    Question,
    Recovered,
    RequireApproval,
    Router,
    ScriptedModel,
    Sequential,
    SubAgent,
    WaitPoint,
    call,
    client_tool,
    require_approval,
    say,
    tool,
)
from adjourn.schemas.records.entries import Resume
from adjourn.schemas.records.messages import RequestedCall
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.policies import Policy
from adjourn.tasks.models.scripted import responses_so_far
from tests.crash import ledger

PAID = "paid"
LARGE = 3
DEADLINE = timedelta(days=1)
ODD = "odd"
"""A value that fits the schema of `Checked`, and that its validator refuses."""
REFUSE, MENDED = "refuse", "mended"
"""Signals: from the first on the code cannot read a `Fragile` any more; from the second on it can again."""


class Ask(BaseModel):
    prompt: str


class Reply(BaseModel):
    value: str
    """Another one for each action, so that an answer that reaches the wrong one is seen."""


class Checked(BaseModel):
    """Whether an answer fits, only the model itself can say: its schema does not."""

    value: str

    @field_validator("value")
    @classmethod
    def _not_odd(cls, value: str) -> str:
        if value == ODD:
            raise ValueError("it is odd")
        return value


class Fragile(Reply):
    """What another build of the code cannot read."""

    @field_validator("value")
    @classmethod
    def _readable(cls, value: str) -> str:
        if ledger.is_signalled(REFUSE) and not ledger.is_signalled(MENDED):
            raise ValueError("this build cannot read it")
        return value


gate = WaitPoint("gate", suspend=Ask, resume=Reply)
first = WaitPoint("first", suspend=Ask, resume=Reply)
second = WaitPoint("second", suspend=Ask, resume=Reply)
third = WaitPoint("third", suspend=Ask, resume=Reply)
entry = WaitPoint("entry", suspend=Ask, resume=Reply)
checked_gate = WaitPoint("checked_gate", suspend=Ask, resume=Checked)
fragile = WaitPoint("fragile", suspend=Ask, resume=Fragile)
hurried = WaitPoint("hurried", suspend=Ask, resume=Reply, timeout=DEADLINE, on_timeout="error")


def _note(ctx: Context, kind: ledger.Kind, name: str, value: str | None = None) -> None:
    ledger.write(kind, ctx.run_id, ctx.call_id, name, value)


def _ask(ctx: Context, point: WaitPoint[Ask, Reply] | WaitPoint[Ask, Fragile] | WaitPoint[Ask, Checked]) -> str:
    value = ctx.ask(point, Ask(prompt=f"{point.name}?")).value
    _note(ctx, "answer", point.name, value)
    return value


@tool
def plain(ctx: Context, x: int) -> str:
    """Do something."""
    _note(ctx, "body", "plain")
    _note(ctx, "effect", "plain")
    return f"did {x}"


@tool(wait_points=[gate])
def gated(ctx: Context, x: int) -> str:
    """Ask, then do something."""
    _note(ctx, "body", "gated")
    value = _ask(ctx, gate)
    _note(ctx, "effect", "gated")
    return f"{x}: {value}"


@tool(wait_points=[gate])
def gated_last(ctx: Context, x: int) -> str:
    """Ask once a sibling has ended, then do something."""
    _note(ctx, "body", "gated_last")
    ledger.wait_for_output(ctx.run_id)
    value = _ask(ctx, gate)
    _note(ctx, "effect", "gated_last")
    return f"{x}: {value}"


@tool(wait_points=[first, second, third])
def chain(ctx: Context) -> list[str]:
    """Ask three times, each with the answers before."""
    _note(ctx, "body", "chain")
    values = [_ask(ctx, point) for point in (first, second, third)]
    _note(ctx, "effect", "chain")
    return values


@tool(wait_points=[entry])
def staged(ctx: Context) -> str:
    """Ask in the entry style."""
    _note(ctx, "body", "staged")
    if not isinstance(ctx.entry, Resume):
        ctx.suspend(entry, Ask(prompt="entry?"))
    _note(ctx, "answer", "entry", ctx.entry.resume.value)
    _note(ctx, "effect", "staged")
    return str(ctx.entry.resume.value)


@tool(wait_points=[hurried])
def hurry(ctx: Context) -> str:
    """Ask, with a deadline."""
    _note(ctx, "body", "hurry")
    value = _ask(ctx, hurried)
    _note(ctx, "effect", "hurry")
    return value


def _charge(ctx: Context) -> str:
    _note(ctx, "once", "charge")
    return "charged"


@tool(wait_points=[gate])
def once(ctx: Context) -> str:
    """Charge once, ask, and go on with what was charged."""
    _note(ctx, "body", "once")

    charged = ctx.run_once("charge", lambda: _charge(ctx))
    value = _ask(ctx, gate)
    _note(ctx, "effect", "once")
    return f"{charged} {value}"


@tool(wait_points=[gate])
def announced(ctx: Context) -> str:
    """Hand out the id of the wait, and ask only once the driver has answered it."""
    _note(ctx, "body", "announced")
    action_id = ctx.action_id(gate)
    _note(ctx, "reserved", "announced", action_id)
    ledger.wait_for_signal(ctx.run_id)
    value = _ask(ctx, gate)
    _note(ctx, "effect", "announced")
    return value


@tool(wait_points=[checked_gate])
def checked(ctx: Context) -> str:
    """Ask what only the live model can validate."""
    _note(ctx, "body", "checked")
    value = _ask(ctx, checked_gate)
    _note(ctx, "effect", "checked")
    return value


@tool(wait_points=[first, second])
def either(ctx: Context) -> str:
    """Ask two people, and go on with the first answer."""
    _note(ctx, "body", "either")
    came = ctx.ask_any(Question(first, Ask(prompt="first?")), Question(second, Ask(prompt="second?")))
    _note(ctx, "answer", came.question.point.name, came.answer.value)
    _note(ctx, "effect", "either")
    return came.answer.value


@tool(own_process=True, wait_points=[gate])
def apart(ctx: Context) -> str:
    """Charge once and ask, in a process of its own for each pass."""
    _note(ctx, "body", "apart")
    charged = ctx.run_once("charge", lambda: _charge(ctx))
    value = _ask(ctx, gate)
    _note(ctx, "effect", "apart")
    return f"{charged} {value}"


@tool(wait_points=[gate])
def changing(ctx: Context) -> str:
    """Ask something else once the driver says so."""
    _note(ctx, "body", "changing")
    asked = "another" if ledger.is_signalled(ctx.run_id) else "the first"
    value = ctx.ask(gate, Ask(prompt=asked)).value
    _note(ctx, "answer", gate.name, value)
    _note(ctx, "effect", "changing")
    return value


@tool(wait_points=[fragile, gate])
def checked_twice(ctx: Context) -> list[str]:
    """Ask twice. The first answer is read again after the second."""
    _note(ctx, "body", "checked_twice")
    values = [_ask(ctx, fragile), _ask(ctx, gate)]
    _note(ctx, "effect", "checked_twice")
    return values


@tool
def transfer(ctx: Context, amount: int, urgent: bool = True) -> str:
    """Do what policies are asked about."""
    _note(ctx, "body", "transfer")
    _note(ctx, "effect", "transfer", str(amount))
    return f"{amount}"


def _large(call: PolicyCall) -> RequireApproval | None:
    return RequireApproval(prompt="so much?") if call.args["amount"] >= LARGE else None


@tool
def slow(ctx: Context) -> str:
    """Work until the driver says that it is enough."""
    _note(ctx, "body", "slow")
    ledger.wait_for_signal(ctx.run_id)
    _note(ctx, "effect", "slow")
    return "slowly"


def _resolve(action: PendingAction) -> Answer:
    return Answer(action_id=action.id, data={"value": f"{action.id} resolved"})


@tool(wait_points=[gate], resolver=_resolve)
def resolved(ctx: Context) -> str:
    """Ask what this process can answer by itself."""
    _note(ctx, "body", "resolved")
    value = _ask(ctx, gate)
    _note(ctx, "effect", "resolved")
    return value


@tool(repeatable=False)
def pay(ctx: Context) -> str:
    """Do what must never be done twice."""
    _note(ctx, "body", "pay")
    _note(ctx, "effect", "pay")
    return PAID


@tool
def die(ctx: Context) -> str:
    """Take the process along, every time."""
    _note(ctx, "body", "die")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def _find_out(ctx: Context) -> Recovered[str] | None:
    return Recovered(PAID) if ledger.has_effect(ctx.call_id) else None


@tool(verify=_find_out)
def pay_verified(ctx: Context) -> str:
    """Do what must never be done twice, and can be looked up."""
    _note(ctx, "body", "pay_verified")
    _note(ctx, "effect", "pay_verified")
    return PAID


class Place(BaseModel):
    name: str


locate = client_tool("locate", description="Find out where the user is.", input=Place, output=Reply)


# --- steps: they are handed what the step before came to -----------------------------------------


@tool
def prepare(ctx: Context, text: str) -> str:
    """Do something before anybody is asked."""
    _note(ctx, "body", "prepare")
    _note(ctx, "effect", "prepare")
    return text


@tool(wait_points=[gate])
def review(ctx: Context, text: str) -> str:
    """Ask about it."""
    _note(ctx, "body", "review")
    value = _ask(ctx, gate)
    _note(ctx, "effect", "review")
    return f"{text}, {value}"


@tool
def publish(ctx: Context, text: str) -> str:
    """Do something with what was approved."""
    _note(ctx, "body", "publish")
    _note(ctx, "effect", "publish")
    return text


_reviewed = Sequential("reviewed", [prepare, review], description="Prepare it, and have it reviewed.")


def _agent(name: str, *calls: RequestedCall, tools: list[Block], policies: list[Policy] | None = None) -> Agent:
    """An agent that makes `calls` side by side in its first turn, and ends with its second."""

    def count(request: ModelRequest) -> None:
        # A model is told neither run nor thread; the message of the run tells it.
        ledger.write("model", _told(request), str(responses_so_far(request)), name)

    model = ScriptedModel([say("", *calls), say("done")], on_request=count)
    return Agent(name, model=model, tools=tools, policies=policies or [])


def _mended() -> Agent:
    """An agent whose first turn waits for the step beside it to ask, and whose second breaks until it is mended."""

    def ask(request: ModelRequest) -> None:
        run_id, turn = _told(request), responses_so_far(request)
        ledger.wait_for_suspension(run_id)
        if turn and not ledger.is_signalled(run_id):
            raise ModelRequestError("mended", "it is broken", retryable=False)
        ledger.write("model", run_id, str(turn), "mended")

    return Agent("mended", model=ScriptedModel([call("plain", x=1), say("done")], on_request=ask), tools=[plain])


# --- agents that start agents --------------------------------------------------------------------


def _boss(name: str, on_failure: Literal["result", "end_parent"] = "result", **tasks: Agent) -> Agent:
    """An agent that hands a task to each of these. A task is the name of its child: a model is told no more of it."""

    def hand_over(request: ModelRequest) -> ModelResponse:
        me = _told(request)
        return say("", *(call(child.name, task=f"{me}.{number}") for number, child in tasks.items()))

    def count(request: ModelRequest) -> None:
        ledger.write("model", _told(request), str(responses_so_far(request)), name)

    subs = {agent.name: SubAgent(agent, on_failure=on_failure) for agent in tasks.values()}
    model = ScriptedModel([hand_over, say("done")], on_request=count)
    return Agent(name, model=model, tools=[*subs.values()])


def _breaking_child() -> Agent:
    """An agent that asks, and whose model breaks once it has the answer, until it is mended."""

    def reply(request: ModelRequest) -> None:
        me, turn = _told(request), responses_so_far(request)
        if turn and not ledger.is_signalled(me):
            raise ModelRequestError("breaking", "it is broken", retryable=False)
        ledger.write("model", me, str(turn), "breaking_child")

    model = ScriptedModel([say("", call("gated", x=1)), say("done")], on_request=reply)
    return Agent("breaking_child", model=model, tools=[gated])


def _told(request: ModelRequest) -> str:
    """The message of a run, which is the run's id, or that of its parent and its number."""
    return next(turn.text for turn in reversed(request.conversation) if turn.kind == "user")


def _away(request: ModelRequest) -> str:
    """Cannot be asked before the gate beside it has been answered, and what is behind that has been done."""
    if not ledger.has_effects(_told(request)):
        raise ModelRequestError("away", "503", retryable=True)
    ledger.write("model", _told(request), "0", "away")
    return "back"


_gated_child = _agent("gated_child", call("gated", x=1), tools=[gated])
_plain_child = _agent("plain_child", call("plain", x=1), tools=[plain])


app = App(
    agents=[
        _agent("plain", call("plain", x=1), tools=[plain]),
        _agent("two_tools_one_gate", call("plain", x=1), call("gated_last", x=2), tools=[plain, gated_last]),
        _agent("three_gates", *(call("gated", x=x) for x in (1, 2, 3)), tools=[gated]),
        _agent("chain", call("chain"), tools=[chain]),
        _agent("gated", call("gated", x=1), tools=[gated]),
        _agent("staged", call("staged"), tools=[staged]),
        _agent("hurry", call("hurry"), tools=[hurry]),
        _agent("once", call("once"), tools=[once]),
        _agent("announced", call("announced"), tools=[announced]),
        _agent("slow", call("slow"), tools=[slow]),
        _agent("beside_slow", call("gated", x=1), call("slow"), tools=[gated, slow]),
        _agent("resolved", call("resolved"), tools=[resolved]),
        _agent("die", call("die"), tools=[die]),
        _agent("pay", call("pay"), tools=[pay]),
        _agent("pay_verified", call("pay_verified"), tools=[pay_verified]),
        _agent("client_tool", call("locate", name="home"), tools=[locate]),
        _boss("boss", one=_gated_child),
        _boss("boss_of_two", one=_gated_child, two=_gated_child),
        _boss("boss_of_a_breaking_one", on_failure="end_parent", one=_breaking_child(), two=_gated_child),
        _boss("boss_of_a_quick_one", one=_plain_child),
        _boss("boss_of_a_boss", one=_boss("middle", one=_gated_child)),
        _agent("approved", call("plain", x=1), tools=[plain], policies=[require_approval("plain")]),
        _agent("checked", call("checked"), tools=[checked]),
        _agent("apart", call("apart"), tools=[apart]),
        _agent("either", call("either"), tools=[either]),
        _agent("changing", call("changing"), tools=[changing]),
        _agent("checked_twice", call("checked_twice"), tools=[checked_twice]),
        _agent(
            "transferring",
            call("transfer", amount=1),
            tools=[transfer],
            policies=[_large, require_approval("transfer", edit=True, when=lambda call: call.args["amount"] < LARGE)],
        ),
    ],
    blocks=[
        Parallel("beside_away", {"review": review, "away": Agent("away", model=ScriptedModel([_away]))}),
        Sequential("sequence", [prepare, review, publish]),
        Parallel("breaking", [review, _mended()]),
        Router("router", {"straight": publish, "reviewed": review}, lambda text: "reviewed"),
        Sequential("nested", [_agent("writer", call("reviewed", input="a draft"), tools=[_reviewed]), publish]),
    ],
)
