"""What a client does with runs: start them, watch them, cancel and retry them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from adjourn.schemas.errors import (
    IllegalIdError,
    NotFoundError,
    RunEndedError,
    StoreUnavailableError,
    ThreadBusyError,
    TooLargeError,
    WaitTimeoutError,
)
from adjourn.schemas.internal.state import Started
from adjourn.schemas.records.events import AttemptDiscarded, Cursor, DeltaEvent, EndEvent, Event, NestedEvent
from adjourn.schemas.records.ids import check_findable, check_own_id, new_run_id, new_thread_id
from adjourn.schemas.records.items import Item, MessageItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import Run, RunStatus, WakeUp, WhenBusy
from adjourn.schemas.strict_json import clean_text, dumps
from adjourn.store.redis.events import START
from adjourn.store.results import Extent
from adjourn.tasks.answers.ends import cancel
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.streaming.viewer import Viewer
from adjourn.worker.client import arguments
from adjourn.worker.client.handles import RunHandle, run_handle
from adjourn.worker.client.threads import ThreadCalls

POLL_SECONDS: Final = 1.0
"""How long a wait trusts in live events before it looks for itself: Redis may have lost one."""
SUPERSEDE_TRIES: Final = 100
"""Runs that one `supersede` cancels at most: the one that is busy, those waiting behind it, those that slip in."""


class RunCalls(ThreadCalls):
    """Runs of one deployment."""

    def start(
        self,
        agent: str,
        message: Any,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        limits: Limits | None = None,
        when_busy: WhenBusy = "refuse",
    ) -> RunHandle:
        """Start a run of a block, mostly an agent, on a new thread or on `thread_id`. Returns the live run.

        `message` is what the user says, or the input of a block that takes more than text: a JSON
        value or a pydantic model. The block checks it when the run begins.

        A `run_id` of your own makes this idempotent: the same request again returns the run that is there. A
        request with another agent, message, thread or other limits for that id raises `RunIdClashError`, which
        names what differs. On a thread whose run has not ended, `when_busy` says whether to `refuse` (raises
        `ThreadBusyError`), to `enqueue` behind it, or to `supersede`: cancel it and whatever waits behind it. NUL
        and lone surrogates in `message` are replaced by U+FFFD, NaN and infinities by null.

        Without `limits` those of the agent apply.

        Raises `IllegalIdError` for an id of your own that cannot be used everywhere,
        `TooLargeError` for a `message` over `Tuning.max_message_bytes`, and
        `UnknownBlockError` if the client has an app without such an agent.
        """
        arguments.check_agent(agent)
        arguments.check_when_busy(when_busy)
        arguments.check_limits(limits)
        if self._app is not None:
            self._app.block(agent)
        first = self._message(message)
        run_id = new_run_id() if run_id is None else check_own_id("run id", run_id)
        any_thread = thread_id is None
        thread_id = new_thread_id() if thread_id is None else check_own_id("thread id", thread_id)
        tries = SUPERSEDE_TRIES if when_busy == "supersede" else 1
        while True:
            tries -= 1
            try:
                started = self._start(run_id, thread_id, agent, first, limits, when_busy, any_thread)
                break
            except ThreadBusyError as busy:
                if not tries:
                    raise
                self.cancel_run(busy.run_id, reason="superseded")
        if started.due:
            self._door.wakeups.publish(WakeUp(run_id=started.run_id, due="turn"))
        if started.at is None and any_thread:
            thread_id = self.get_run(started.run_id).thread_id
        return run_handle(self, run_id=started.run_id, thread_id=thread_id, agent=agent)

    def _start(
        self,
        run_id: str,
        thread_id: str,
        agent: str,
        first: MessageItem,
        limits: Limits | None,
        when_busy: WhenBusy,
        any_thread: bool,
    ) -> Started:
        return self._door.store.runs.start(
            run_id=run_id,
            thread_id=thread_id,
            agent=agent,
            text=first.text,
            data=first.data,
            limits=limits,
            enqueue=when_busy == "enqueue",
            any_thread=any_thread,
        )

    def _message(self, said: Any) -> MessageItem:
        """What is stored of what a user says: without NUL and lone surrogates, and never cut."""
        if isinstance(said, str):
            first = MessageItem.of_text(clean_text(said))
        else:
            data = arguments.as_json("message", said)
            first = MessageItem(text=dumps(data), data=data)
        size, limit = len(first.text.encode()), self._door.tuning.max_message_bytes
        if size > limit:
            raise TooLargeError("the message", size, limit)
        return first

    def get_run(self, run_id: str) -> Run:
        """The run as it is now. Raises `NotFoundError`."""
        check_findable("run", run_id)
        run = self._door.store.runs.get(run_id)
        if run is None:
            raise NotFoundError("run", run_id)
        return run

    def items(self, run_id: str) -> tuple[Item, ...]:
        """Everything that happened in a run, in order. Raises `NotFoundError`."""
        self.get_run(run_id)
        return self._door.store.runs.items_to_show(run_id)

    def wait(
        self,
        run_id: str,
        *,
        until: Collection[RunStatus] | None = None,
        timeout: float | None = None,
        on_change: Callable[[Run], None] | None = None,
    ) -> Run:
        """Wait until the run has one of the statuses `until`; by default, until it waits for an answer or has ended.

        By default a run that is parked for runs of its sub-agents is waited for on, unless one of these waits for an
        answer: see `pending`. One that waits for an answer while its model is left alone is `queued`. With a status
        in `until` nothing but the status counts.

        `timeout` is in seconds, `None` waits for ever. `on_change` is called with the run as first
        seen and after each change of its status. Raises `WaitTimeoutError`, `NotFoundError`, and
        `RunEndedError` as soon as the run has ended in a status that is not in `until`.
        """
        arguments.check_timeout(timeout)
        if until is not None:
            arguments.check_until(until)
        arguments.check_on_change(on_change)
        deadline = None if timeout is None else time.monotonic() + timeout
        seen: RunStatus | None = None
        entry = START
        while True:
            run = self.get_run(run_id)
            if run.status != seen and on_change is not None:
                on_change(run)
            seen = run.status
            if self._is_settled(run) if until is None else run.status in until:
                return run
            if run.ended:
                raise RunEndedError(run_id, run.status, run.error.message if run.error else None)
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                awaited = "the end, or something to answer," if until is None else " or ".join(until)
                raise WaitTimeoutError(f"{awaited} of run {run_id} (now {run.status})", timeout or 0)
            entry = self._next_entry(run.thread_id, entry, left)

    def _is_settled(self, run: Run) -> bool:
        if run.status not in ("parked", "queued"):
            return run.ended
        return self._door.store.actions.asks_in(run.id) == run.status

    def _next_entry(self, thread_id: str, entry: str, seconds: float) -> str:
        """Wait up to `seconds` until something more is recorded on a thread; returns the entry to go on from."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                entries = self._door.events.read(thread_id, entry, max(1, int(left * 1000)))
            except StoreUnavailableError:
                # Without Redis nothing tells us; looking again now and then still does.
                time.sleep(left)
                return entry
            if not entries:
                return entry
            entry = entries[-1].id
            if not all(isinstance(event, DeltaEvent | AttemptDiscarded) for each in entries for event in each.events):
                return entry
        return entry

    def _agent_of(self, thread_id: str) -> str | None:
        """The agent of a thread's newest run. `None` if it has no run."""
        newest = self._door.store.runs.list(thread_id=thread_id, limit=1)
        return newest[0].agent if newest else None

    def _stream(self, thread_id: str, after: str | None, *, timeout: float | None) -> Iterator[Event]:
        arguments.check_timeout(timeout)
        return Viewer(self._door.store, self._door.events, thread_id, _cursor(after)).read(timeout)

    def follow(self, run_id: str, after: str | None = None, *, timeout: float | None = None) -> Iterator[Event]:
        """Stream what happens in a run until it has ended, as `RunHandle.events`. Raises `NotFoundError`."""
        arguments.check_timeout(timeout)
        _cursor(after)
        thread_id, begins, _ = self._extent(run_id)
        events = self._stream(thread_id, str(begins) if after is None else after, timeout=timeout)
        return self._until_end(run_id, events)

    def _until_end(self, run_id: str, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            # What is asked below is told of the run in front alone, which is this one until it has ended.
            if event.run_id == run_id or isinstance(event, NestedEvent):
                yield event
                # A run that failed may have been retried: then there is more after this end.
                if isinstance(event, EndEvent) and Cursor.parse(event.id).place == self._extent(run_id).last:
                    return

    def _extent(self, run_id: str) -> Extent:
        check_findable("run", run_id)
        extent = self._door.store.streams.extent(run_id)
        if extent is None:
            raise NotFoundError("run", run_id)
        return extent

    def cancel_run(self, run_id: str, reason: str | None = None, *, identity: str | None = None) -> Run:
        """Cancel a run, all that it waits for and all that was started under it; one that has ended stays as it is.

        `identity` is who cancels it, else the client's own. Raises `NotFoundError`.
        """
        check_findable("run", run_id)
        if identity is not None:
            arguments.check_identity(identity)
        reason = arguments.text_or_none("reason", reason)
        cancelled = cancel(self._door, run_id, reason=reason, by=identity or self._identity)
        if cancelled is None:
            raise NotFoundError("run", run_id)
        return cancelled.run

    def retry(self, run_id: str, *, limits: Limits | None = None) -> Run:
        """Let a failed run go on after a fix, where it was: nothing that it has recorded is done again.

        For failures that lie outside the run: code that no longer fitted it, a limit (give new
        `limits`, or raise the agent's), a model that could not be asked, a body that killed its
        workers. Answers that were accepted are used; waits that were closed with the run are open again,
        with the deadlines that they had. Raises `NotFoundError`, `NotRetryableError`, and `ThreadBusyError`
        if another run of the thread has not ended.
        """
        check_findable("run", run_id)
        arguments.check_limits(limits)
        return retry(self._door, run_id, by=self._identity, limits=limits)


def _cursor(after: str | None) -> Cursor:
    """The place in a stream after an event. Raises `IllegalIdError`."""
    if not isinstance(after, str | None):
        raise IllegalIdError("event id", after)
    return Cursor() if after is None else Cursor.parse(after)
