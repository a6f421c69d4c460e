"""Policies: what an agent's owner says of a call before its tool runs, without touching the tool.

A policy is a function of the call. It lets the call pass, denies it, or demands an approval, which is a
pending action `tool.call_approval`. An approval is of one call alone: of its tool, with its arguments, as
they were shown. What the policies of an agent together make of a call is in `adjourn.tasks.engine.approvals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, create_model

from adjourn.schemas.contracts.definition_checks import check_flag, check_function, check_text
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.actions import ActionState, Approved, OnTimeout
from adjourn.schemas.records.runs import Run
from adjourn.schemas.records.wait_points import UNSET, Unset, WaitPoint, checked_answerers
from adjourn.schemas.strict_json import JsonValue, digest
from adjourn.tasks.blocks.block import Block, arguments_type
from adjourn.tasks.context.facade import has_value

APPROVAL_WAIT_POINT: Final = "call_approval"
"""The action that an approval waits as is `tool.call_approval`."""


@dataclass(frozen=True)
class PolicyCall:
    """A call that is judged."""

    agent: str
    tool: str
    args: dict[str, Any]
    """The arguments as the body will get them: what the model left out has its default here."""
    run: Run
    """With what it has used so far."""


@dataclass(frozen=True)
class RequireApproval:
    """The call runs if somebody approves it.

    With `edit` the answer may change the arguments, within the tool's input schema. `timeout`, `on_timeout`,
    `default` and `answerers` are those of a wait point, but that a deadline is an `error` unless it is told otherwise.
    An `error` is a denial. A default is an answer, such as `{"approved": False}`.
    """

    prompt: str | None = None
    edit: bool = False
    timeout: timedelta | None = None
    on_timeout: OnTimeout | Unset = UNSET
    default: Any = UNSET
    answerers: Sequence[str] | None = None

    def __post_init__(self) -> None:
        # Read once: it may be a generator, and the demand is compared and asked from it.
        object.__setattr__(self, "answerers", checked_answerers("approval", self.answerers))


@dataclass(frozen=True)
class Deny:
    """The call does not run, and the model reads why."""

    reason: str


Verdict = RequireApproval | Deny | None
Policy = Callable[[PolicyCall], Verdict]


@dataclass(frozen=True)
class ToolApproval:
    """What `require_approval` makes: a policy that names the tools it is for, so that an agent can tell a typo."""

    tools: tuple[str, ...]
    """None: all of them."""
    when: Callable[[PolicyCall], bool] | None
    approval: RequireApproval
    """What it demands."""

    def __call__(self, call: PolicyCall) -> Verdict:
        if self.tools and call.tool not in self.tools:
            return None
        if self.when is not None and not self.when(call):
            return None
        return self.approval


def require_approval(
    *tools: str,
    when: Callable[[PolicyCall], bool] | None = None,
    prompt: str | None = None,
    edit: bool = False,
    timeout: timedelta | None = None,
    on_timeout: OnTimeout | Unset = UNSET,
    default: Any = UNSET,
    answerers: Sequence[str] | None = None,
) -> Policy:
    """A policy that demands an approval: for the tools named, or all; where `when` says so, or always.

    Its agent has to have the tools that are named, or it cannot be made: a name that is no tool's would gate
    nothing. An agent whose tools are a function of the run has to have them in every run, or the run
    fails; for a tool that some runs lack, name none, and let `when` look at the call.

    `prompt`, `edit`, `timeout`, `on_timeout`, `default` and `answerers` are those of a `RequireApproval`.

    Raises `DefinitionError` for a name that is not text: it would meet no call, and let all of them pass. And for
    terms that no wait point could have.
    """
    if unnamed := [each for each in tools if not isinstance(each, str)]:
        raise DefinitionError("require_approval", f"{unnamed[0]!r} is no name", "give the names of the tools")
    check_function("require_approval", "when", when)
    check_text("require_approval", "prompt", prompt)
    approval = RequireApproval(
        prompt=prompt, edit=edit, timeout=timeout, on_timeout=on_timeout, default=default, answerers=answerers
    )
    approval_wait_point(approval, dict[str, Any])  # a mistake in the terms shows here, and not at the first call
    return ToolApproval(tools, when, approval)


def check_names(policies: Iterable[Policy], tools: Collection[str], where: str) -> None:
    """Raise `DefinitionError` for a demanded approval of what is none of these tools."""
    for policy in policies:
        named = policy.tools if isinstance(policy, ToolApproval) else ()
        if unknown := [name for name in named if name not in tools]:
            problem = f"an approval is demanded for {unknown[0]!r}, and its tools are: {', '.join(tools) or 'none'}"
            raise DefinitionError(where, problem, "name one of them in require_approval")


class ShownCall(BaseModel):
    """What whoever approves is shown: the call that will run."""

    prompt: str
    tool: str
    args: dict[str, Any]


class PartlyShownCall(ShownCall):
    """A call with a default that has no JSON which is read back as it is."""

    not_shown: list[str]
    """Parameters that the body gets with a default which is not in `args`, or that hold such a default."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CallDecision(_Strict):
    """The answer to a demanded approval."""

    approved: bool
    comment: str | None = None


