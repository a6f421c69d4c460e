"""What a call comes to before any body runs: closed at once, or ready to run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adjourn.schemas.actions import ActionState, Origin
from adjourn.schemas.errors import PayloadError, ToolChangedError
from adjourn.schemas.values import changes
from adjourn.tasks.app import Agent
from adjourn.tasks.body import Output, Suspended, refusal
from adjourn.tasks.context import Context, Recorder, Suspension, refusal_of
from adjourn.tasks.engine import OpenCall, View
from adjourn.tasks.outcome import OUTCOME_WAIT_POINT, AskOutcome, asks_outcome
from adjourn.tasks.tools import Tool


@dataclass(frozen=True)
class Ready:
    """The body has to run, with this input."""

    tool: Tool[..., Any]
    call: OpenCall
    input: Any


@dataclass(frozen=True)
class Lost(Ready):
    """The last pass of the body died: find out what it had done before it may run again."""


def plan(open_call: OpenCall, agent: Agent, view: View) -> Ready | Output:
    """What becomes of an open call that does not wait.

    Raises `ToolChangedError` if the call has waited and its tool is not the one it was.
    """
    call, actions = open_call.call, open_call.actions
    tool = agent.by_name.get(call.tool)
    if actions:
        _ensure_unchanged(tool, actions[-1])
    if call.fault is not None:
        return Output("error", call.fault)
    if tool is None:
        known = ", ".join(agent.by_name) or "none"
        return Output("error", f"there is no tool {call.tool!r}; the tools are: {known}")
    try:
        value = tool.input.validate_input(call.args, f"tool {tool.name!r}")
    except PayloadError as error:
        return refusal(error)
    if open_call.died and tool.marks_start:
        # Before what an operator said: that was about a pass before this one.
        return Lost(tool, open_call, value)
    if actions and asks_outcome(actions[-1]):
        return _told_by_operator(actions[-1]) or Ready(tool, open_call, value)
    refused = refusal_of(actions[-1]) if actions and actions[-1].style == "entry" else None
    if refused is not None and actions[-1].action.status not in tool.reenter_on:
        return refusal(refused)
    if tool.cacheable:
        cached = view.earlier_output(call)
        if cached is not None:
            return Output(cached.outcome, cached.content)
    return Ready(tool, open_call, value)


def ask_operator(lost: Lost, agent: Agent, view: View, recorder: Recorder) -> Suspended:
    """The wait for an operator who knows what became of the call."""
    ctx = _context(lost, lost.call.actions, agent, view, recorder)
    asked = AskOutcome(
        prompt=f"A worker died inside {lost.tool.name}. Had the tool done its work?",
        input=lost.call.call.args,
        idempotency_key=ctx.idempotency_key,
    )
    try:
        ctx.suspend(OUTCOME_WAIT_POINT, asked)
    except Suspension:
        return Suspended(tuple(ctx.opened))


def _told_by_operator(state: ActionState) -> Output | None:
    """What the operator said became of the call; None if it may run again."""
    refused = refusal_of(state)
    if refused is not None:
        return Output("interrupted", f"its worker died inside it, and what became of it is unknown ({refused})")
    said = state.resolution.resume if state.resolution else {}
    return Output("success", said["output"]) if said["happened"] else None


def context_for(ready: Ready, agent: Agent, view: View, recorder: Recorder) -> Context:
    """A fresh context for one pass of the body."""
    own = tuple(state for state in ready.call.actions if not asks_outcome(state))
    return _context(ready, own, agent, view, recorder)


def _context(ready: Ready, actions: tuple[ActionState, ...], agent: Agent, view: View, recorder: Recorder) -> Context:
    return Context(
        call=ready.call.call,
        input=ready.input,
        tool=ready.tool.name,
        wait_points=ready.tool.wait_points,
        fingerprint=ready.tool.fingerprint,
        origin=lambda wait_point: _origin(ready, agent, view, wait_point),
        actions=actions,
        memos=ready.call.memos,
        recorder=recorder,
    )


def _origin(ready: Ready, agent: Agent, view: View, wait_point: str) -> Origin:
    return Origin(
        tool=ready.tool.name,
        wait_point=wait_point,
        tool_call_id=ready.call.call.id,
        message_id=ready.call.message_id,
        run_id=view.run.id,
        thread_id=view.run.thread_id,
        block_path=(agent.name, ready.tool.name),
    )


def _ensure_unchanged(tool: Tool[..., Any] | None, waited: ActionState) -> None:
    name = waited.action.origin.tool
    if tool is None:
        raise ToolChangedError(name, ["the agent has no such tool any more"])
    old = waited.fingerprint
    if old != tool.fingerprint and old.get("version") not in tool.resumes_from:
        raise ToolChangedError(name, changes(old, tool.fingerprint))
