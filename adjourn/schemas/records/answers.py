"""Answers and receipts: the wire of the resume queue."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, JsonValue
from pydantic_core import PydanticCustomError, to_jsonable_python

from adjourn.schemas.errors import MalformedJsonError
from adjourn.schemas.records.record import Record, Version1
from adjourn.schemas.strict_json import canonical

ANSWER_VERSION = 1

AnswerKind = Literal["submit", "cancel", "fail"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
MAX_PROSE: Final = 10_000
Prose = Annotated[str, Field(max_length=MAX_PROSE)]


def id_text(value: Any) -> str:
    """Return an id as text: itself, or its JSON (`7` becomes `"7"`), with the keys of an object in order.

    A tool may choose an id that is not text, and a program may answer with it. Raises `ValueError`
    (`PydanticCustomError`) for `null` and for a value without JSON form: these name no action.
    """
    if isinstance(value, str):
        return value
    try:
        document = to_jsonable_python(value)
        canonical(document)
    except (ValueError, MalformedJsonError):
        document = None
    if document is None:
        problem = "an id is text, or another JSON value that is not null; got {what}"
        raise PydanticCustomError("id_type", problem, {"what": "null" if value is None else type(value).__name__})
    return document if isinstance(document, str) else canonical(document).decode()


Id = Annotated[Name, BeforeValidator(id_text, json_schema_input_type=Annotated[JsonValue, Field()])]


class Answer(Record):
    """One answer to one pending action, as it travels on the resume queue.

    A submit is validated by its `data`: left out it is different from `null`; `has_data` tells. All that an answer
    says is kept, whatever its kind: a submit may have a `reason`, and a cancel `data`, which no schema restricts.
    """

    v: Version1 = 1
    action_id: Name
    """The action's id, or the request id that its tool chose."""
    kind: AnswerKind = "submit"
    data: Any = None
    reason: Prose | None = None
    """Why the answer is what it is: of a cancel, why it was declined."""
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

    All of it is kept: an `ok: false` may have `data`, and an `ok: true` a `reason`. An `id` that is not text is taken
    as its JSON. With an `answer_id` it is told from a later one that says the same, though a tool uses
    its request id again.
    """

    id: Id
    ok: bool
    data: dict[str, Any] | None = None
    reason: Prose | None = None
    answer_id: Name | None = None

    def to_answer(self) -> Answer:
        said: dict[str, Any] = {"action_id": self.id, "reason": self.reason, "answer_id": self.answer_id}
        if self.ok or self.data is not None:
            said["data"] = self.data
        return Answer(kind="submit" if self.ok else "cancel", **said)


ReceiptStatus = Literal[
    "accepted", "duplicate", "early", "kept", "invalid", "late", "unknown", "forbidden", "malformed", "too_large"
]


class Issue(Record):
    """What is wrong with the data of an answer, and where."""

    path: str
    """JSON pointer; empty for the whole document."""
    message: str


class Receipt(Record):
    """What became of an answer.

    `accepted`: it is the action's answer now. `duplicate`: it already was. `early`: the action
    is not open yet; the answer is kept, and judged when it opens. `kept`: it fits the schema, and
    is kept; a worker with the app has yet to validate it, and may find it invalid or late. `invalid`: the data does not
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
        return self.status in ("accepted", "duplicate", "early", "kept")
