"""The agents and tools of the scenarios. Each writes down what it does (`ledger`); the models are strict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from adjourn import (
    Agent,
    App,
    ModelRequest,
    ModelRequestError,
    ModelResponse,
    Parallel,
    Router,
    ScriptedModel,
    Sequential,
    SubAgent,
    call,
    require_approval,
    say,
)
from adjourn.schemas.records.messages import RequestedCall
from adjourn.schemas.records.runs import Run
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.policies import Policy
from adjourn.tasks.models.scripted import responses_so_far
from tests.crash import ledger
from tests.crash.tools import (
    LARGE,
    _large,
    announced,
    apart,
    chain,
    changing,
    checked,
    checked_twice,
    die,
    doubting,
    doubting_either,
    either,
    either_or_default,
    either_or_end,
    gated,
    gated_last,
    hurry,
    locate,
    once,
    pay,
    pay_if_told,
    pay_verified,
    plain,
    prepare,
    publish,
    resolved,
    review,
    slow,
    staged,
    transfer,
)

Tools = Sequence[Block] | Callable[[Run], Sequence[Block]]

_reviewed = Sequential("reviewed", [prepare, review], description="Prepare it, and have it reviewed.")


def _agent(name: str, *calls: RequestedCall, tools: Tools, policies: list[Policy] | None = None) -> Agent:
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
        _agent("either_or_default", call("either_or_default"), tools=[either_or_default]),
        _agent("either_or_end", call("either_or_end"), tools=[either_or_end]),
        _agent("doubting", call("doubting"), tools=[doubting]),
        _agent("doubting_either", call("doubting_either"), tools=lambda _: [doubting_either]),
        _agent("pay_if_told", call("pay_if_told"), tools=[pay_if_told]),
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
