"""Writes what one claimed run comes to, one durable step at a time.

Owns the view of the run and the claim's counter. Every step is one statement (`claims.write` of the store),
and the step that leaves nothing to do here also gives the claim back (park, requeue or end), so
that no crash can fall between the two. What is left to do the engine decides, of the run as the step will leave it
(`adjourn.tasks.engine.transitions`). What follows a commit is done by `adjourn.tasks.execution.after_commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from adjourn.schemas.errors import CodeMismatchError, RunError
from adjourn.schemas.internal.state import Claim, End, Park, Requeue, Write, Written
from adjourn.schemas.records.actions import ActionState, NewAction
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import EndItem, ItemBody, MemoItem, ReopeningItem, StartItem
from adjourn.schemas.records.messages import Usage
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.transitions import Next, faulty_agents, next_step
from adjourn.tasks.execution.after_commit import after_leaving, after_reopening, after_write
from adjourn.tasks.execution.body import oversize
from adjourn.tasks.execution.reopening import note_of
from adjourn.tasks.host.services import Services


class Writer:
    """The one writer of a claimed run. Writes are made one at a time, from whichever thread a body ends in.

    `open_wait` finds a wait that code of this process may still answer, so that the run is not to park.
    """

    def __init__(self, services: Services, claim: Claim, open_wait: Callable[[View], ActionState | None]) -> None:
        self.view = View.of(claim, services.app.blocks)
        self.place = ThreadPosition(claim.ordinal, claim.items[-1].seq)
        """Of the last item that is known here."""
        self.history_bytes = claim.history_bytes
        self.released = False
        """Whether the claim was given back."""
        self.asked: set[str] = set(faulty_agents(self.view)) if claim.paused else set()
        """Agents whose model was asked in this pass, or is left alone. Each is asked once."""
        self.lock = threading.RLock()
        self._services = services
        self._claim = claim
        self._open_wait = open_wait
        self._running = 0
        self._broken: RunError | None = None
        self._key = services.store.signing_key()

    # --- what runs ---------------------------------------------------------------------------

    def begin(self, activities: int) -> None:
        """So many activities begin, side by side. Nothing is given back before all of them are done."""
        self._running = activities

    def break_off(self, error: RunError) -> None:
        """An activity is done, and the run has to fail once what runs beside it has ended."""
        with self.lock:
            self._broken = self._broken or error
            self._running -= 1

    @property
    def broken(self) -> bool:
        """Whether the run has to fail, and nothing more is to begin."""
        return self._broken is not None

    def finish(self) -> None:
        """All activities are done, or one of them broke the run: then fail it."""
        if self._broken is not None and not self.released:
            self.fail(self._broken)

    # --- writing -----------------------------------------------------------------------------

    def next_step(self) -> Next:
        """Decide what comes next with the run as it is recorded."""
        return self._next(self.view)

    def give_back(self, following: Next) -> None:
        """Give the claim back, where nothing is left to do in this pass."""
        with self.lock:
            self._write(following.closing, (), following.becomes_after(()))

    def commit(
        self,
        items: Sequence[ItemBody],
        opened: Sequence[NewAction] = (),
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
        pause_seconds: float = 0,
        finished: int = 1,
    ) -> None:
        """Write a step, the end of `finished` activities; give the claim back with it if nothing is left to do here."""
        with self.lock:
            self._running -= finished
            totals: dict[str, Any] = {"usage": usage, "turns": turns, "tool_calls": tool_calls}
            after = self.view.with_(items, provisional(opened, self.view), **totals)
            following = None if self.broken else self._next(after)
            closing = () if following is None else following.closing
            becomes = None if following is None or self._running else following.becomes_after(opened)
            known = None if opened or closing else after
            self._write([*items, *closing], opened, becomes, known, pause_seconds=pause_seconds, **totals)

    def fail(self, error: RunError) -> None:
        """End the run as failed; or leave it to newer builds, if it may be this one's code that is wrong."""
        with self.lock:
            if not (isinstance(error, CodeMismatchError) and self._is_left(error)):
                self._write([], (), End.failed(error))

    def _is_left(self, error: CodeMismatchError) -> bool:
        """Leave the run to newer builds, if one is live. No word of it is recorded: to them nothing has happened."""
        build = self._services.build
        wakeup = None if build is None else build.leave(self.view.run.id, self._claim.token)
        if build is None or wakeup is None:
            return False
        self.released = True
        after_leaving(self._services, wakeup, build.id, error)
        return True

    def start(self, call_id: str, *, taken_back: bool = False) -> None:
        """Write down that a pass begins; or, with `taken_back`, that it has ended and may begin again."""
        with self.lock:
            self._write([StartItem(call_id=call_id, taken_back=taken_back)], (), None)

    def reopen(self, item: ReopeningItem) -> None:
        """Open a wait again whose answer cannot be read: the end of one activity. Raises `StaleClaimError`."""
        with self.lock:
            run = self.view.run
            place = self._services.store.claims.reopen(run.id, self._claim.token, note_of(item), item)
            self._running -= 1
            self.reload()
            after_reopening(self._services, run, item, place, self.view.actions)

    def memo(self, call_id: str, key: str, value: Any) -> None:
        """Of `run_once`. Raises `TooLargeError`, `StaleClaimError`."""
        with self.lock:
            fault = oversize(f"the result of run_once({key!r})", value, self._services.tuning, self.history_bytes)
            if fault is not None:
                raise fault
            self._write([MemoItem(call_id=call_id, key=key, value=value)], (), None)

    def now(self) -> datetime:
        return self._services.store.clock()

    def new_action_id(self) -> str:
        return new_action_id(self._key)

    def reload(self) -> None:
        """See what came while this pass ran. Raises `StaleClaimError`."""
        with self.lock:
            self._claim = self._services.store.claims.reload(self._claim)
            self.view = View.of(self._claim, self._services.app.blocks, self.view.cached)
            self.place = ThreadPosition(self._claim.ordinal, self._claim.items[-1].seq)
            self.history_bytes = self._claim.history_bytes

    # --- inside ------------------------------------------------------------------------------

    def _next(self, view: View) -> Next:
        return next_step(view, self.asked, self._open_wait)

    def _write(
        self,
        items: Sequence[ItemBody],
        opened: Sequence[NewAction],
        becomes: Park | Requeue | End | None,
        after: View | None = None,
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
        pause_seconds: float = 0,
    ) -> None:
        """One write. `after` is the view that it leads to, where that is known already, decision and all."""
        if isinstance(becomes, End):
            items = [*items, EndItem(status=becomes.status, error=becomes.error)]
        write = Write(
            items=tuple(items),
            actions=tuple(opened),
            usage=usage,
            turns=turns,
            tool_calls=tool_calls,
            pause_seconds=pause_seconds,
            becomes=becomes,
        )
        run = self.view.run
        written = self._services.store.claims.write(run.id, self._claim.token, self._claim.revision, write)
        self.history_bytes += written.bytes
        states = [_state(action, written) for action in opened]
        if becomes is None:
            after = after or self.view.with_(items, states, usage=usage, turns=turns, tool_calls=tool_calls)
            self.view = after.at(written.seconds)
        self.place = ThreadPosition(self._claim.ordinal, written.seq)
        goes_on = isinstance(becomes, Park) and written.status == "running"
        self.released = becomes is not None and not goes_on
        after_write(self._services, run, self.place, write, written, states)
        if goes_on:
            # An answer, a cancel or a message came while this pass ran: see it before parking.
            self.reload()


def provisional(opened: Sequence[NewAction], view: View) -> list[ActionState]:
    """Waits as they will be, for deciding; their times are not known before the write."""
    return [action.opened(view.run.updated_at, None) for action in opened]


def _state(action: NewAction, written: Written) -> ActionState:
    expires = None if action.timeout_seconds is None else written.at + timedelta(seconds=action.timeout_seconds)
    return action.opened(written.at, expires)
