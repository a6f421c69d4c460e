"""Items: the durable, append-only records of a run. What is not an item did not happen.

Each item is one JSON document with a `kind`. Items are written once and never changed; the
conversation of every later turn is rebuilt from them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, cast

from pydantic import Field, TypeAdapter

from adjourn.schemas.records.actions import ActionStatus, Approved, Resolution
from adjourn.schemas.records.messages import Outcome, ToolCall, Usage
from adjourn.schemas.records.record import Record
from adjourn.schemas.strict_json import clean, clean_text

ROOT: Final = "root"
"""The call id of the block that a run executes. A step's is that of its sequence, a slash, and its name."""

EndStatus = Literal["completed", "failed", "cancelled"]
"""How a run ends. Its status then never changes again, except by a retry."""

_NULL: Final = "null"


class MessageItem(Record):
    """What a user said, or the input of the run's block: the first item of every run."""

    kind: Literal["message"] = "message"
    text: str
    data: Any = None
    """The input, where it is more than text; then `text` is its JSON."""

    @classmethod
    def of_text(cls, text: str) -> MessageItem:
        """Of an input that is text."""
        return cls(text=text, data=text if text == _NULL else None)

    @property
    def input(self) -> Any:
        """The input of the run's block. The text `null` is told from JSON's null by its `data`."""
        return self.text if self.data is None and self.text != _NULL else self.data


class ResponseItem(Record):
    """A model response, written before any of its tools runs."""

    kind: Literal["response"] = "response"
    call_id: str = ROOT
    """The call of the agent that asked."""
    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    finish_reason: str | None = None
    raw: str | None = None
    provider: str | None = None
    prompt: str | None = None
    """What the agent's function `user` made of its input, in the first response to it. Later requests repeat it."""


class OutputItem(Record):
    """The one result of a tool call. Once it is there the tool never runs again."""

    kind: Literal["output"] = "output"
    call_id: str
    tool: str
    outcome: Outcome
    content: Any
    """JSON; what the model reads."""
    approvals: tuple[Approved, ...] = ()
    """The approvals of the call, in their order."""
    cache_key: str | None = None
    """Of a cacheable tool: a digest of the tool and the input that it ran with. A later call may reuse the output."""


class CorrectionItem(Record):
    """What an agent is told because its response did not have the form that was asked for."""

    kind: Literal["correction"] = "correction"
    call_id: str = ROOT
    text: str


class RouteItem(Record):
    """Which route a router took, written before anything of it runs."""

    kind: Literal["route"] = "route"
    call_id: str
    route: str


class StartItem(Record):
    """A pass of a body began (for tools whose death in the middle must not go unnoticed), or a block was let in."""

    kind: Literal["start"] = "start"
    call_id: str
    taken_back: bool = False
    """True if the start before it counts no more: the pass ended where its code no longer fits what is recorded."""


class MemoItem(Record):
    """What `run_once(key, …)` returned under a tool call."""

    kind: Literal["memo"] = "memo"
    call_id: str
    key: str
    value: Any


class SuspensionItem(Record):
    """A wait was opened."""

    kind: Literal["suspension"] = "suspension"
    call_id: str
    action_id: str
    name: str


class GivenAnswer(Record):
    """What an answer said, and how it came in. As in the action's `Resolution`."""

    resume: Any = None
    """The value: the data of a submit, or the default of an expired wait that has one."""
    data: Any = None
    """What a cancel or a fail said beside its reason."""
    reason: str | None = None
    message: str | None = None
    channel: str | None = None

    @classmethod
    def of(cls, ended: Resolution) -> GivenAnswer:
        return cls(
            resume=ended.resume, data=ended.data, reason=ended.reason, message=ended.message, channel=ended.channel
        )


