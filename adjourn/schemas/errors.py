"""The error tree. Every error that Adjourn raises on purpose is an `AdjournError`.

A message says what is wrong, where, and what to do; the data behind it is on the error as
attributes. `Suspension` is not here: a suspend is control flow, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class AdjournError(Exception):
    """Base of all errors of this package."""


_SHOWN: Final = 100
"""Characters of what a caller gave that a message repeats."""


def _shown(given: object) -> str:
    """In one short line, whatever it is."""
    try:
        said = repr(given[:_SHOWN] if isinstance(given, str | bytes) else given)
    except Exception:  # of code of its own
        said = f"a {type(given).__name__} that cannot be shown"
    return said if len(said) <= 2 * _SHOWN else f"{said[:_SHOWN]}…"


def _id(given: object) -> str:
    """As it is, if it is one."""
    return given if isinstance(given, str) and given.isprintable() and len(given) <= _SHOWN else _shown(given)


# --- what a developer defined ---------------------------------------------------------------


class DefinitionError(AdjournError):
    """A tool, wait point, agent or app is defined in a way that cannot work."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem}; {remedy}")
        self.where = where
        self.problem = problem
        self.remedy = remedy


class ConfigurationError(AdjournError):
    """A setting is missing, wrong, or points at something that cannot be reached."""

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"{setting}: {problem}; {remedy}")
        self.setting = setting
        self.problem = problem
        self.remedy = remedy


class StoreUnavailableError(AdjournError):
    """Postgres or Redis could not be reached, or did not answer in time. Nothing is known to have been done.

    `refused` says that it was reached, and ended this one statement with an error.
    """

    def __init__(self, store: str, problem: str, *, refused: bool = False) -> None:
        super().__init__(f"{store} is not available: {problem}; check that it runs and its URL is right, and retry")
        self.store = store
        self.problem = problem
        self.refused = refused


class WorkerEndedError(AdjournError):
    """A worker process that was started here ended by itself. `log` holds the last lines that it wrote."""

    def __init__(self, pid: int, exit_code: int, log: Sequence[str]) -> None:
        said = f", saying: {' / '.join(log)}" if log else ""
        super().__init__(f"worker {pid} ended with exit code {exit_code}{said}")
        self.pid = pid
        self.exit_code = exit_code
        self.log = tuple(log)


# --- what a value was -----------------------------------------------------------------------


class ValidationIssue:
    """One thing that is wrong with a document: a JSON pointer and a message."""

    __slots__ = ("message", "path")

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message

    def __repr__(self) -> str:
        return f"{self.path or '/'}: {self.message}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValidationIssue) and (self.path, self.message) == (other.path, other.message)

    def __hash__(self) -> int:
        return hash((self.path, self.message))


class PayloadError(AdjournError):
    """A document does not fit its schema. `issues` names every path."""

    what = "payload"

    def __init__(self, where: str, issues: Sequence[ValidationIssue]) -> None:
        super().__init__(f"{self.what} of {where} is not valid: " + "; ".join(map(repr, issues)))
        self.where = where
        self.issues = tuple(issues)


class SuspendPayloadError(PayloadError):
    """The data given to a suspend does not fit the wait point's suspend schema; nothing was opened."""

    what = "suspend payload"


class AnswerPayloadError(PayloadError):
    """The data of an answer does not fit the resume schema; the action is still pending."""

    what = "answer"


class ToolInputError(PayloadError):
    """The arguments of a tool call do not fit its input schema."""

    what = "input"


class ToolOutputError(PayloadError):
    """A tool returned what its output schema forbids."""

    what = "output"


class RoundTripError(PayloadError):
    """A value does not come back from JSON as it went."""

    what = "value"


class MalformedJsonError(AdjournError):
    """Bytes that are not one strict JSON document. `reason` is a short phrase."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"malformed JSON at {path or '/'}: {reason}")
        self.reason = reason
        self.path = path


class TooLargeError(AdjournError):
    """Something is over its limit."""

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} has {size} {unit}, the limit is {limit} {unit}")
        self.what = what
        self.size = size
        self.limit = limit
        self.unit = unit


# --- what happened to a run -----------------------------------------------------------------


class RunError(AdjournError):
    """Base of what ends a run as failed."""


class UnknownBlockError(RunError):
    """A run names a block that the app of this process does not have."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no block named {name!r} in this app (it has: {names}); register it or start another")
        self.name = name
        self.known = tuple(known)


