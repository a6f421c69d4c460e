"""Pending actions: one open wait each, as clients see it and as it is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.record import Record

ActionStatus = Literal["pending", "submitted", "cancelled", "failed", "expired"]
OnTimeout = Literal["fail_run", "error", "default"]
Style = Literal["entry", "inline", "policy", "task"]
"""Who waits: the tool, by `ctx.suspend` or `ctx.ask`, a policy in front of it, or a sub-agent for its run."""


class Origin(Record):
    """Where an action comes from."""

    tool: str
    wait_point: str
    tool_call_id: str
    message_id: str
    """`run_id:seq` of the response item that holds the call."""
    run_id: str
    thread_id: str
    block_path: tuple[str, ...]
    """Names from the root block down to the tool."""


class Child(Record):
    """The run that a wait has started, and that answers it by its end. Nobody else can."""

    run_id: str
    thread_id: str
    agent: str
    """The block that it executes."""
    caller: str = "root"
    """The call of the agent that has handed it over, as in the items of that one's responses (`items.ROOT`)."""
    key: str
    """The task key: a call of the same caller and agent with the same key is about this run."""
    digest: str
    """Of its input: the same key with another input is another task, and refused."""
    text: str
    data: Any = None
    """Its input, as of a message."""
    limits: Limits
    """Its share of what its parent may use, or its own."""
    is_share: bool = True
    """Whether they are a share, of which no other child gets any meanwhile."""
    path: tuple[str, ...]
    """Names from the root block of the root run down to the call."""
    root_thread_id: str
    depth: int
    """How many runs are above it."""
    group: str
    """Of the calls that its parent waits for together: those of one response, or one step."""
    ends_parent: bool = False
    """Whether its parent fails unless it completes: then it waits for no sibling."""


class Shown(Record):
    """What a wait shows to the person or program that answers it."""

    id: str
    request_id: str | None = None
    """The id that the tool chose, if it did."""
    name: str
    """`tool.wait_point`."""
    kind: str | None = None
    prompt: str | None = None
    input: Any
    """The suspend data, as JSON."""
    resume_schema: dict[str, Any]
    """JSON Schema that the data of a submit has to fit."""
    suspend_schema: dict[str, Any] | None = None
    """JSON Schema of `input`, as `suspend_schema.compact` makes it. `None` in the record in Redis."""
    schema_decides: bool = False
    """True if data that fits `resume_schema` is always accepted. If false, a worker with the app validates it too."""
    origin: Origin
    answerers: tuple[str, ...] | None = None
    """Who may answer. `None` means everybody whom the channel lets in."""
    note: str | None = None
    """Why the question is asked again, for the person who answers."""


class Matched(Record):
    """How a pass finds the answer to its question again, and what the engine does when the wait ends."""

    style: Style
    ordinal: int
    """Which ask of this wait point (and key) within the call, from 0."""
    key: str | None = None
    digest: str
    """Of the suspend data: an inline answer is only given back to the same question."""
    on_timeout: OnTimeout = "fail_run"
    fingerprint: dict[str, str]
    """Digests of the tool's contract when it suspended, by part."""
    input_schema: dict[str, Any] | None = None
    """The schema of the call's input when it suspended, without annotations."""
    child: Child | None = None
    """The run that is started with the wait and that ends it. Then it is no question to anybody."""
    unset: tuple[tuple[str | int, ...], ...] = ()
    """The paths in the suspend data of fields that the tool did not set. They show their defaults."""
    any_of: str | None = None
    """The group of waits of one `ask_any`: the first answer to one of them closes the others."""
    demanded_by: tuple[str, ...] = ()
    """The policies that demanded this approval."""
    resume_type: dict[str, Any] | None = None
    """The names that make up the answer type of an undeclared wait (`tasks.context.undeclared_types`)."""


class PendingAction(Shown):
    """An action as clients see it, with what they need to answer it."""

    status: ActionStatus
    opened_at: datetime
    expires_at: datetime | None = None


class Resolution(Record):
    """How an action ended."""

    status: Literal["submitted", "cancelled", "failed", "expired"]
    resolved_at: datetime
    resume: Any = None
    """The data of a submit, or the typed default of an expired wait that has one."""
    data: Any = None
    """What a cancel or a fail said beside its reason. No schema applies to it."""
    reason: str | None = None
    """Why it was answered like this, in the words of the person who answered, or why it was closed."""
    message: str | None = None
    """Why it could not be answered. Of a fail."""
    answered_by: str | None = None
    """The identity of the person or program that answered, where the channel or a credential proves one."""
    channel: str | None = None
    """How the answer came in: `client`, `resume` (the queue), `resolver` (a resolver), `early` (before the action
    was open). `None` if there was no answer: the deadline passed, or the run ended."""
    answer_id: str | None = None

    def same_answer(self, status: ActionStatus, answer_id: str | None) -> bool:
        """True if a resolution item with these values recorded this resolution, and not an earlier one.

        A retry opens a wait again that was closed with its run, so one action can have several of these items.
        """
        return (self.status, self.answer_id) == (status, answer_id)


class ActionState(Matched):
    """An action as the engine needs it: what clients see, how it is matched, how it ended."""

    action: PendingAction
    resolution: Resolution | None = None


class Approved(Record):
    """A person's yes to a call, as the tool and the model read it."""

    by: str | None = None
    """Who approved, as far as the channel knows."""
    by_deadline: bool = False
    """True if nobody did: the deadline passed, and the policy had named a default."""
    comment: str | None = None
    args: dict[str, Any] | None = None
    """The arguments that this person put in place of those shown; None if they were left as they are."""


class NewAction(Shown, Matched):
    """A wait before it is stored. The database gives the times."""

    timeout_seconds: float | None = None
    default: Any = None
    """What `on_timeout = "default"` answers, as JSON."""
    announced: bool = False
    """True if its id was handed out before the suspend, so that an early answer may be there already."""

    def opened(
        self,
        opened_at: datetime,
        expires_at: datetime | None,
        *,
        status: ActionStatus = "pending",
        resolution: Resolution | None = None,
    ) -> ActionState:
        """Return the action that this wait has become."""
        shown = {name: getattr(self, name) for name in Shown.model_fields}
        matched = {name: getattr(self, name) for name in Matched.model_fields}
        action = PendingAction(**shown, status=status, opened_at=opened_at, expires_at=expires_at)
        return ActionState(**matched, action=action, resolution=resolution)
