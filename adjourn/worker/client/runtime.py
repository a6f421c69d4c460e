"""The verbs of a host that keeps agents as handles: spawn, wake, wait, resume, snapshot, shutdown.

Owns no state but which handles it gave or woke, and runs no agent: workers do. A handle is a thread, so
everything about it is in Postgres, and a `Runtime` in a new process goes on with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, overload

from pydantic import ValidationError

from adjourn.schemas.errors import (
    HandleClashError,
    IllegalArgumentError,
    NotFoundError,
    RunEndedError,
    UnusableHandleError,
    WaitTimeoutError,
)
from adjourn.schemas.records.answers import Issue, Receipt, ShortAnswer
from adjourn.schemas.records.handles import Handle, HandleState, PendingRequest, Result, Snapshot
from adjourn.schemas.records.ids import check_own_id, new_thread_id
from adjourn.schemas.records.runs import Run, WhenBusy
from adjourn.schemas.records.threads import ThreadState
from adjourn.schemas.strict_json import pointer
from adjourn.worker.client import arguments
from adjourn.worker.client.answers import refused
from adjourn.worker.client.client import Client

_NAME_BYTES: Final = 6
"""Of a random name, two characters each: siblings do not meet, and a few levels fit into a thread id."""
_NO_ID: Final = "(no id)"


class Runtime:
    """Handles of a deployment, in a tree under one `root`. Usable from any thread.

    `root` is the id that the tree is found again by, a new one if it is left out: a handle that was spawned under
    a name has the thread `root:name`, so a `Runtime` of the same root that spawns the same name has the same
    handle. `handle` finds any other by its thread. The runtime borrows the client and never closes it. If the
    client has an app, unknown agents are refused when they are spawned.

    In `with` it is shut down at the end. Every method raises `StoreUnavailableError` if Postgres cannot be
    reached, and all but `snapshot` and `shutdown` raise `UnusableHandleError` after a shutdown.
    """

    def __init__(self, client: Client, root: str | None = None) -> None:
        self._client = client
        self._root = Handle(thread_id=new_thread_id() if root is None else check_own_id("root", root), agent=None)
        self._handles: dict[str, Handle] = {}
        self._not_woken: set[str] = set()
        """Threads of handles that had no run when they were spawned: another process may have woken them since."""
        self._is_shut_down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def root(self) -> Handle:
        """Where the tree begins: a place to spawn under. It runs nothing."""
        return self._root

    # --- finding handles ---------------------------------------------------------------------

    def spawn(self, parent: Handle, agent: str, *, name: str | None = None, thread_id: str | None = None) -> Handle:
        """A handle of an agent under `parent`. Nothing is written, and nothing runs, until it is woken.

        Its thread is `parent`'s with a `name` behind it, a random one if it is left out, or else a `thread_id` of your
        own. The same name, or thread, gives the same handle again, whatever has become of it meanwhile, in any
        process. Raises `IllegalIdError` for a thread id that cannot be used everywhere, `UnknownBlockError`,
        `IllegalArgumentError` for a name beside a thread id, and `HandleClashError` if the thread is another agent's:
        its newest run is, or this runtime has a handle of it for that one.
        """
        self._check_open()
        arguments.check_agent(agent)
        parent = _known(parent)
        if thread_id is not None and name is not None:
            raise IllegalArgumentError("name", name, "give it or a thread_id, which is not put under the parent's")
        if self._client.app is not None:
            self._client.app.block(agent)
        is_new = thread_id is None and name is None
        if thread_id is None:
            name = secrets.token_hex(_NAME_BYTES) if name is None else check_own_id("name", name)
            thread_id = f"{parent.thread_id}:{name}"
        handle = Handle(thread_id=check_own_id("thread id", thread_id), agent=agent)
        known = self._handles.get(thread_id)
        if known is not None and known.agent != agent:
            raise HandleClashError(thread_id, str(known.agent), agent, None)
        if not is_new and not self._has_runs(handle):
            self._not_woken.add(thread_id)
        return self._keep(handle)

    def _has_runs(self, handle: Handle) -> bool:
        """Whether the thread has runs. Raises `HandleClashError` if the newest is of another agent."""
        thread = self._thread(handle)
        if thread is None:
            return False
        newest = thread.runs[-1]
        if newest.agent != handle.agent:
            raise HandleClashError(handle.thread_id, newest.agent, str(handle.agent), newest.id)
        return True

    def handle(self, thread_id: str) -> Handle:
        """The handle of a thread that was woken before, by whomever; its agent is that of the newest run.

        Raises `NotFoundError` for a thread without a run: a handle that was never woken is spawned again.
        """
        self._check_open()
        return self._keep(Handle(thread_id=thread_id, agent=self._client.snapshot(thread_id).runs[-1].agent))

    def _keep(self, handle: Handle) -> Handle:
        self._handles[handle.thread_id] = handle
        return handle

    # --- driving them ------------------------------------------------------------------------

    def wake(self, handle: Handle, message: Any, *, when_busy: WhenBusy = "refuse", run_id: str | None = None) -> Run:
        """Say something to a handle: starts the next run on its thread, in which its agent knows all that was said.

        A handle that runs or is suspended is busy: `when_busy` says whether to `refuse` (raises
        `ThreadBusyError`), to `enqueue` the message behind it, or to `supersede` it. A `run_id` of your own
        makes a wake that is repeated the same wake; with another message it raises `RunIdClashError`. Raises what
        `Client.start` raises, `UnusableHandleError` for the root, and `HandleClashError` if another process has woken
        the thread for another agent since this handle was spawned.
        """
        self._check_open()
        agent = _known(handle).agent
        if agent is None:
            raise UnusableHandleError(handle.thread_id, "is a root and runs nothing", "spawn an agent under it")
        if handle.thread_id in self._not_woken:
            self._has_runs(handle)
        self._keep(handle)
        run = self._client.start(agent, message, thread_id=handle.thread_id, run_id=run_id, when_busy=when_busy)
        self._not_woken.discard(handle.thread_id)
        return run

    def wait(self, handle: Handle, timeout: float | None = None) -> Result:
        """Wait until a handle has nothing to do: it waits for answers, or its newest run has ended.

        `timeout` is in seconds, `None` waits for ever. Raises `WaitTimeoutError`, `RunEndedError` if that run was
        cancelled, and `UnusableHandleError` for a handle that was never woken.
        """
        self._check_open()
        arguments.check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            thread = self._thread(handle)
            if thread is None:
                raise UnusableHandleError(handle.thread_id, "has never been woken", "wake it before you wait for it")
            run = _current(thread)
            if run.status == "cancelled":
                raise RunEndedError(run.id, run.status, run.error.message if run.error else None)
            if run.ended:
                return Result.ended(run)
            if _is_suspended(thread, run):
                return Result.suspended(run, thread.pending)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                run = self._client.wait(run.id, timeout=left)
            except WaitTimeoutError:
                if deadline is None or time.monotonic() < deadline:
                    continue
                what = f"a result of handle {handle.thread_id} (now {run.status})"
                raise WaitTimeoutError(what, timeout or 0) from None
            # A run rests, and is `queued`, while its model is left alone as well.
            thread = self._client.snapshot(handle.thread_id)
            if not run.ended and _current(thread).id == run.id and thread.pending:
                return Result.suspended(run, thread.pending)

    # --- answers -------------------------------------------------------------------------------

    @overload
    def resume(
        self,
        answer: ShortAnswer | Mapping[str, Any],
        *,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    @overload
    def resume(
        self,
        *,
        id: object,
        ok: bool,
        data: dict[str, Any] | None = None,
        reason: str | None = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    def resume(
        self,
        answer: ShortAnswer | Mapping[str, Any] | None = None,
        *,
        identity: str | None = None,
        credential: str | None = None,
        **fields: Any,
    ) -> Receipt:
        """Answer what a handle waits for, in the short form; whichever handle of the deployment it is.

        `id` is the request's or the action's, `ok` says yes or no, either with `data` and a `reason`. An id that is
        not text is taken as its JSON. The answer is from `identity`, or from the holder of the `credential`, else from
        the client's own identity, as in `Client.submit`. The run goes on in a worker: `wait` for it. The same answer
        again is a `duplicate`. Raises `IllegalArgumentError` for an `answer` beside fields of another one,
        and `AnswerRefusedError`, whose status says why: `unknown` (also if several open requests
        have this id: take the action's), `late`, `invalid`, `forbidden`, `malformed`; the request then waits on, if
        it did.
        """
        self._check_open()
        if answer is not None and fields:
            raise IllegalArgumentError(next(iter(fields)), next(iter(fields.values())), "say it in the answer itself")
        short = _short({**_document(answer), **fields})
        who: dict[str, Any] = {"identity": identity, "credential": credential}
        if short.ok:
            return self._client.submit(short.id, short.data, reason=short.reason, answer_id=short.answer_id, **who)
        return self._client.cancel(short.id, reason=short.reason, data=short.data, answer_id=short.answer_id, **who)

    # --- looking, and ending ---------------------------------------------------------------------

    def snapshot(self, handle: Handle) -> Snapshot:
        """A handle as it is now, read in one statement. Of one that was never woken all is zero."""
        thread = self._thread(handle)
        if thread is None:
            state: HandleState = "done" if self._is_shut_down else "idle"
            return Snapshot(thread_id=handle.thread_id, agent=handle.agent, state=state)
        run = _current(thread)
        results = [each for each in thread.runs if each.status in ("completed", "failed")]
        return Snapshot(
            thread_id=handle.thread_id,
            agent=handle.agent,
            state=self._state(thread, run),
            usage_total=thread.usage_total,
            turns_total=thread.turns_total,
            requests=tuple(map(PendingRequest.of, thread.pending)),
            last_result=Result.ended(results[-1]) if results else None,
        )

    def _state(self, thread: ThreadState, run: Run) -> HandleState:
        if not run.ended:
            return "suspended" if _is_suspended(thread, run) else "running"
        if run.status == "failed":
            return "failed"
        return "done" if run.status == "cancelled" or self._is_shut_down else "idle"

    def shutdown(self, *, cancel: bool = False) -> None:
        """Take no more orders. What was begun goes on without this runtime: parked runs stay parked.

        With `cancel` the active runs of the handles that this runtime gave or woke are cancelled, and those that
        wait behind them. Each is cancelled by itself: after a crash, or an error, in between, the rest go on
        until they are cancelled; shut down again. The client stays open.
        """
        self._is_shut_down = True
        if not cancel:
            return
        for handle in tuple(self._handles.values()):
            thread = self._thread(handle)
            # Newest first: one that is cancelled lets the one behind it begin.
            for run in reversed(thread.runs if thread else ()):
                if not run.ended:
                    self._client.cancel_run(run.id, reason="its runtime was shut down")

    def _check_open(self) -> None:
        if self._is_shut_down:
            remedy = f"go on with Runtime(client, root={self._root.thread_id!r})"
            raise UnusableHandleError(self._root.thread_id, "its runtime has been shut down", remedy)

    def _thread(self, handle: Handle) -> ThreadState | None:
        """The thread of a handle; `None` if it was never woken."""
        try:
            return self._client.snapshot(_known(handle).thread_id)
        except NotFoundError:
            return None


def _known(handle: object) -> Handle:
    """Raises `IllegalArgumentError` for what is no handle."""
    if not isinstance(handle, Handle):
        raise IllegalArgumentError("handle", handle, "give what spawn() or handle() returned")
    return handle


def _document(answer: object) -> dict[str, Any]:
    """What was said of an answer in one piece, if anything was. Raises `IllegalArgumentError`."""
    if answer is None:
        return {}
    if not isinstance(answer, ShortAnswer | Mapping):
        raise IllegalArgumentError("answer", answer, "give {id, ok, data, reason}")
    return dict(answer)


def _current(thread: ThreadState) -> Run:
    """The run that the thread is busy with, those behind it wait for it; or else the newest."""
    return next((run for run in thread.runs if not run.ended), thread.runs[-1])


def _is_suspended(thread: ThreadState, run: Run) -> bool:
    """Whether the run can only go on by an answer, as `Client.wait` has it, of a thread as it was seen.

    Parked with none to give, it waits for what runs elsewhere.
    """
    return run.status == "parked" and bool(thread.pending)


def _short(document: dict[str, Any]) -> ShortAnswer:
    """Raises `AnswerRefusedError` (`malformed`), as it would be refused on the wire."""
    try:
        return ShortAnswer.model_validate(document, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        issues = tuple(Issue(path=pointer(each["loc"]), message=each["msg"]) for each in found)
        detail = "; ".join(f"{each.path}: {each.message}" for each in issues)
        receipt = Receipt(status="malformed", detail=detail, issues=issues)
        raise refused(receipt, document.get("id", _NO_ID)) from None
