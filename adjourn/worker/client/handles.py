"""Live handles: a thread and a run, each with its verbs.

A handle holds ids and a client, and no other state: everything else is in PostgreSQL. So it can be stored as JSON and
connected again in another process, and each verb calls the client.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import PrivateAttr, TypeAdapter, ValidationError

from adjourn.schemas.errors import (
    HandleClashError,
    IllegalArgumentError,
    NotFoundError,
    RunEndedError,
    UnusableHandleError,
    WaitTimeoutError,
)
from adjourn.schemas.records.events import Event
from adjourn.schemas.records.handles import HandleState, PendingRequest, Result, Snapshot
from adjourn.schemas.records.ids import check_own_id, new_thread_id
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run, WhenBusy
from adjourn.worker.client import arguments
from adjourn.worker.client.actions import ThreadState

if TYPE_CHECKING:
    from adjourn.worker.client.runs import RunCalls

_NAME_BYTES: Final = 6
"""Of a random name, two characters each: siblings do not meet, and a few levels fit into a thread id."""


class _Tree:
    """What handles of one tree share: their client, the threads they are on, and whether the tree is shut down."""

    def __init__(self, client: RunCalls, root: str) -> None:
        self.client = client
        self.root = root
        self.agents: dict[str, str | None] = {}
        """The agents of the threads that were spawned or that got a message here."""
        self.without_runs: set[str] = set()
        """Threads that had no run when they were spawned. Another process may have started one since."""
        self.is_shut_down = False

    def check_open(self) -> None:
        if self.is_shut_down:
            remedy = f"continue with client.thread({self.root!r})"
            raise UnusableHandleError(self.root, "its tree of handles has been shut down", remedy)


class Handle(Record):
    """A live thread or run. It is equal to every other handle of the same thread or run, and its JSON is its ids.

    `client.thread` and `client.start` return one. `client.handle` connects one that was stored.
    """

    thread_id: str
    agent: str | None
    _tree: _Tree | None = PrivateAttr(default=None)

    @classmethod
    def _of(cls, tree: _Tree, **ids: Any) -> Self:
        handle = cls(**ids)
        handle._tree = tree
        return handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle the ids only: a client has connections."""
        return {**super().__getstate__(), "__pydantic_private__": {"_tree": None}}

    def _identity(self) -> tuple[str, str | None]:
        return self.thread_id, None

    def wait(self, timeout: float | None = None) -> Result:
        """Wait until there is something to answer, or the run has ended; of a thread, its newest run.

        `timeout` is in seconds, `None` waits for ever. If the run has ended already, its result is returned at once.
        Raises `WaitTimeoutError`, `RunEndedError` if the run was cancelled, `UnusableHandleError` for a thread without
        a run, and `NotFoundError` for a run that is not there any more.
        """
        self._connected().check_open()
        arguments.check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        asks: str | None = None
        while True:
            thread = self._look()
            if thread is None:
                raise UnusableHandleError(self.thread_id, "has no run yet", "send it a message before you wait for it")
            run = self._current(thread)
            if run.status == "cancelled":
                raise RunEndedError(run.id, run.status, run.error.message if run.error else None)
            if run.ended:
                return Result.ended(run)
            # A run is `queued` while its model is not available. `Client.wait` says whether it asks meanwhile.
            if _is_suspended(thread, run) or (run.id == asks and thread.pending):
                return Result.suspended(run, thread.pending)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            asks = None
            try:
                asks = self._client.wait(run.id, timeout=left).id
            except WaitTimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    what = f"a result of {self} (now {run.status})"
                    raise WaitTimeoutError(what, timeout or 0) from None

    def events(self, after: str | None = None, *, timeout: float | None = None) -> Iterator[Event]:
        """Stream what happens, from the beginning or after the event of id `after`, and what happens from now on.

        The events of a run end with the run. Those of a thread end after `timeout` seconds; with 0 they are what is
        recorded. An agent's deltas come only if it is told to `stream`. A reader that was cut off continues after the
        id of its last event. Raises `IllegalIdError`; with the first event, `NotFoundError` for a thread without
        runs and `StoreUnavailableError` if PostgreSQL cannot be reached. Without Redis it continues, slower.
        """
        return self._events(after, timeout)

    def _events(self, after: str | None, timeout: float | None) -> Iterator[Event]:
        return self._client._stream(self.thread_id, after, timeout=timeout)

    def _current(self, thread: ThreadState) -> Run:
        """The thread's active run, which the runs behind it wait for. If all have ended, the newest."""
        return next((run for run in thread.runs if not run.ended), thread.runs[-1])

    def _look(self) -> ThreadState | None:
        """The thread as it is now. `None` if it has no run."""
        try:
            return self._client._state(self.thread_id)
        except NotFoundError:
            return None

    @property
    def _client(self) -> RunCalls:
        return self._connected().client

    def _connected(self) -> _Tree:
        if self._tree is None:
            raise UnusableHandleError(self.thread_id, "has no client", "connect it with client.handle(handle)")
        return self._tree