class StaleClaimError(RunError):
    """This process no longer holds the claim on the run: its write changed nothing."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id}: the claim was lost (lease run out, or the run was cancelled); nothing was written"
        )
        self.run_id = run_id


class ReplayMismatchError(RunError):
    """On re-entry a tool asked, or did, something else than it had before at the same place."""

    def __init__(self, call: str, place: str, problem: str) -> None:
        super().__init__(
            f"{call}: {place} {problem}; what stands before a wait must do the same on every pass (or use run_once)"
        )
        self.call = call
        self.place = place
        self.problem = problem


class ToolChangedError(RunError):
    """The tool that an open or answered action belongs to is gone, or is another one now."""

    def __init__(self, tool: str, changes: Sequence[str]) -> None:
        super().__init__(
            f"tool {tool!r} changed while its call was waiting: {', '.join(changes)}; the answer is kept: "
            "deploy the earlier contract, or declare the old fingerprint in resumes_from, and retry the run"
        )
        self.tool = tool
        self.changes = tuple(changes)


class BlockChangedError(RunError):
    """A block that a run is in the midst of is not the one that it was."""

    def __init__(self, block: str, problem: str) -> None:
        super().__init__(
            f"block {block!r} changed under a run: {problem}; deploy the earlier one, or start the run anew"
        )
        self.block = block
        self.problem = problem


class LogMismatchError(RunError):
    """The log of a run that has ended does not lead this code to the same end."""

    def __init__(self, run_id: str, problem: str) -> None:
        super().__init__(
            f"the log of run {run_id} does not fit this code: it has completed, and {problem}; "
            "the run stays as it is: nothing runs again"
        )
        self.run_id = run_id
        self.problem = problem


class RouteUnavailableError(RunError):
    """A router chose another route than the one that its run had taken."""

    def __init__(self, router: str, taken: str, chosen: str) -> None:
        super().__init__(
            f"router {router!r} took route {taken!r} and now chooses {chosen!r}; nothing of {chosen!r} was run: "
            "a selector may read its input and nothing else"
        )
        self.router = router
        self.taken = taken
        self.chosen = chosen


class SelectorError(RunError):
    """A router's selector raised, or chose what is no route."""

    def __init__(self, router: str, problem: str, routes: Sequence[str]) -> None:
        super().__init__(f"the selector of router {router!r} {problem}; its routes are: {', '.join(routes)}")
        self.router = router
        self.problem = problem
        self.routes = tuple(routes)


class ToolResolverError(RunError):
    """An agent's function of tools raised, or returned what cannot be offered to a model."""

    def __init__(self, agent: str, problem: str) -> None:
        super().__init__(f"the tools of agent {agent!r} could not be found out: {problem}")
        self.agent = agent
        self.problem = problem


class PromptError(RunError):
    """An agent's function `user` raised: what its model is to be told cannot be made of its input."""

    def __init__(self, agent: str, problem: str) -> None:
        super().__init__(f"what agent {agent!r} is told could not be made of its input: {problem}")
        self.agent = agent
        self.problem = problem


class BlockFailedError(RunError):
    """The block that the run executes came to something else than an output. `outcome` says what."""

    def __init__(self, block: str, outcome: str, said: str) -> None:
        super().__init__(f"block {block!r} ended with outcome {outcome!r}: {said}")
        self.block = block
        self.outcome = outcome
        self.said = said


class ChildFailedError(RunError):
    """A run that this one had started has not completed, and its sub-agent says that this ends the parent as well."""

    def __init__(self, agent: str, child_run_id: str, status: str, said: str) -> None:
        super().__init__(f"sub-agent {agent!r} ({child_run_id}) {status}: {said}")
        self.agent = agent
        self.child_run_id = child_run_id
        self.status = status
        self.said = said


class ActionExpiredError(RunError):
    """A wait passed its deadline and its wait point says that this fails the run."""

    def __init__(self, action_id: str, name: str) -> None:
        super().__init__(f"action {action_id} ({name}) expired before it was answered")
        self.action_id = action_id
        self.name = name


class LimitExceededError(RunError):
    """The run came to one of its limits."""

    def __init__(self, limit: str, allowed: float, used: float) -> None:
        super().__init__(f"limit {limit} is {allowed:g}, the run needs {used:g}; raise it in the agent's limits")
        self.limit = limit
        self.allowed = allowed
        self.used = used


class HistoryTooLargeError(RunError):
    """The thread has grown beyond what a turn may load."""

    def __init__(self, thread_id: str, size: int, limit: int) -> None:
        super().__init__(
            f"the history of thread {thread_id} has {size} bytes, the limit is {limit} bytes; "
            "go on in a new thread, or raise max_history_bytes"
        )
        self.thread_id = thread_id
        self.size = size
        self.limit = limit


