"""What a caller asked for."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.errors.base import AdjournError, shown, shown_id
from adjourn.schemas.errors.values import ValidationIssue


class RequestError(AdjournError):
    """Base of refusals to a client."""


class ThreadBusyError(RequestError, RuntimeError):
    """The thread has a run that has not ended."""

    def __init__(self, thread_id: str, run_id: str, status: str) -> None:
        super().__init__(
            f"thread busy: {thread_id} has run {run_id} ({status}); wait for it, or send with "
            "when_busy='enqueue' or 'supersede'"
        )
        self.thread_id = thread_id
        self.run_id = run_id
        self.status = status


class RunIdClashError(RequestError, ValueError):
    """A run has this id already, and it was started by another request. Nothing was done."""

    def __init__(self, run_id: str, differing: tuple[str, ...]) -> None:
        super().__init__(
            f"run {run_id} is there already and was started with another {' and another '.join(differing)}; "
            "send the same request again, or use a new run id"
        )
        self.run_id = run_id
        self.differing = differing
        """The arguments that differ: `agent`, `message`, `thread_id`, `limits`."""


class IllegalArgumentError(RequestError, ValueError):
    """What a caller gave is nothing that the method takes. Nothing was done."""

    def __init__(self, what: str, given: object, remedy: str) -> None:
        super().__init__(f"{what} cannot be {shown(given)}; {remedy}")
        self.what = what
        self.remedy = remedy


class IllegalIdError(RequestError, ValueError):
    """An id of the caller's own has characters, or a length, that cannot be stored or shown everywhere."""

    def __init__(self, what: str, id: object) -> None:
        super().__init__(f"{what} {shown(id)} is not legal; use 1 to 100 letters, digits and any of . _ : -")
        self.what = what
        self.id = id


class NotFoundError(RequestError, LookupError):
    """There is no such run, thread or action."""

    def __init__(self, what: str, id: object) -> None:
        super().__init__(f"no {what} {shown_id(id)}")
        self.what = what
        self.id = id


class UnusableHandleError(RequestError, RuntimeError):
    """A handle cannot do what it was asked to. `thread_id` is the handle's, or that of the root of its tree."""

    def __init__(self, thread_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"handle {thread_id}: {problem}; {remedy}")
        self.thread_id = thread_id
        self.problem = problem
        self.remedy = remedy


class HandleClashError(UnusableHandleError, RunIdClashError):
    """The thread of a handle has a run, or a handle, of another agent. Nothing was done.

    `run_id` is that run; empty if the same tree has spawned the thread for the other agent.
    """

    def __init__(self, thread_id: str, agent: str, wanted: str, run_id: str | None) -> None:
        problem = f"{'was given' if run_id is None else f'has run {run_id}'} for agent {agent!r}, not {wanted!r}"
        remedy = "spawn it under another name, or use the thread that is there: client.thread(thread_id)"
        AdjournError.__init__(self, f"handle {thread_id}: {problem}; {remedy}")
        self.thread_id = thread_id
        self.problem = problem
        self.remedy = remedy
        self.run_id = run_id or ""
        self.differing = ("agent",)


class ForkRefusedError(RequestError, RuntimeError):
    """The thread cannot be forked like this."""

    def __init__(self, thread_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"thread {thread_id} cannot be forked: {problem}; {remedy}")
        self.thread_id = thread_id
        self.problem = problem
        self.remedy = remedy


class ChildRunError(RequestError, RuntimeError):
    """A run that another run started is not retried by itself: its parent has been told how it ended."""

    def __init__(self, run_id: str, parent_run_id: str) -> None:
        super().__init__(
            f"run {run_id} was started by run {parent_run_id}, which has been told; retry the run at the root"
        )
        self.run_id = run_id
        self.parent_run_id = parent_run_id


class NotRetryableError(RequestError, RuntimeError):
    """The run has not failed, or what failed it lies in the run: it would come to the same end."""

    def __init__(self, run_id: str, status: str, error: str | None) -> None:
        failed = status == "failed"
        super().__init__(
            f"run {run_id} is {status}"
            + (f" with {error}, which is its outcome; start a new run" if failed else "; only a failed run is retried")
        )
        self.run_id = run_id
        self.status = status
        self.error = error


class AnswerRefusedError(RequestError, ValueError):
    """An answer sent by a client was not accepted. `status` and `issues` are the receipt's."""

    def __init__(self, action_id: object, status: str, detail: str, issues: Sequence[ValidationIssue] = ()) -> None:
        super().__init__(f"answer to {shown_id(action_id)} refused ({status}): {detail}")
        self.action_id = action_id
        self.status = status
        self.issues = tuple(issues)


class CredentialError(RequestError, ValueError):
    """A credential does not prove what it should. `reason` never quotes it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"credential refused: {reason}; ask for a new one")
        self.reason = reason


class RunEndedError(RequestError, RuntimeError):
    """A client waited for something that cannot come any more: the run has ended otherwise. `status` says how."""

    def __init__(self, run_id: str, status: str, reason: str | None) -> None:
        super().__init__(f"run {run_id} is {status}" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.status = status
        self.reason = reason


class WaitTimeoutError(RequestError, TimeoutError):
    """What a client waited for did not come in time. Nothing was changed by waiting."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not come within {seconds:g} s; the run goes on without you")
        self.what = what
        self.seconds = seconds