class RunHandle(Handle):
    """A run that was started: wait for it, watch it, cancel it."""

    id: str
    agent: str

    def __str__(self) -> str:
        return f"run {self.id}"

    def _identity(self) -> tuple[str, str | None]:
        return self.thread_id, self.id

    @property
    def thread(self) -> ThreadHandle:
        """The handle of the run's thread, for the next message."""
        return ThreadHandle._of(self._connected(), thread_id=self.thread_id, agent=self.agent)

    def state(self) -> Run:
        """Return the run's record: its status, output, error, usage and limits as they are now."""
        return self._client.get_run(self.id)

    def cancel(self, reason: str | None = None, *, identity: str | None = None) -> Run:
        """Cancel the run, all that it waits for and all that was started under it. A run that has ended stays as it is.

        `identity` is who cancels it, by default the client's own.
        """
        return self._client.cancel_run(self.id, reason, identity=identity)

    def _events(self, after: str | None, timeout: float | None) -> Iterator[Event]:
        return self._client.follow(self.id, after, timeout=timeout)

    def _current(self, thread: ThreadState) -> Run:
        for run in thread.runs:
            if run.id == self.id:
                return run
        raise NotFoundError("run", self.id)

    def _look(self) -> ThreadState:
        return self._client._state(self.thread_id)


class ThreadHandle(Handle):
    """A thread: send it messages, wait for their results, and spawn threads of other agents under it.

    `agent` answers its messages. If it is `None`, the agent of the thread's newest run does. A thread needs no run: it
    may serve only to spawn others under it. These share a tree, which `shutdown` closes; so does the end of `with`.
    """

    agent: str | None = None

    def __str__(self) -> str:
        return f"handle {self.thread_id}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # --- starting runs -------------------------------------------------------------------------

    def spawn(self, agent: str, *, name: str | None = None, thread_id: str | None = None) -> ThreadHandle:
        """Return the handle of an agent's thread under this one. Nothing is written before its first message.

        Its thread id is this one's with `name` behind it, by default a random name; or it is `thread_id`. The same
        name, or thread id, gives the same handle in every process. Raises `IllegalIdError` for an id that cannot be
        used everywhere, `UnknownBlockError` if the client has an app without such an agent, `IllegalArgumentError` for
        a name beside a thread id, and `HandleClashError` if the thread is another agent's: its newest run is, or this
        tree has spawned it for another.
        """
        tree = self._connected()
        tree.check_open()
        arguments.check_agent(agent)
        if thread_id is not None and name is not None:
            raise IllegalArgumentError("name", name, "give it or a thread_id, which is not put under the parent's")
        if tree.client.app is not None:
            tree.client.app.block(agent)
        is_new = thread_id is None and name is None
        if thread_id is None:
            name = secrets.token_hex(_NAME_BYTES) if name is None else check_own_id("name", name)
            thread_id = f"{self.thread_id}:{name}"
        handle = ThreadHandle._of(tree, thread_id=check_own_id("thread id", thread_id), agent=agent)
        known = tree.agents.get(thread_id)
        if known is not None and known != agent:
            raise HandleClashError(thread_id, known, agent, None)
        if not is_new and not handle._has_runs_of(agent):
            tree.without_runs.add(thread_id)
        tree.agents[thread_id] = agent
        return handle

    def send(
        self,
        message: Any,
        *,
        agent: str | None = None,
        run_id: str | None = None,
        limits: Limits | None = None,
        when_busy: WhenBusy = "refuse",
    ) -> RunHandle:
        """Send a message: starts the next run on the thread, whose agent knows what was said before.

        `agent` names another agent for this message. A thread whose run has not ended is busy: `when_busy` says
        whether to `refuse` the message (raises `ThreadBusyError`), to `enqueue` it behind that run, or to
        `supersede` that run. A `run_id` of your own makes this idempotent: with another message it raises
        `RunIdClashError`. Raises what `Client.start` raises, `UnusableHandleError` for a thread without an agent, and
        `HandleClashError` if another process has given the thread to another agent since this handle was spawned.
        """
        tree = self._connected()
        tree.check_open()
        by = agent
        if by is None and self.agent is not None:
            by = self.agent
            if self.thread_id in tree.without_runs:
                self._has_runs_of(by)
        if by is None:
            by = tree.client._agent_of(self.thread_id)
        if by is None:
            remedy = "name one with send(..., agent=...), or spawn an agent under it"
            raise UnusableHandleError(self.thread_id, "has no run yet, and so no agent", remedy)
        tree.agents.setdefault(self.thread_id, self.agent)
        run = tree.client.start(
            by, message, thread_id=self.thread_id, run_id=run_id, limits=limits, when_busy=when_busy
        )
        tree.without_runs.discard(self.thread_id)
        return RunHandle._of(tree, id=run.id, thread_id=run.thread_id, agent=run.agent)

    wake = send
    """`send`, by the word for agents that rest between messages."""

    def _has_runs_of(self, agent: str) -> bool:
        """Whether the thread has runs. Raises `HandleClashError` if the newest is of another agent."""
        thread = self._look()
        if thread is None:
            return False
        newest = thread.runs[-1]
        if newest.agent != agent:
            raise HandleClashError(self.thread_id, newest.agent, agent, newest.id)
        return True

    # --- looking, and ending ---------------------------------------------------------------------

    def state(self) -> ThreadState:
        """Return all of the thread: its conversation, its open turns, its runs and what they wait for.

        Its `pending` actions can be answered. Raises `NotFoundError` for a thread without runs.
        """
        return self._client._state(self.thread_id)

    def snapshot(self) -> Snapshot:
        """Return the thread in short: its state, totals, requests and last result, read in one statement.

        Without a run, all of it is zero.
        """
        is_shut_down = self._connected().is_shut_down
        thread = self._look()
        if thread is None:
            return Snapshot(thread_id=self.thread_id, agent=self.agent, state="done" if is_shut_down else "idle")
        run = self._current(thread)
        results = [each for each in thread.runs if each.status in ("completed", "failed")]
        return Snapshot(
            thread_id=self.thread_id,
            agent=self.agent or thread.runs[-1].agent,
            state=_handle_state(thread, run, is_shut_down),
            usage_total=thread.usage_total,
            turns_total=thread.turns_total,
            requests=tuple(map(PendingRequest.of, thread.pending)),
            last_result=Result.ended(results[-1]) if results else None,
        )

    def cancel(self, reason: str | None = None, *, identity: str | None = None) -> None:
        """Cancel the thread's active run, and the runs that wait behind it. `identity` is as for a run.

        Each is cancelled by itself: after a crash in between, the others continue until you cancel again.
        """
        arguments.check_cancel(reason, identity)
        thread = self._look()
        # Newest first: when the active run is cancelled, the run behind it begins.
        for run in reversed(thread.runs if thread else ()):
            if not run.ended:
                self._client.cancel_run(run.id, reason, identity=identity)

    def shutdown(self, *, cancel: bool = False) -> None:
        """Refuse all further orders to this tree of handles. What was begun continues: parked runs stay parked.

        With `cancel`, the runs of the tree's threads are cancelled: those that were spawned or that got a message
        here. After an error in between, shut down again. The client stays open.
        """
        tree = self._connected()
        tree.is_shut_down = True
        if not cancel:
            return
        for thread_id in tuple(tree.agents):
            ThreadHandle._of(tree, thread_id=thread_id).cancel("its tree of handles was shut down")


