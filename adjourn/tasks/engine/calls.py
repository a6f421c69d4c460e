"""What a call comes to before any body runs: closed at once, held up, let in, or ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import PayloadError, RoundTripError, StoredValueError, ToolChangedError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.tasks.blocks.block import Block, Composite
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT, AskOutcome, asks_outcome, outcome_wait_point
from adjourn.tasks.blocks.policies import approvals_of, edit_of, is_approval
from adjourn.tasks.blocks.sub_agents import SubAgent
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.context.earlier_waits import answer_of, unreadable
from adjourn.tasks.context.facade import Context, PassRecord, Recorder, has_value, refusal_of, wait_of
from adjourn.tasks.engine.activities import OpenCall, input_named
from adjourn.tasks.engine.approvals import held_by_policies
from adjourn.tasks.engine.compatibility import changes_since_wait
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.origins import input_schema_of, origin_of
from adjourn.tasks.engine.results import Output, Suspended, refusal


@dataclass(frozen=True)
class Ready:
    """The body has to run. Its input fits, and is read anew for every pass: a body may change what it is given."""

    tool: Tool[..., Any]
    call: OpenCall


@dataclass(frozen=True)
class Lost(Ready):
    """The last pass of the body died: find out what it had done before it may run again."""


@dataclass(frozen=True)
class LetIn:
    """A block without a body of its own may be walked into."""


@dataclass(frozen=True)
class Delegate:
    """The call hands a task to a run of its own."""

    block: SubAgent
    call: OpenCall


Planned = Ready | LetIn | Delegate | Output | Suspended


def plan(open_call: OpenCall, view: View, recorder: Recorder) -> Planned:
    """What becomes of an open call that does not wait.

    Raises `ToolChangedError` if the call has waited and its tool is not the one it was, and
    `StoredValueError` if this code cannot read what is recorded of the call.
    """
    call, block = open_call.call, open_call.block
    ensure_unchanged(open_call)
    if call.fault is not None:
        return Output("error", call.fault)
    if block is None:
        known = ", ".join(open_call.siblings) or "none"
        return Output("error", f"there is no tool {call.misnamed or call.tool!r}; the tools are: {known}")
    if is_begun(open_call):
        ensure_readable(open_call)
    else:
        try:
            block.input.validate_input(open_call.input, f"tool {block.name!r}")
        except PayloadError as error:
            if open_call.of_step is not None:
                raise _unreadable_input(open_call, error) from None
            return refusal(error)
    held = held_by_policies(open_call, view, recorder)
    if held is not None:
        return held
    if isinstance(block, Composite):
        return LetIn()
    if isinstance(block, SubAgent):
        return Delegate(block, open_call)
    assert isinstance(block, Tool)
    return _plan_body(Ready(block, open_call), view)


def with_made_defaults(response: ResponseItem, tools: Mapping[str, Block]) -> ResponseItem:
    """The response with the defaults that functions make in the arguments of its calls.

    Made once, when the call is recorded: policies, approvers and every pass of the body see the same value.
    """
    made = tuple(_with_made_defaults(call, tools.get(call.tool)) for call in response.calls)
    return response if made == response.calls else response.model_copy(update={"calls": made})


def _with_made_defaults(call: ToolCall, block: Block | None) -> ToolCall:
    if block is None or call.fault is not None or call.misnamed is not None or not block.input.makes_values:
        return call
    try:
        _, value = block.input.canonical(block.called(call.args), f"tool {block.name!r}")
    except PayloadError:
        return call  # `plan` says what is wrong with it
    return call.model_copy(update={"args": block.args_of(value)})


def _plan_body(ready: Ready, view: View) -> Ready | Output:
    """What becomes of a call of a tool that no policy holds up."""
    tool, open_call = ready.tool, ready.call
    actions = [state for state in open_call.actions if not is_approval(state)]
    last = actions[-1] if actions else None
    if open_call.died and tool.marks_start:
        # Before what an operator said: that was about a pass before this one.
        return Lost(tool, open_call)
    if last is not None and asks_outcome(last):
        return _told_by_operator(last) or ready
    refused = refusal_of(last) if last is not None and last.style == "entry" else None
    if last is not None and refused is not None and last.action.status not in tool.options.reenter_on:
        return refusal(refused)
    cached = view.earlier_output(tool, open_call.input) if tool.options.cacheable else None
    return ready if cached is None else Output(cached.outcome, cached.content)


# --- passes -------------------------------------------------------------------------------------


def ask_operator(lost: Lost, view: View, recorder: Recorder) -> Suspended:
    """The wait for an operator who knows what became of the call."""
    ctx = _context(lost, lost.call.actions, view, recorder, PassRecord())
    asked = AskOutcome(
        prompt=f"A worker died inside {lost.tool.name}. Had the tool done its work?",
        input=lost.call.call.args,
        idempotency_key=ctx.idempotency_key,
    )
    return Suspended((wait_of(ctx, lost.tool.wait_points[OUTCOME_WAIT_POINT], asked),))


def _told_by_operator(state: ActionState) -> Output | None:
    """What the operator said became of the call; None if it may run again."""
    refused = refusal_of(state)
    if refused is not None:
        return Output("interrupted", f"its worker died inside it, and what became of it is unknown ({refused})")
    said = state.resolution.resume if state.resolution else {}
    return Output("success", said["output"]) if said["happened"] else None


def context_for(ready: Ready, view: View, recorder: Recorder, record: PassRecord) -> Context:
    """A fresh context for one pass of the body."""
    own = tuple(state for state in ready.call.actions if not asks_outcome(state) and not is_approval(state))
    return _context(ready, own, view, recorder, record)


def _context(
    ready: Ready, actions: tuple[ActionState, ...], view: View, recorder: Recorder, record: PassRecord
) -> Context:
    try:
        input = ready.tool.input.load(ready.call.input, f"tool {ready.tool.name!r}")
    except PayloadError as error:
        # `plan` has read it: a validator, or a function that makes a default, does not always decide the same.
        if is_begun(ready.call) or ready.call.of_step is not None:
            raise _unreadable_input(ready.call, error) from None
        raise
    return Context(
        call=ready.call.call,
        input=input,
        tool=ready.call.place.path[-1],
        wait_points=ready.tool.wait_points,
        fingerprint=ready.tool.fingerprint,
        input_schema=input_schema_of(ready.tool),
        function=ready.tool.function,
        origin=lambda wait_point: origin_of(ready.call, view, wait_point),
        actions=actions,
        memos=ready.call.memos,
        recorder=recorder,
        record=record,
        approvals=approvals_of(ready.call.block, ready.call.actions),
    )


def ensure_unchanged(open_call: OpenCall) -> None:
    """Raise `ToolChangedError` if the call has waited and a change of its tool may break what is recorded of it."""
    if not open_call.actions:
        return
    block, waited = open_call.block, open_call.actions[-1]
    name = waited.action.origin.tool
    if block is None:
        raise ToolChangedError(name, ["there is no such tool any more"])
    if changed := changes_since_wait(open_call, block):
        raise ToolChangedError(name, changed)


def is_begun(open_call: OpenCall) -> bool:
    """True if something of the call is recorded that must not be dropped: a wait, a result, a pass that died."""
    return bool(open_call.actions or open_call.memos or open_call.died)


def ensure_readable(open_call: OpenCall) -> None:
    """Raise `StoredValueError` if this code cannot read what is recorded for a call: an answer, or its input.

    The input is recorded once the call has begun, or if it is the output of another step. An answer of a wait point
    that the tool does not declare is read where the body asks for it.
    """
    block = open_call.block
    if block is None or not (is_begun(open_call) or open_call.of_step is not None):
        return
    where = f"{open_call.place.path[-1]} ({open_call.call.id})"
    _ensure_input_read(block, open_call, where)
    wait_points = block.wait_points if isinstance(block, Tool) else {}
    for state in open_call.actions:
        point = (
            outcome_wait_point(block.output.type)
            if asks_outcome(state)
            else wait_points.get(state.action.origin.wait_point)
        )
        if point is not None and state.resolution is not None and not is_approval(state) and has_value(state):
            _ensure_answer_read(point.resume, state.resolution.resume, where, state)


def _unreadable_input(open_call: OpenCall, error: PayloadError) -> StoredValueError:
    where = f"{open_call.place.path[-1]} ({open_call.call.id})"
    return StoredValueError(where, input_named(open_call.of_step), error.issues)


def _ensure_input_read(block: Block, open_call: OpenCall, where: str) -> None:
    try:
        block.input.load(open_call.input)
        return
    except RoundTripError as error:
        issues = error.issues
    edited = edit_of(open_call.actions)
    if edited is not None:
        raise unreadable(
            where, f"what {answer_of(edited)} made of the input", block.input, issues, edited, edited.input_schema
        )
    pinned = open_call.actions[-1].input_schema if open_call.actions else None
    same = pinned is not None and block.input.reads(pinned)
    raise StoredValueError(where, input_named(open_call.of_step), issues, same_schema=same)


def _ensure_answer_read(contract: Contract[Any], data: Any, where: str, state: ActionState) -> None:
    try:
        contract.load(data)
        return
    except RoundTripError as error:
        issues = error.issues
    raise unreadable(where, answer_of(state), contract, issues, state)
