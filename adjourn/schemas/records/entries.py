"""Why a tool body runs (`ctx.entry`, in short `ctx.answer`), and its earlier waits (`ctx.suspend_history`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from adjourn.schemas.records.actions import ActionStatus, PendingAction
from adjourn.schemas.records.record import Record

SuspendT = TypeVar("SuspendT")
ResumeT = TypeVar("ResumeT")


class Initial(Record):
    """The first pass: nothing was asked yet."""

    kind: Literal["initial"] = "initial"


class Resume(Record, Generic[ResumeT]):
    """The tool re-enters with an answer. `resume` is the wait point's resume model, not raw JSON.

    `ctx.entry` cannot know of which wait point, so its `resume` is `Any`; `ctx.resumed(point)` can.
    """

    kind: Literal["resume"] = "resume"
    name: str
    """The wait point, as the tool named it."""
    resume: ResumeT
    reason: str | None = None
    """What the person who answered said beside the value."""
    action: PendingAction


class RefusedEntry(Record):
    """The tool re-enters because its wait ended without a submit. Only for tools that opted in."""

    kind: Literal["refused"] = "refused"
    name: str
    status: Literal["cancelled", "failed", "expired"]
    reason: str | None = None
    message: str | None = None
    data: Any = None
    """What was said beside the reason, as JSON. No schema applies to it."""
    action: PendingAction


Entry = Initial | Resume[Any] | RefusedEntry


class RequestAnswer(Record):
    """What became of a request, in short (`ctx.answer`)."""

    id: str
    """The id that the tool chose for the request, or else the action's."""
    ok: bool
    """Whether there is an answer. False only for tools that re-enter on refusals; `ctx.entry` says on which."""
    data: Any = None
    """What was answered, in the wait point's resume model; of a request an object or `None`.

    With `ok` false, what the refusal said beside its reason, as JSON.
    """
    reason: str | None = None
    """Why, in the words of the person who answered. A yes may have one too."""


class SuspendRecord(Record, Generic[SuspendT, ResumeT]):
    """One earlier wait of this call. Typed by its wait point in `ctx.history(point)`."""

    name: str
    """The wait point."""
    status: ActionStatus
    suspended_at: datetime
    input: SuspendT
    """The suspend data in the wait point's suspend model."""
    resolved_at: datetime | None = None
    resume: ResumeT | None = None
    """Typed, of a submitted wait."""
    data: Any = None
    """What a refusal said beside its reason, as JSON."""
    reason: str | None = None
    message: str | None = None
    answered_by: str | None = None
