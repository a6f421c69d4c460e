"""What the simulated agent can do: a tool for every way to wait, to remember and to fail; and its script.

Every pass of a body, every effect and every answer that a tool is handed is shown to the witness.
Answers are numbers that occur once, so one that ends up in the wrong place is seen there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel

from adjourn import Agent, App, Context, SubAgent, Tool, WaitPoint, client_tool, tool
from adjourn.schemas.errors import Refused
from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.entries import Initial
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, RequestedCall, UserTurn
from adjourn.tasks.blocks.tools import Recovered
from adjourn.tasks.models.scripted import USAGE, ScriptedModel, call_raw, responses_so_far
from tests.simulation.stage import here

AGENT: Final = "agent"
DEADLINE: Final = timedelta(minutes=10)
DEFAULT: Final = -1
"""What a wait with a default answers when its deadline has passed."""


class Question(BaseModel):
    number: int
    turn: int


class Number(BaseModel):
    value: int


def wait_points() -> list[WaitPoint[Any, Any]]:
    """One for each thing that can become of a wait."""
    both: dict[str, Any] = {"suspend": Question, "resume": Number}
    return [
        WaitPoint("patient", **both),
        WaitPoint("fatal", **both, timeout=DEADLINE),
        WaitPoint("mild", **both, timeout=DEADLINE, on_timeout="error"),
        WaitPoint("lenient", **both, timeout=DEADLINE, default=Number(value=DEFAULT)),
        WaitPoint("own", **both, answerers=["ann"]),
    ]


POINTS: Final = tuple(point.name for point in wait_points())


class Asked(BaseModel):
    """What every tool is called with."""

    number: int
    """Which call of the seed."""
    points: list[str] = []
    """Where it waits, one after the other."""
    tolerant: bool = True
    """Whether it handles refusals."""


def ask(ctx: Context, turn: int, **options: Any) -> int | str:
    """One wait, inline; what came of it."""
    asked: Asked = ctx.input
    try:
        value: int = ctx.ask(asked.points[turn], Question(number=asked.number, turn=turn), **options).value
    except Refused as refused:
        here().witness.step_input(ctx, turn, None)
        if not asked.tolerant:
            raise
        return type(refused).__name__
    here().witness.step_input(ctx, turn, value)
    return value


def waits(ctx: Context) -> list[int | str]:
    return [ask(ctx, turn) for turn in range(len(ctx.input.points))]


@tool(input=Asked)
def plain(ctx: Context) -> int:
    with here().witness.body(ctx):
        return here().effect(ctx)


@tool(input=Asked, exclusive=True)
def alone(ctx: Context) -> int:
    with here().witness.body(ctx):
        return here().effect(ctx)


@tool(input=Asked, retries=2)
def flaky(ctx: Context) -> int:
    with here().witness.body(ctx):
        if here().dice.random() < 0.5:
            raise RuntimeError("this time it did not work")
        return here().effect(ctx)


@tool(input=Asked)
def lethal(ctx: Context) -> int:
    with here().witness.body(ctx):
        here().lethal()
        return here().effect(ctx)


@tool(input=Asked, cacheable=True)
def known(ctx: Context) -> int:
    with here().witness.body(ctx):
        return here().effect(ctx)


@tool(input=Asked, wait_points=wait_points())
def gate(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        got = waits(ctx)
        here().effect(ctx)
        return got


@tool(input=Asked, wait_points=wait_points())
async def async_gate(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        got = waits(ctx)
        here().effect(ctx)
        return got


@tool(input=Asked, wait_points=wait_points())
def ticketed(ctx: Context) -> list[int | str]:
    """Its waits have ids of its own choice, which another's may have as well."""
    with here().witness.body(ctx):
        asked: Asked = ctx.input
        return [ask(ctx, turn, request_id=f"ticket-{asked.number % 2}") for turn in range(len(asked.points))]