class ResolutionItem(Record):
    """A wait ended. This is the audit record of an answer: who, when (the item's time), which, what digest.

    What was answered is stored once, with the action. A client that reads items gets it here too: see `answer`.
    """

    kind: Literal["resolution"] = "resolution"
    call_id: str
    action_id: str
    status: ActionStatus
    answer_id: str | None = None
    answered_by: str | None = None
    digest: str | None = None
    answer: GivenAnswer | None = None
    """What was answered. Never stored; `None` in items that a worker loads, and if the action no longer exists."""


class FaultItem(Record):
    """The model could not be asked; the run tries again later."""

    kind: Literal["fault"] = "fault"
    call_id: str = ROOT
    message: str


class EndItem(Record):
    """The run ended."""

    kind: Literal["end"] = "end"
    status: EndStatus
    error: RunFailure | None = None


class RetryItem(Record):
    """A failed run goes on: the end before this one counts no more."""

    kind: Literal["retry"] = "retry"
    by: str | None = None
    """Who wanted it, as far as that is known."""


class ReopeningItem(Record):
    """A wait is open again: no worker could read its answer, after a retry of the run either.

    Nothing but the pinned schema had validated that answer, because the type of the wait is known to the body alone.
    It is kept here. Of waits that the answer had closed, which are open again as well, nothing but the id is said.
    """

    kind: Literal["reopening"] = "reopening"
    call_id: str
    action_id: str
    problem: str | None = None
    """Why the answer could not be read."""
    answer_id: str | None = None
    answered_by: str | None = None
    answer: GivenAnswer | None = None
    """What was answered."""


class DamagedItem(Record):
    """Stands where an item is stored that cannot be read. It is never stored itself."""

    kind: Literal["damaged"] = "damaged"
    problem: str


class RunFailure(Record):
    """Why a run failed: the error's class name and message, and its data."""

    type: str
    message: str
    data: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception) -> RunFailure:
        """An error as it is stored: its class, its message and its plain attributes."""
        attributes = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(error).items()
            if isinstance(value, str | int | float | bool | None)
            or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))
        }
        return cls(
            type=type(error).__name__,
            message=clean_text(str(error)),
            data=cast(dict[str, Any], clean(attributes)),
        )


ItemBody = Annotated[
    MessageItem
    | ResponseItem
    | CorrectionItem
    | RouteItem
    | OutputItem
    | StartItem
    | MemoItem
    | SuspensionItem
    | ResolutionItem
    | FaultItem
    | EndItem
    | RetryItem
    | ReopeningItem
    | DamagedItem,
    Field(discriminator="kind"),
]

ITEM: TypeAdapter[ItemBody] = TypeAdapter(ItemBody)


def stored(body: ItemBody) -> str:
    """An item as it is stored: JSON with its kind first, and without what is as it is by default.

    A long history is read anew for every turn, and most of what an item could say it does not. So a
    default of an item, or of what it holds, never changes: stored items mean it.
    """
    said = ITEM.dump_json(body, exclude_defaults=True).decode()
    return f'{{"kind":"{body.kind}"{"," if len(said) > len("{}") else ""}{said[1:]}'


class Item(Record):
    """An item in its place."""

    run_id: str
    seq: int
    """From 1, without gaps within a run."""
    at: datetime
    body: ItemBody

    def with_answer(self, ended: Resolution | None) -> Item:
        """The item of a resolution with what was answered. Unchanged if its action ended in another way since."""
        body = self.body
        if not isinstance(body, ResolutionItem) or ended is None or not ended.same_answer(body.status, body.answer_id):
            return self
        return self.model_copy(update={"body": body.model_copy(update={"answer": GivenAnswer.of(ended)})})


class StoredItem(NamedTuple):
    """An item in its place, for who drives a run: when it was written is nothing to go by."""

    run_id: str
    seq: int
    body: ItemBody


class Recorded(Protocol):
    """What an item in its place has, whether it says when it was written (`Item`) or not (`StoredItem`)."""

    @property
    def run_id(self) -> str: ...

    @property
    def seq(self) -> int: ...

    @property
    def body(self) -> ItemBody: ...
