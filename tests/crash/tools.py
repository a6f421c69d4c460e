"""The tools of the scenarios and what they ask. Each writes down what it does (`ledger`)."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, field_validator

from adjourn import (
    Answer,
    Context,
    PendingAction,
    PolicyCall,
    Question,
    Recovered,
    RequireApproval,
    WaitPoint,
    client_tool,
    tool,
)
from adjourn.schemas.records.entries import Resume
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
defaulting = WaitPoint("defaulting", suspend=Ask, resume=Reply, timeout=DEADLINE, default=Reply(value="by default"))
ending = WaitPoint("ending", suspend=Ask, resume=Reply, timeout=DEADLINE, on_timeout="fail_run")


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
    return _first_of(ctx, "either", first, second)


def _first_of(ctx: Context, name: str, *points: WaitPoint[Ask, Any]) -> str:
    _note(ctx, "body", name)
    came = ctx.ask_any(*(Question(point, Ask(prompt=f"{point.name}?")) for point in points))
    _note(ctx, "answer", came.question.point.name, came.answer.value)
    _note(ctx, "effect", name)
    return str(came.answer.value)


@tool(wait_points=[first, defaulting])
def either_or_default(ctx: Context) -> str:
    """Ask two people. The deadline of one of them has a default."""
    return _first_of(ctx, "either_or_default", first, defaulting)


@tool(wait_points=[first, ending])
def either_or_end(ctx: Context) -> str:
    """Ask two people. The deadline of one of them fails the run."""
    return _first_of(ctx, "either_or_end", first, ending)


@tool(wait_points=[fragile, second])
def doubting_either(ctx: Context) -> str:
    """Ask two people. As a tool of the run: only the body can validate the first answer."""
    return _first_of(ctx, "doubting_either", fragile, second)


def _ask_undeclared(ctx: Context) -> str:
    value = ctx.ask(reason="doubt", message="doubt?", resume=Fragile).value
    _note(ctx, "answer", "doubt", value)
    return value


@tool
def doubting(ctx: Context) -> str:
    """Ask at an undeclared wait: only the body can validate the answer."""
    _note(ctx, "body", "doubting")
    value = _ask_undeclared(ctx)
    _note(ctx, "effect", "doubting")
    return value


@tool(repeatable=False)
def pay_if_told(ctx: Context) -> str:
    """Ask at an undeclared wait, then do what must never be done twice."""
    _note(ctx, "body", "pay_if_told")
    value = _ask_undeclared(ctx)
    _note(ctx, "effect", "pay_if_told")
    return value


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
