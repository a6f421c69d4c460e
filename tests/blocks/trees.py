"""Grows a tree of blocks from a seed. Everything that its blocks do follows from the seed and from their input.

Owns the blocks, what their models say, what their policies hold of a call and what people answer.
What happens outside of a run (effects, requests to models) is told to a `Scene`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import BaseModel

from adjourn import (
    Agent,
    App,
    Context,
    Deny,
    ModelRequest,
    Parallel,
    PendingAction,
    PolicyCall,
    RequireApproval,
    Router,
    Sequential,
    Tool,
    WaitPoint,
    tool,
)
from adjourn.schemas.errors import Refused
from adjourn.schemas.records.messages import ModelResponse, ModelTurn, RequestedCall, ToolSpec, UserTurn
from adjourn.tasks.blocks.agents import FINAL_TOOL
from adjourn.tasks.blocks.block import INPUT_KEY, Block
from adjourn.tasks.blocks.policies import Policy
from adjourn.tasks.context.facade import Suspension
from adjourn.tasks.models.scripted import USAGE, ScriptedModel, call_raw

DEEPEST: Final = 3
"""Levels of blocks made of blocks."""
STYLES: Final = ("plain", "inline", "inline", "entry", "beside", "beside", "broken")


class Scene(Protocol):
    """The world outside of a run."""

    def effect(self, ctx: Context, tool: str) -> None:
        """A body does what it is there for."""

    def once(self, ctx: Context) -> None:
        """A body does what it guards with `run_once`."""

    def asked(self, agent: str, request: ModelRequest) -> None:
        """A model is asked."""


class Question(BaseModel):
    of: str
    turn: int


class Reply(BaseModel):
    value: str


class Report(BaseModel):
    title: str


POINTS: Final = tuple(WaitPoint(name, suspend=Question, resume=Reply) for name in ("left", "right"))


@dataclass(frozen=True)
class Shape:
    """What a handler is like."""

    style: str
    waits: int
    once: bool
    tolerant: bool
    """Whether it handles refusals."""
    is_async: bool
    exclusive: bool


def short(*values: Any) -> str:
    """A few characters that stand for values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def app_of(seed: int, scene: Scene) -> tuple[App, str]:
    """An app with one tree, and the name of its root."""
    root = _Grower(seed, scene).tree(0)
    return App(blocks=[root]), root.name


class _Grower:
    def __init__(self, seed: int, scene: Scene) -> None:
        self._dice = random.Random(f"tree {seed}")
        self._scene = scene
        self._grown = 0

    def tree(self, depth: int) -> Block:
        """A block of any kind."""
        kinds = {"handler": 1.0 + 3.0 * depth}
        if depth < DEEPEST:
            kinds |= {"agent": 3.0, "sequence": 3.0, "parallel": 2.0, "router": 1.0}
        [kind] = self._dice.choices([*kinds], [*kinds.values()])
        self._grown += 1
        grow: Callable[[str, int], Block] = getattr(self, f"_{kind}")
        return grow(f"{kind}-{self._grown}", depth + 1)

    def _some(self, depth: int, counts: list[int]) -> list[Block]:
        return [self.tree(depth) for _ in range(self._dice.choice(counts))]

    # --- blocks made of blocks -----------------------------------------------------------------

    def _sequence(self, name: str, depth: int) -> Block:
        return Sequential(name, self._some(depth, [1, 2, 2, 3]))

    def _parallel(self, name: str, depth: int) -> Block:
        return Parallel(name, self._some(depth, [2, 2, 3]), input=Any)

    def _router(self, name: str, depth: int) -> Block:
        routes = self._some(depth, [2, 3])
        return Router(name, routes, lambda value: routes[int(short(value), 16) % len(routes)], input=Any)

    def _agent(self, name: str, depth: int) -> Block:
        dice, tools = self._dice, self._some(depth, [1, 2, 3])
        by_function = dice.random() < 0.3
        return Agent(
            name,
            ScriptedModel(_script(name, dice.choice([0, 1, 1, 2]), self._scene)),
            tools=(lambda run: tools) if by_function else tools,
            input_type=Any,
            output_type=Report if dice.random() < 0.3 else str,
            policies=[_policy(name)] if dice.random() < 0.4 else [],
        )

    # --- handlers ------------------------------------------------------------------------------

    def _handler(self, name: str, depth: int) -> Block:
        dice = self._dice
        style = dice.choice(STYLES if dice.random() < 0.8 else ("inline",))
        shape = Shape(
            style=style,
            waits=0 if style in ("plain", "broken") else dice.choice([1, 1, 2, 3]),
            once=dice.random() < 0.4,
            tolerant=dice.random() < 0.5,
            is_async=dice.random() < 0.3,
            exclusive=dice.random() < 0.15,
        )
        return _handler(name, shape, self._scene)


