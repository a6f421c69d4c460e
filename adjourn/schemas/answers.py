"""Answers and receipts: the wire of the resume queue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adjourn.schemas.record import Record, Version1

ANSWER_VERSION = 1

AnswerKind = Literal["submit", "cancel", "fail"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Prose = Annotated[str, Field(max_length=10_000)]


class Answer(Record):
    """One answer to one pending action, as it travels on the resume queue.

    `data` is only read of a `submit`. Left out it is different from `null`; `has_data` tells.
    """

    v: Version1 = 1
    action_id: Name
    """The action's id, or the request id that its tool chose."""
    kind: AnswerKind = "submit"
    data: Any = None
    reason: Prose | None = None
    """Why it was cancelled."""
    message: Prose | None = None
    """Why it could not be answered."""
    answer_id: Name | None = None
    """The sender's own id for this answer, scoped to its action. Without one, the digest of the content."""
    name: Name | None = None
    """If given, must be the action's `tool.wait_point`."""
    credential: str | None = Field(default=None, max_length=4_000, repr=False)
    """Proof of who answers, where the action asks for one. Never stored."""

    @property
    def has_data(self) -> bool:
        return "data" in self.model_fields_set


class ShortAnswer(Record):
    """The short form, `{id, ok, data, reason}`: `ok: true` submits, `ok: false` cancels.

    With an `answer_id` it is told from a later one that says the same, though a tool uses its request id again.
    """

    id: Name
    ok: bool
    data: dict[str, Any] | None = None
    reason: Prose | None = None
    answer_id: Name | None = None

    def to_answer(self) -> Answer:
        if self.ok:
            return Answer(action_id=self.id, kind="submit", data=self.data, answer_id=self.answer_id)
        return Answer(action_id=self.id, kind="cancel", reason=self.reason, answer_id=self.answer_id)


ReceiptStatus = Literal[
    "accepted", "duplicate", "early", "invalid", "late", "unknown", "forbidden", "malformed", "too_large"
]


class Issue(Record):
    """What is wrong with the data of an answer, and where."""

    path: str
    """JSON pointer; empty for the whole document."""
    message: str


class Receipt(Record):
    """What became of an answer.

    `accepted`: it is the action's answer now. `duplicate`: it already was. `early`: the action
    is not open yet; the answer is kept, and judged when it opens. `invalid`: the data does not
    fit (`issues`), the action still waits. `late`: the action had ended, `action_status` says
    how. `unknown`: no such action. `forbidden`: not from this sender. `malformed`, `too_large`:
    never read as an answer.
    """

    v: Version1 = 1
    status: ReceiptStatus
    action_id: str | None = None
    answer_id: str | None = None
    run_id: str | None = None
    action_status: str | None = None
    detail: str = ""
    issues: tuple[Issue, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the sender may forget the answer."""
        return self.status in ("accepted", "duplicate", "early")
