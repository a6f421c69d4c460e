"""How the earlier waits of a call ended, as its body reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from adjourn.schemas.contracts.unset import without
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import AnswerFailed, Declined, Expired, Refused, StoredValueError, ValidationIssue
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.entries import Entry, Initial, RefusedEntry, Resume, SuspendRecord
from adjourn.schemas.records.wait_points import WaitPoint

_ADHOC_SUSPEND: Contract[Any] = Contract.of(dict[str, Any] | None)


def has_value(state: ActionState) -> bool:
    """Whether the wait ended with a value: a submit, or a deadline that has a default."""
    ended = state.resolution
    return ended is not None and (
        ended.status == "submitted" or (ended.status == "expired" and state.on_timeout == "default")
    )


class Load(Protocol):
    """Reads a recorded value, which `what` names, and `state` if it is an answer. Raises `StoredValueError`."""

    def __call__(self, contract: Contract[Any], data: Any, what: str, state: ActionState | None = None) -> Any: ...


def unreadable(
    where: str,
    what: str,
    contract: Contract[Any],
    issues: Sequence[ValidationIssue],
    state: ActionState | None,
    schema: dict[str, Any] | None = None,
) -> StoredValueError:
    """The error of a recorded value that `contract` cannot read: of the answer of `state`, if there is one.

    `schema` is the one that the value fitted, by default that of the answer.
    """
    if state is None:
        return StoredValueError(where, what, issues)
    pinned, ended = schema or state.action.resume_schema, state.resolution
    same = contract.reads(pinned)
    asks_again = ended is not None and ended.status == "submitted" and (same or contract.reads_all(pinned))
    action_id = state.action.id if asks_again else None
    return StoredValueError(where, what, issues, same_schema=same, action_id=action_id)


def answer_of(state: ActionState) -> str:
    """The value that a wait ended with, as an error names it."""
    said = "the default" if state.resolution and state.resolution.status == "expired" else "the answer"
    return f"{said} of wait point {state.action.origin.wait_point!r} (action {state.action.id})"


def entry_of(
    actions: Sequence[ActionState], resume_contract: Callable[[ActionState], Contract[Any]], load: Load
) -> Entry:
    """Why the body runs again after these waits. `resume_contract` gives the type of the answer to each."""
    # A wait that the answer to another one closed is not why the body runs.
    last = next((state for state in reversed(actions) if not is_closed_by_answer(state)), None)
    if last is None or last.resolution is None:
        return Initial()
    # A copy: questions are matched by the action, and a body may change what it is given.
    action = last.action.model_copy(deep=True)
    ended, wait = last.resolution, last.action.origin.wait_point
    if ended.status == "submitted" or has_value(last):
        resume = load(resume_contract(last), ended.resume, answer_of(last), last)
        return Resume(name=wait, resume=resume, reason=ended.reason, action=action)
    said = {"reason": ended.reason, "message": ended.message, "data": ended.data}
    return RefusedEntry(name=wait, status=ended.status, **said, action=action)


def is_closed_by_answer(state: ActionState) -> bool:
    """True if the wait was closed because another one of the same `ask_any` was answered first."""
    ended = state.resolution
    return state.any_of is not None and ended is not None and ended.status == "cancelled" and ended.answer_id is None


def refusal_of(state: ActionState) -> Refused | None:
    """The refusal that a wait ended with; None while it is pending, or if it ended with a value."""
    ended, action = state.resolution, state.action
    if ended is None or has_value(state):
        return None
    if ended.status == "cancelled":
        return Declined(action.id, action.name, action.prompt, ended.reason, ended.data)
    if ended.status == "failed":
        return AnswerFailed(action.id, action.name, ended.message or ended.reason or "no message", ended.data)
    return Expired(action.id, action.name, action.prompt)


def record_of(
    state: ActionState,
    wait_points: Mapping[str, WaitPoint[Any, Any]],
    resume_contract: Callable[[ActionState], Contract[Any]],
    load: Load,
) -> SuspendRecord[Any, Any]:
    """A wait as `suspend_history` shows it."""
    point = wait_points.get(state.action.origin.wait_point)
    ended = state.resolution
    resume = ended.resume if ended else None
    if ended and has_value(state):
        resume = load(resume_contract(state), resume, answer_of(state), state)
    asked = f"the suspend data of wait point {state.action.origin.wait_point!r} (action {state.action.id})"
    suspend = point.suspend if point else _ADHOC_SUSPEND
    return SuspendRecord(
        name=state.action.origin.wait_point,
        status=ended.status if ended else "pending",
        suspended_at=state.action.opened_at,
        input=load(suspend, without(state.action.input, state.unset), asked),
        resolved_at=ended.resolved_at if ended else None,
        resume=resume,
        data=ended.data if ended else None,
        reason=ended.reason if ended else None,
        message=ended.message if ended else None,
        answered_by=ended.answered_by if ended else None,
    )