class ModelRequestError(RunError):
    """The model could not be asked. `retryable` says whether the same request may succeed later.

    `retry_after` is how many seconds the provider asked to wait, where it said so.
    """

    def __init__(
        self,
        model: str,
        problem: str,
        *,
        retryable: bool,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"model {model}: {problem}")
        self.model = model
        self.problem = problem
        self.retryable = retryable
        self.status = status
        self.retry_after = retry_after


class NewerTurnError(ModelRequestError):
    """A recorded turn holds message parts that this build cannot read: a newer worker wrote it.

    Put the run back for a worker of that build. Asking again in this process cannot help.
    """

    def __init__(self, model: str, parts: Sequence[str]) -> None:
        super().__init__(
            model,
            f"the conversation holds message parts that this build cannot read ({', '.join(parts)}), "
            "recorded by a newer worker; leave the run to one, or upgrade pydantic-ai here",
            retryable=True,
        )
        self.parts = tuple(parts)


class DriverFaultError(RunError):
    """The run could not be driven on, by a fault that is not its own. What it had recorded is kept."""

    def __init__(self, run_id: str, problem: str) -> None:
        super().__init__(f"run {run_id} could not be driven on: {problem}; this is a fault of Adjourn, report it")
        self.run_id = run_id
        self.problem = problem


class StatementRefusedError(RunError):
    """PostgreSQL was in order and refused what this run had to store, as often as is allowed."""

    def __init__(self, run_id: str, times: int, problem: str) -> None:
        super().__init__(
            f"run {run_id}: PostgreSQL refused what it had to store {times} times ({problem}) "
            "and it is not tried again; the log of PostgreSQL has the statement"
        )
        self.run_id = run_id
        self.times = times
        self.problem = problem


class PoisonedRunError(RunError):
    """The run killed its worker as often as is allowed."""

    def __init__(self, run_id: str, deaths: int) -> None:
        super().__init__(f"run {run_id} killed its worker {deaths} times and is not tried again")
        self.run_id = run_id
        self.deaths = deaths


# --- what a tool did wrong ------------------------------------------------------------------


class ToolError(AdjournError):
    """Base of what goes to the model as the error result of a call. Tools may raise it themselves."""


class SuspendSwallowedError(ToolError):
    """A tool suspended, and its body went on: it caught that, or it was in a thread or task that it did not await."""

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"suspend swallowed: tool {tool!r} suspended and its body went on; let BaseException pass, "
            "and wait for the result of a thread or task that asks"
        )
        self.tool = tool


class DetachedSuspendError(ToolError):
    """A thread or task of a tool suspended when the body had ended: the call cannot wait any more."""

    def __init__(self, tool: str, wait_point: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} after its body had ended, and nothing was opened; "
            "wait for the result of a thread or task that asks"
        )
        self.tool = tool
        self.wait_point = wait_point


class AskKeyMissingError(ToolError):
    """Two asks ran side by side without keys of their own, so their answers could not be told apart."""

    def __init__(self, tool: str, wait_point: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} side by side with another ask; give each a key of its own"
        )
        self.tool = tool
        self.wait_point = wait_point


class ForeignContextError(ToolError):
    """A tool suspended with a context that is not the one of this call."""

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool!r} suspended with the context of another call; use the one that it was given")
        self.tool = tool


class RunOnceClashError(ToolError):
    """`run_once` was called with a key whose function was still running: its effect would have happened twice."""

    def __init__(self, tool: str, key: str) -> None:
        super().__init__(f"tool {tool!r} used run_once({key!r}) while it was still running; give each use its own key")
        self.tool = tool
        self.key = key


class AskInsideOnceError(ToolError):
    """A tool waited inside `run_once` or a step: once that has its record, nobody would be asked there any more."""

    def __init__(self, tool: str, wait_point: str, key: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} inside {key!r}, which later passes do not run again; "
            "ask before it or after it"
        )
        self.tool = tool
        self.wait_point = wait_point
        self.key = key


class ToolTimeoutError(ToolError):
    """A tool ran longer than its execution limit. Waiting does not count."""

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"tool {tool!r} timed out after {seconds:g} s and was interrupted; nobody declined it")
        self.tool = tool
        self.seconds = seconds