def approval_wait_point(
    approval: RequireApproval, input_type: Any, shown: type[ShownCall] = ShownCall
) -> WaitPoint[Any, Any]:
    """The wait point of an approval of a call whose input has this type. Raises `DefinitionError`.

    Edited arguments have the shape that is shown. Left out or null, they stay as they are.
    """
    check_flag("approval", "edit", approval.edit)
    answer: Any = CallDecision
    if approval.edit:
        answer = create_model(
            "EditedCallDecision", __base__=CallDecision, args=(arguments_type(Contract.of(input_type)) | None, None)
        )
    asked: WaitPoint[Any, Any] = WaitPoint(APPROVAL_WAIT_POINT, suspend=shown, resume=answer, kind="approval")
    on_timeout = approval.on_timeout
    if approval.timeout is not None and on_timeout is UNSET and approval.default is UNSET:
        on_timeout = "error"
    return asked.with_terms("approval", approval.timeout, on_timeout, approval.default, approval.answerers)


def is_approval(state: ActionState) -> bool:
    """Whether this action is a policy's, and none of the tool's own waits."""
    return state.style == "policy"


def input_of(block: Block, args: dict[str, Any], actions: Iterable[ActionState]) -> JsonValue:
    """What a call runs with: its own arguments, or those that were shown to the person who approved it, or edited."""
    value = block.called(args)
    for state in actions:
        if is_approval(state) and is_yes(state):
            value = approved_input(block, state)
    return value


def is_yes(state: ActionState) -> bool:
    """True if a person approved the call."""
    return state.resolution is not None and has_value(state) and state.resolution.resume["approved"] is True


def approved_input(block: Block, state: ActionState) -> JsonValue:
    """The input that a person approved: as it was shown, or as they edited it."""
    assert state.resolution is not None
    edited = state.resolution.resume.get("args")
    return block.called(state.action.input["args"] if edited is None else edited)


def edit_of(actions: Iterable[ActionState]) -> ActionState | None:
    """The approval whose edit the call runs with; None if it runs with what the model gave."""
    edits = [
        state
        for state in actions
        if is_approval(state) and is_yes(state) and state.resolution and state.resolution.resume.get("args") is not None
    ]
    return edits[-1] if edits else None


def approvals_of(block: Block | None, actions: Iterable[ActionState]) -> tuple[Approved, ...]:
    """The approvals of a call, as its tool and its model read them."""
    if block is None:
        return ()
    found = []
    for state in actions:
        if is_approval(state) and is_yes(state):
            assert state.resolution is not None
            value = approved_input(block, state)
            changed = digest(value) != digest(block.called(state.action.input["args"]))
            found.append(
                Approved(
                    by=state.resolution.answered_by,
                    by_deadline=state.resolution.status == "expired",
                    comment=state.resolution.resume.get("comment"),
                    args=block.args_of(value) if changed else None,
                )
            )
    return tuple(found)
