"""What the handle of a thread or run returns: the result of a wait, the requests in it, a snapshot. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import PrivateAttr

from adjourn.schemas.errors import UnusableHandleError
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Receipt
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run
from adjourn.schemas.strict_json import dumps

HandleState = Literal["idle", "running", "suspended", "done", "failed"]
ResultStatus = Literal["pending", "done", "failed"]


@runtime_checkable
class Answerable(Protocol):
    """An action that is connected to a client."""

    def submit(
        self,
        data: Any = None,
        *,
        reason: str | None = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    def cancel(
        self,
        reason: str | None = None,
        *,
        data: Any = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    def fail(
        self,
        message: str | BaseException,
        *,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...


class PendingRequest(Record):
    """What a suspended handle waits for: the action, in the words of who has to answer it."""

    id: str
    """What an answer names: the id that the tool chose, or else the action's."""
    action_id: str
    """Names this action and no other, where a tool has used its own id more than once."""
    name: str
    """`tool.wait_point`."""
    kind: str | None
    prompt: str | None
    data: Any
    """The suspend data, as JSON."""
    path: tuple[str, ...]
    """Names from the root block of the run at the root down to the tool that waits."""
    run_id: str
    thread_id: str
    """Of the run that waits."""
    resume_schema: dict[str, Any]
    """JSON Schema that the data of an answer has to fit."""
    suspend_schema: dict[str, Any] | None = None
    """JSON Schema of `data`."""
    expires_at: datetime | None
    _action: Answerable | None = PrivateAttr(default=None)

    def submit(
        self,
        data: Any = None,
        *,
        reason: str | None = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Answer with `data`, as `Action.submit`. Raises `AnswerRefusedError`; the request then still waits."""
        who: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._answerable().submit(data, reason=reason, **who)

    def cancel(
        self,
        reason: str | None = None,
        *,
        data: Any = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Decline, as `Action.cancel`. Raises `AnswerRefusedError`."""
        who: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._answerable().cancel(reason, data=data, **who)

    def fail(
        self,
        message: str | BaseException,
        *,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Say that it cannot be answered, and why, in a text or by an exception. Raises `AnswerRefusedError`."""
        who: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._answerable().fail(message, **who)

    def _answerable(self) -> Answerable:
        if self._action is None:
            remedy = "answer it with Client.resume() or Client.submit()"
            raise UnusableHandleError(self.thread_id, f"gave request {self.id} without a client", remedy)
        return self._action

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingRequest) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # its data is not hashable

    @classmethod
    def of(cls, action: PendingAction) -> PendingRequest:
        request = cls(
            id=action.request_id or action.id,
            action_id=action.id,
            name=action.name,
            kind=action.kind,
            prompt=action.prompt,
            data=action.input,
            path=action.origin.block_path,
            run_id=action.origin.run_id,
            thread_id=action.origin.thread_id,
            resume_schema=action.resume_schema,
            suspend_schema=action.suspend_schema,
            expires_at=action.expires_at,
        )
        request._action = action if isinstance(action, Answerable) else None
        return request


class Result(Record):
    """The result of a wait.

    `pending`: it waits for answers to `requests`. `done`: it has answered with `output`, whatever it was told on
    the way; a denial is part of that. `failed`: it has ended with `error`.
    """

    status: ResultStatus
    run_id: str
    output: Any = None
    error: RunFailure | None = None
    requests: tuple[PendingRequest, ...] = ()
    """Oldest first; several, where a turn has opened several waits at once."""

    @classmethod
    def ended(cls, run: Run) -> Result:
        """Of a run that has completed or failed."""
        if run.status == "completed":
            return cls(status="done", run_id=run.id, output=run.output)
        return cls(status="failed", run_id=run.id, error=run.error)

    @classmethod
    def suspended(cls, run: Run, pending: Sequence[PendingAction]) -> Result:
        """Of a parked run that waits for these."""
        return cls(status="pending", run_id=run.id, requests=tuple(map(PendingRequest.of, pending)))

    @property
    def pending(self) -> PendingRequest | None:
        """The oldest of the requests; `None` if it waits for none."""
        return self.requests[0] if self.requests else None

    @property
    def is_error(self) -> bool:
        """Whether it failed. A denial is no error."""
        return self.status == "failed"

    @property
    def text(self) -> str:
        """What it has to say: its output, as JSON if it is not text; why it failed; nothing while it is pending."""
        if self.error is not None:
            return self.error.message
        if self.status != "done":
            return ""
        return self.output if isinstance(self.output, str) else dumps(self.output)


class Snapshot(Record):
    """A thread in short, at one moment.

    By `state` it is

    - `idle`: it has no run yet, or it has answered. It does nothing until it gets a message.
    - `running`: a worker runs it, or will.
    - `suspended`: it needs an answer to one of `requests` to continue.
    - `failed`: its last run failed.
    - `done`: its last run was cancelled, or it was idle when its tree of handles was shut down.

    Except after a shutdown, every process sees the same state. A thread that is neither `running` nor `suspended` is
    free: it takes the next message, from a handle whose tree is not shut down.
    """

    thread_id: str
    agent: str | None
    state: HandleState
    usage_total: Usage = Usage()
    """Of all its runs. Totals only grow."""
    turns_total: int = 0
    """Model calls of all its runs."""
    requests: tuple[PendingRequest, ...] = ()
    """What it waits for, oldest first."""
    last_result: Result | None = None
    """Of its newest run that completed or failed."""

    @property
    def pending(self) -> PendingRequest | None:
        """The oldest of the requests; `None` if it waits for none."""
        return self.requests[0] if self.requests else None