def by_history(ctx: Context) -> list[int | str]:
    """Entry style: wait for one after the other, by what was waited for before."""
    asked: Asked = ctx.input
    history = ctx.suspend_history
    assert isinstance(ctx.entry, Initial) == (not history)
    if len(history) < len(asked.points):
        ctx.suspend(asked.points[len(history)], Question(number=asked.number, turn=len(history)))
    got = [REFUSALS[each.status] if each.resume is None else each.resume.value for each in history]
    for turn, each in enumerate(history):
        here().witness.step_input(ctx, turn, None if each.resume is None else each.resume.value)
    here().effect(ctx)
    return got


@tool(input=Asked, wait_points=wait_points())
def desk(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        return by_history(ctx)


@tool(input=Asked, wait_points=wait_points(), reenter_on=["cancelled", "failed", "expired"])
def open_desk(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        return by_history(ctx)


@tool(input=Asked, wait_points=wait_points())
def once(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        first = ctx.run_once("first", lambda: here().memo(ctx, "first"))
        got = waits(ctx)
        return [first, *got, ctx.run_once("second", lambda: here().memo(ctx, "second"))]


@tool(input=Asked, wait_points=wait_points())
def herald(ctx: Context) -> list[int | str]:
    """Tells the ids of its waits before it opens them."""
    with here().witness.body(ctx):
        got: list[int | str] = []
        for turn, point in enumerate(ctx.input.points):
            here().announce(ctx.action_id(point))
            got.append(ask(ctx, turn))
        return got


@tool(input=Asked, wait_points=wait_points())
def moody(ctx: Context) -> list[int | str]:
    """Sometimes asks another question than it asked before, which fails its run."""
    with here().witness.body(ctx):
        asked: Asked = ctx.input
        changed = bool(ctx.suspend_history) and here().dice.random() < 0.3
        return [
            ctx.ask(point, Question(number=asked.number + changed, turn=turn)).value
            for turn, point in enumerate(asked.points)
        ]


@tool(input=Asked, wait_points=wait_points())
def stubborn(ctx: Context) -> int:
    """Does not let itself be suspended."""
    with here().witness.body(ctx):
        try:
            return len(waits(ctx))
        except BaseException:
            return 0


@tool(input=Asked, repeatable=False)
def careful(ctx: Context) -> int:
    with here().witness.body(ctx):
        return here().effect(ctx)


@tool(input=Asked, repeatable=False, wait_points=wait_points())
def careful_gate(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        got = waits(ctx)
        here().effect(ctx)
        return got


def look_up(ctx: Context) -> Recovered[int] | None:
    """Whether the effect is there."""
    done = here().witness.effects.get(ctx.idempotency_key)
    here().point("verify")
    return Recovered(ctx.input.number) if done else None


@tool(input=Asked, verify=look_up)
def proven(ctx: Context) -> int:
    with here().witness.body(ctx):
        return here().effect(ctx)


def clerk(action: PendingAction) -> Answer | None:
    """Answers some waits on the spot, some with nonsense, and fails at others."""
    here().point("resolver")
    match here().dice.randrange(4):
        case 0:
            return None
        case 1:
            raise RuntimeError("the clerk is out")
        case 2:
            return Answer(action_id=action.id, data={"value": "much"})
    return Answer(action_id=action.id, data={"value": here().people.new_value()})


@tool(input=Asked, wait_points=wait_points(), resolver=clerk)
def helped(ctx: Context) -> list[int | str]:
    with here().witness.body(ctx):
        return waits(ctx)


device = client_tool("device", description="On the client.", input=Asked, output=Number)

TOOLS: Final[tuple[Tool[..., Any], ...]] = (
    plain, alone, flaky, known, gate, async_gate, ticketed, desk, open_desk, once, herald, moody, stubborn,
    careful, careful_gate, proven, helped, lethal, device,
)  # fmt: skip
DELEGATE: Final = "delegate"
"""The call that hands a plan to a run of its own."""
NAMES: Final = (*(each.name for each in TOOLS), DELEGATE)
BY_NAME: Final = {each.name: each for each in TOOLS}
NEVER_IN_ERROR: Final = frozenset(NAMES) - {"flaky", "stubborn", DELEGATE}
OUT_OF_ORDER: Final = "the provider is out of order"
REFUSALS: Final = {"cancelled": "Declined", "failed": "AnswerFailed", "expired": "Expired"}


def expected(name: str, args: dict[str, Any], states: Sequence[ActionState]) -> Any:
    """What a successful call has to give, by what was recorded of its waits."""
    if name == DELEGATE:
        told = states[-1].resolution
        return told and told.resume["output"]
    values: list[int | str] = []
    for state in states:
        ended = state.resolution
        if ended is None:
            continue
        if state.action.kind == "outcome":
            if ended.resume and ended.resume["happened"]:
                return ended.resume["output"]
            continue
        values.append(REFUSALS[ended.status] if ended.resume is None else ended.resume["value"])
    match name:
        case "device":
            return {"value": values[0]}
        case "plain" | "alone" | "flaky" | "known" | "careful" | "proven" | "lethal":
            return args["number"]
        case "stubborn":
            return 0
        case "once":
            return [f"first {args['number']}", *values, f"second {args['number']}"]
    return values


_OF_A_CHILD: Final = tuple(name for name in NAMES if name != DELEGATE)
"""What a child may do: one level of children shows all that there is to see."""

# --- the model ---------------------------------------------------------------------------------

Plan = list[list[dict[str, Any]]]
"""Of a run: for each turn its calls, each with `tool`, its arguments as text, and the provider's id for it."""


def plan(dice: random.Random, names: Sequence[str], new_number: Callable[[], int]) -> Plan:
    """What a run's model will ask for."""
    return [
        [_planned_call(dice, names, new_number) for _ in range(dice.choice([1, 1, 2, 3]))]
        for _ in range(dice.choice([0, 1, 1, 2]))
    ]


def _planned_call(dice: random.Random, names: Sequence[str], new_number: Callable[[], int]) -> dict[str, Any]:
    args = {
        "number": new_number(),
        "points": dice.choices(POINTS, k=dice.choice([0, 1, 1, 1, 2, 3])),
        "tolerant": dice.random() < 0.7,
    }
    name, text = dice.choice(names), json.dumps(args)
    if name == DELEGATE:
        text = json.dumps({"task": message(f"task {args['number']}", plan(dice, _OF_A_CHILD, new_number))})
    if name == "known":  # only an equal call is known
        text = '{"number": 0}'
    if dice.random() < 0.05:
        name, text = dice.choice([("no such tool", text), (name, "{"), (name, "{}")])
    return {"tool": name, "args": text, "id": dice.choice([None, "", "call", "ünlegal"])}


def message(run_id: str, plan: Plan) -> str:
    """The user's message that makes the model follow a plan."""
    return json.dumps({"run": run_id, "plan": plan})


def script(request: ModelRequest) -> ModelResponse:
    """The next response of the run's plan."""
    messages = [turn for turn in request.conversation if isinstance(turn, UserTurn)]
    told = json.loads(messages[-1].text)
    step = responses_so_far(request)
    here().model(here().run_named(told["run"], messages[-1].text), step, len(messages))
    calls: list[RequestedCall] = []
    if step < len(told["plan"]):
        calls = [call_raw(each["tool"], each["args"], id=each["id"]) for each in told["plan"][step]]
    return ModelResponse(text=f"{told['run']} {step}", calls=tuple(calls), usage=USAGE)


CHILD: Final = Agent("child", model=ScriptedModel(script), tools=TOOLS)
APP: Final = App(agents=[Agent(AGENT, model=ScriptedModel(script), tools=[*TOOLS, SubAgent(CHILD, name=DELEGATE)])])
