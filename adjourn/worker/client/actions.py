"""Actions and the states of threads as a client gives them out: records that can be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from adjourn.schemas.records import threads
from adjourn.schemas.records.actions import PendingAction, Resolution
from adjourn.schemas.records.answers import MAX_PROSE, Receipt
from adjourn.tasks.blocks.user_code import describe_error

if TYPE_CHECKING:
    from adjourn.worker.client.answers import AnswerCalls


class Action(PendingAction):
    """An action with the ways to end it. Two that say the same are equal, whichever client they come from."""

    resolution: Resolution | None = None
    """How it ended: the value, the reason or message, who answered and by which channel. `None` while it waits."""
    _client: AnswerCalls = PrivateAttr()

    @classmethod
    def of(cls, record: PendingAction, client: AnswerCalls, resolution: Resolution | None = None) -> Self:
        action = cls(**dict(record), resolution=resolution)
        action._client = client
        return action

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Action) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # its data is not hashable

    def submit(
        self,
        data: Any = None,
        *,
        reason: str | None = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Answer with `data`, JSON or a model. Raises `AnswerRefusedError`; the action then still waits."""
        said: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._client.submit(self.id, data, reason=reason, name=self.name, **said)

    def cancel(
        self,
        reason: str | None = None,
        *,
        data: Any = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Decline. See `Client.cancel`. Raises `AnswerRefusedError`."""
        said: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._client.cancel(self.id, reason=reason, data=data, **said)

    def fail(
        self,
        message: str | BaseException,
        *,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt:
        """Say that it cannot be answered, and why, in a text or by an exception. Raises `AnswerRefusedError`."""
        said: dict[str, Any] = {"answer_id": answer_id, "identity": identity, "credential": credential}
        return self._client.fail(self.id, message=message, **said)


class ThreadState(threads.ThreadState):
    """A snapshot of a thread whose pending actions can be answered."""

    pending: tuple[Action, ...]


def failure_text(message: str | BaseException) -> str:
    """What is sent for a failure: the text, or the class and message of an exception, cut to what an answer holds."""
    return describe_error(message)[:MAX_PROSE] if isinstance(message, BaseException) else message
