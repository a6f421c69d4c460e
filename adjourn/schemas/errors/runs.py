"""What happened to a run: each of these ends it."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.errors.base import AdjournError
from adjourn.schemas.errors.values import ValidationIssue


class RunError(AdjournError, RuntimeError):
    """Base of what ends a run as failed."""


class CodeMismatchError(RunError):
    """Base of what says that the code of this build does not fit what is recorded of a run.

    A build that is not the newest of those that are live fails no run by it: it leaves the run to them.
    """


class UnknownBlockError(CodeMismatchError, LookupError):
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


class ReplayMismatchError(CodeMismatchError):
    """On re-entry a tool asked, or did, something else than it had before at the same place."""

    def __init__(self, call: str, place: str, problem: str) -> None:
        super().__init__(
            f"{call}: {place} {problem}; what stands before a wait must do the same on every pass (or use run_once)"
        )
        self.call = call
        self.place = place
        self.problem = problem


class StoredValueError(CodeMismatchError):
    """The code cannot read a value that was accepted or recorded before: an answer, an input, a result.

    The value is kept. `block` is the tool or other block, `what` names the value, `issues` has its paths.
    `same_schema` is true if the type has the schema with which the value was accepted: then a validator of it was
    made stricter, or it does not agree with itself. `action_id` is the wait that the value is the answer of, if it is
    one and the type reads all that the schema of the wait shows: then another answer may be read.
    """

    def __init__(
        self,
        block: str,
        what: str,
        issues: Sequence[ValidationIssue],
        *,
        same_schema: bool = False,
        action_id: str | None = None,
    ) -> None:
        said = "; ".join(map(repr, issues))
        cause = (
            "the schema of its type is the one it was accepted with, so a validator was changed, or does not agree "
            "with itself (it depends on a clock, a counter or a service); "
            if same_schema
            else ""
        )
        super().__init__(
            f"{block}: this build cannot read {what} ({said}); {cause}the value is kept: "
            "deploy code whose types and validators accept it, then retry the run"
        )
        self.same_schema = same_schema
        self.action_id = action_id
        self.block = block
        self.what = what
        self.issues = tuple(issues)


class ToolChangedError(CodeMismatchError):
    """The tool that an open or answered action belongs to is gone, or is another one now."""

    def __init__(self, tool: str, changes: Sequence[str]) -> None:
        super().__init__(
            f"tool {tool!r} changed while its call was waiting: {', '.join(changes)}; the answer is kept: "
            "deploy the earlier contract, or declare the version it waited in (version=) in resumes_from, "
            "then retry the run"
        )
        self.tool = tool
        self.changes = tuple(changes)


class AskAwaitedError(CodeMismatchError, TypeError):
    """A tool awaited what `ctx.ask` or `ctx.ask_any` returned. The answer is kept."""

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"tool {tool!r} awaits ctx.ask(...), which returns the answer itself; write answer = ctx.ask(...) without "
            "await, in an async def too. The answer is kept: deploy the corrected tool, then retry the run"
        )
        self.tool = tool


class ToolProcessError(CodeMismatchError):
    """A tool asks for a process of its own, and the process for this attempt of the body did not begin it.

    The process imports the app from disk, where a deploy may have put other code than the worker has loaded. That
    counts as a mismatch: a newer build that is live gets the run. An earlier attempt may have run the body.
    """

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(
            f"tool {tool!r} could not begin in a process of its own: {problem}; this attempt has not run its body: "
            "correct it, then retry the run"
        )
        self.tool = tool
        self.problem = problem


class BlockChangedError(CodeMismatchError):
    """A block that a run is in the midst of is not the one that it was."""

    def __init__(self, block: str, problem: str) -> None:
        super().__init__(
            f"block {block!r} changed under a run: {problem}; deploy the earlier one, or start the run anew"
        )
        self.block = block
        self.problem = problem


class LogMismatchError(CodeMismatchError):
    """The log of a run that has ended does not lead this code to the same end."""

    def __init__(self, run_id: str, problem: str) -> None:
        super().__init__(
            f"the log of run {run_id} does not fit this code: it has completed, and {problem}; "
            "the run stays as it is: nothing runs again"
        )
        self.run_id = run_id
        self.problem = problem


class RouteUnavailableError(CodeMismatchError):
    """A router chose another route than the one that its run had taken, or does not have that route any more.

    `chosen` is None if the route was removed.
    """

    def __init__(self, router: str, taken: str, chosen: str | None, routes: Sequence[str] = ()) -> None:
        if chosen is None:
            problem = (
                f"router {router!r} does not have route {taken!r} any more, and its run had taken it "
                f"(the routes are: {', '.join(routes) or 'none'}); deploy a router with that route, then retry the run"
            )
        else:
            problem = (
                f"router {router!r} took route {taken!r} and now chooses {chosen!r}; nothing of {chosen!r} was run: "
                "a selector may read its input and nothing else"
            )
        super().__init__(problem)
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


class NewerTurnError(CodeMismatchError, ModelRequestError):
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


class DamagedRecordError(RunError):
    """A stored row cannot be read: it was changed by something else than Adjourn, or the disk lost a part of it.

    Only the run that the row belongs to fails. `table` and `key` name the row, `run_id` the run.
    """

    def __init__(self, table: str, key: str, run_id: str, problem: str) -> None:
        super().__init__(
            f"row {key} of table adjourn.{table} is damaged ({problem}), so run {run_id} cannot be read; "
            "restore the row from a backup, then retry the run"
        )
        self.table = table
        self.key = key
        self.run_id = run_id
        self.problem = problem


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