def _is_suspended(thread: ThreadState, run: Run) -> bool:
    """Whether the run needs an answer to continue, as `Client.wait` has it. A parked run may also wait for a child."""
    return run.status == "parked" and bool(thread.pending)


def _handle_state(thread: ThreadState, run: Run, is_shut_down: bool) -> HandleState:
    if not run.ended:
        return "suspended" if _is_suspended(thread, run) else "running"
    if run.status == "failed":
        return "failed"
    return "done" if run.status == "cancelled" or is_shut_down else "idle"


_STORED: Final[TypeAdapter[RunHandle | ThreadHandle]] = TypeAdapter(RunHandle | ThreadHandle)


def thread_handle(client: RunCalls, thread_id: str | None) -> ThreadHandle:
    """Return the root of a new tree of handles."""
    thread_id = new_thread_id() if thread_id is None else check_own_id("thread id", thread_id)
    return ThreadHandle._of(_Tree(client, thread_id), thread_id=thread_id)


def run_handle(client: RunCalls, *, run_id: str, thread_id: str, agent: str) -> RunHandle:
    """Return the handle of a run, in a tree of its own."""
    return RunHandle._of(_Tree(client, thread_id), id=run_id, thread_id=thread_id, agent=agent)


def connected_handle(client: RunCalls, stored: object) -> RunHandle | ThreadHandle:
    """Return a handle, or what its JSON says, connected. Raises `IllegalArgumentError` and `IllegalIdError`."""
    if isinstance(stored, RunHandle | ThreadHandle):
        check_own_id("thread id", stored.thread_id)
        return type(stored)._of(_Tree(client, stored.thread_id), **dict(stored))
    try:
        if not isinstance(stored, str | bytes):
            raise TypeError("not JSON")
        return connected_handle(client, _STORED.validate_json(stored))
    except (TypeError, ValidationError):
        remedy = "give a handle, or the JSON of handle.model_dump_json()"
        raise IllegalArgumentError("handle", stored, remedy) from None