class Refused(ToolError):
    """Base of what `ctx.ask` raises when the wait ended without a submit."""

    def __init__(self, text: str, action_id: str, name: str) -> None:
        super().__init__(text)
        self.action_id = action_id
        self.name = name


class Declined(Refused):
    """The wait was cancelled. Uncaught, it is the denial that the model reads."""

    def __init__(self, action_id: str, name: str, prompt: str | None, reason: str | None) -> None:
        said = f": {prompt}" if prompt else ""
        super().__init__(f"declined{said}" + (f" (reason: {reason})" if reason else ""), action_id, name)
        self.prompt = prompt
        self.reason = reason


class AnswerFailed(Refused):
    """The wait was failed by who should have answered it."""

    def __init__(self, action_id: str, name: str, message: str) -> None:
        super().__init__(f"{name} could not be answered: {message}", action_id, name)
        self.message = message


class Expired(Refused):
    """The wait passed its deadline."""

    def __init__(self, action_id: str, name: str, prompt: str | None) -> None:
        super().__init__(f"{name} expired before anybody answered" + (f": {prompt}" if prompt else ""), action_id, name)
        self.prompt = prompt


# --- what a caller asked for ----------------------------------------------------------------


class RequestError(AdjournError):
    """Base of refusals to a client."""


class ThreadBusyError(RequestError):
    """The thread has a run that has not ended."""

    def __init__(self, thread_id: str, run_id: str, status: str) -> None:
        super().__init__(
            f"thread busy: {thread_id} has run {run_id} ({status}); wait for it, or send with "
            "when_busy='enqueue' or 'supersede'"
        )
        self.thread_id = thread_id
        self.run_id = run_id
        self.status = status


class IllegalArgumentError(RequestError):
    """What a caller gave is nothing that the method takes. Nothing was done."""

    def __init__(self, what: str, given: object, remedy: str) -> None:
        super().__init__(f"{what} cannot be {_shown(given)}; {remedy}")
        self.what = what
        self.remedy = remedy


class IllegalIdError(RequestError):
    """An id of the caller's own has characters, or a length, that cannot be stored or shown everywhere."""

    def __init__(self, what: str, id: object) -> None:
        super().__init__(f"{what} {_shown(id)} is not legal; use 1 to 100 letters, digits and any of . _ : -")
        self.what = what
        self.id = id


class NotFoundError(RequestError):
    """There is no such run, thread or action."""

    def __init__(self, what: str, id: object) -> None:
        super().__init__(f"no {what} {_id(id)}")
        self.what = what
        self.id = id


class UnusableHandleError(RequestError):
    """A handle cannot do what it was asked to. `thread_id` is the handle's, or the root's of its runtime."""

    def __init__(self, thread_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"handle {thread_id}: {problem}; {remedy}")
        self.thread_id = thread_id
        self.problem = problem
        self.remedy = remedy


class ForkRefusedError(RequestError):
    """The thread cannot be forked like this."""

    def __init__(self, thread_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"thread {thread_id} cannot be forked: {problem}; {remedy}")
        self.thread_id = thread_id
        self.problem = problem
        self.remedy = remedy


class ChildRunError(RequestError):
    """A run that another run started is not retried by itself: its parent has been told how it ended."""

    def __init__(self, run_id: str, parent_run_id: str) -> None:
        super().__init__(
            f"run {run_id} was started by run {parent_run_id}, which has been told; retry the run at the root"
        )
        self.run_id = run_id
        self.parent_run_id = parent_run_id


class NotRetryableError(RequestError):
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


class AnswerRefusedError(RequestError):
    """An answer sent by a client was not accepted. `status` and `issues` are the receipt's."""

    def __init__(self, action_id: object, status: str, detail: str, issues: Sequence[ValidationIssue] = ()) -> None:
        super().__init__(f"answer to {_id(action_id)} refused ({status}): {detail}")
        self.action_id = action_id
        self.status = status
        self.issues = tuple(issues)


class CredentialError(RequestError):
    """A credential does not prove what it should. `reason` never quotes it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"credential refused: {reason}; ask for a new one")
        self.reason = reason


class RunEndedError(RequestError):
    """A client waited for something that cannot come any more: the run has ended otherwise. `status` says how."""

    def __init__(self, run_id: str, status: str, reason: str | None) -> None:
        super().__init__(f"run {run_id} is {status}" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.status = status
        self.reason = reason


class WaitTimeoutError(RequestError):
    """What a client waited for did not come in time. Nothing was changed by waiting."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not come within {seconds:g} s; the run goes on without you")
        self.what = what
        self.seconds = seconds