def _handler(name: str, shape: Shape, scene: Scene) -> Tool[..., Any]:
    def work(ctx: Context, value: Any) -> str:
        kept = ctx.run_once("kept", lambda: _keep(ctx, scene)) if shape.once else ""
        got = WAYS[shape.style](ctx, shape)
        scene.effect(ctx, name)
        if shape.style == "broken" and int(short(name, value), 16) % 4 == 0:
            raise ValueError("it is broken")
        return f"{name} {short(value, kept, got)}"

    def sync_body(ctx: Context, value: Any) -> str:
        return work(ctx, value)

    async def async_body(ctx: Context, value: Any) -> str:
        return work(ctx, value)

    make = tool(
        name=name,
        wait_points=POINTS,
        exclusive=shape.exclusive,
        reenter_on=["cancelled", "failed", "expired"] if shape.tolerant else [],
    )
    return make(async_body) if shape.is_async else make(sync_body)


def _keep(ctx: Context, scene: Scene) -> str:
    scene.once(ctx)
    return f"kept {short(ctx.input.value)}"


def _question(ctx: Context, turn: int) -> Question:
    return Question(of=short(ctx.input.value), turn=turn)


def _ask(ctx: Context, shape: Shape, turn: int, key: str | None = None) -> str:
    try:
        return ctx.ask(POINTS[turn % 2], _question(ctx, turn), key=key).value
    except Refused as refused:
        if not shape.tolerant:
            raise
        return type(refused).__name__


def _no_wait(ctx: Context, shape: Shape) -> list[str]:
    return []


def _inline(ctx: Context, shape: Shape) -> list[str]:
    return [_ask(ctx, shape, turn) for turn in range(shape.waits)]


def _entry(ctx: Context, shape: Shape) -> list[str]:
    history = ctx.suspend_history
    if len(history) < shape.waits:
        ctx.suspend(POINTS[len(history) % 2], _question(ctx, len(history)))
    return [each.status if each.resume is None else each.resume.value for each in history]


def _beside(ctx: Context, shape: Shape) -> list[str]:
    """Several waits at once, and after them one more."""
    got: list[str] = []
    suspension: Suspension | None = None
    for turn in range(shape.waits):
        try:
            got.append(_ask(ctx, shape, turn, key=f"key {turn}"))
        except Suspension as raised:
            suspension = raised
    if suspension is not None:
        raise suspension
    return [*got, _ask(ctx, shape, shape.waits)]


WAYS: Final[dict[str, Callable[[Context, Shape], list[str]]]] = {
    "plain": _no_wait,
    "broken": _no_wait,
    "inline": _inline,
    "entry": _entry,
    "beside": _beside,
}

# --- models, policies and people -----------------------------------------------------------------


def _script(agent: str, turns: int, scene: Scene) -> Callable[[ModelRequest], ModelResponse]:
    """What a model says: calls for some turns, and then its last word."""

    def reply(request: ModelRequest) -> ModelResponse:
        scene.asked(agent, request)
        said = sum(isinstance(turn, ModelTurn) for turn in request.conversation)
        told = next(turn.text for turn in request.conversation if isinstance(turn, UserTurn))
        dice = random.Random(f"{agent} {told} {said}")
        formed = any(tool.name == FINAL_TOOL for tool in request.tools)
        tools = [tool for tool in request.tools if tool.name != FINAL_TOOL]
        calls: list[RequestedCall] = []
        if said < turns:
            drawn = dice.choices(tools, k=dice.choice([1, 1, 2, 3]))
            calls = [_call(tool, f"{agent}.{said}.{n} {short(told)}", dice) for n, tool in enumerate(drawn)]
        if formed and (said >= turns or dice.random() < 0.1):
            title = f"{agent} {short(told)}" if said > turns or dice.random() < 0.7 else 7
            calls.append(call_raw(FINAL_TOOL, json.dumps({"title": title})))
        told_of = ("content", "text", "outcome")
        heard = [{n: getattr(turn, n) for n in told_of if hasattr(turn, n)} for turn in request.conversation]
        return ModelResponse(text=f"{agent} has heard {short(heard)}", calls=tuple(calls), usage=USAGE)

    return reply


def _call(tool: ToolSpec, value: str, dice: random.Random) -> RequestedCall:
    (parameter,) = tool.input_schema["properties"]
    name, args = tool.name, json.dumps({parameter: value})
    if dice.random() < 0.05:
        name, args = dice.choice([("no such tool", args), (name, "{"), (name, "{}")])
    return call_raw(name, args, id=dice.choice([None, "", "same"]))


def _policy(agent: str) -> Policy:
    def policy(call: PolicyCall) -> RequireApproval | Deny | None:
        match int(short(agent, call.tool, call.args), 16) % 5:
            case 0:
                return Deny("not today")
            case 1:
                return RequireApproval()
            case 2:
                return RequireApproval(edit=True)
        return None

    return policy


def answer_to(action: PendingAction) -> dict[str, Any]:
    """What people answer, as fields of an answer: it follows from what they are asked."""
    number = int(short(action.name, action.input, action.origin.block_path), 16)
    match number % 10:
        case 0:
            return {"kind": "cancel", "reason": f"no {number}"}
        case 1:
            return {"kind": "fail", "message": f"cannot {number}"}
    if action.kind != "approval":
        return {"data": {"value": f"answer {number}"}}
    decision: dict[str, Any] = {"approved": number % 4 != 0, "comment": f"said {number}"}
    if "args" in action.resume_schema["properties"] and number % 3 == 0:
        edited = f"edited {number}"
        decision["args"] = edited if INPUT_KEY in action.input["args"] else {"value": edited}
    return {"data": decision}
