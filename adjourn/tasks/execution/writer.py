"""Writes what one claimed run comes to, one durable step at a time.

Owns the view of the run and the claim's counter. Every step is one statement (`claims.write` of the store),
and the step that leaves nothing to do here also gives the claim back (park, requeue or end), so
that no crash can fall between the two. What is left to do the engine says, of the run as the step will leave it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from adjourn.schemas.errors import CodeMismatchError, RunError
from adjourn.schemas.internal.state import Claim, End, Park, Requeue, Write, Written
from adjourn.schemas.records.actions import ActionState, NewAction
from adjourn.schemas.records.events import THREAD_START, Event, RefreshEvent, ThreadPosition, event_of, parked
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import EndItem, Item, ItemBody, MemoItem, ReopeningItem, StartItem, SuspensionItem
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.answers.answering import receive_kept
from adjourn.tasks.answers.ends import settle
from adjourn.tasks.engine.activities import AskModel
from adjourn.tasks.engine.decisions import Finish, View, Wait, failed
from adjourn.tasks.execution.body import oversize
from adjourn.tasks.execution.reopening import note_of
from adjourn.tasks.host.services import Services

log = logging.getLogger(__name__)


class Writer:
    """The one writer of a claimed run. Writes are made one at a time, from whichever thread a body ends in.

    `resolvable` says whether code of this process may still answer a wait of the run, so that it is not to park.
    """

    def __init__(self, services: Services, claim: Claim, resolvable: Callable[[View], bool]) -> None:
        self.view = View.of(claim, services.app.blocks)
        self.place = ThreadPosition(claim.ordinal, claim.items[-1].seq)
        """Of the last item that is known here."""
        self.history_bytes = claim.history_bytes
        self.released = False
        """Whether the claim was given back."""
        self.asked: set[str] = set(self._faulty(self.view)) if claim.paused else set()
        """Agents whose model was asked in this pass, or is left alone. Each is asked once."""
        self.lock = threading.RLock()
        self._services = services
        self._claim = claim
        self._resolvable = resolvable
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

    def settle(self) -> None:
        """All activities are done, or one of them broke the run: then fail it."""
        if self._broken is not None and not self.released:
            self.fail(self._broken)

    # --- writing -----------------------------------------------------------------------------

    def commit(
        self,
        items: Sequence[ItemBody] = (),
        opened: Sequence[NewAction] = (),
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
        pause_seconds: float = 0,
        finished: int = 0,
    ) -> None:
        """Write a step, and give the claim back with it if it leaves nothing to do here.

        `finished` is how many activities it is the end of.
        """
        with self.lock:
            self._running -= finished
            totals: dict[str, Any] = {"usage": usage, "turns": turns, "tool_calls": tool_calls}
            after = self.view.with_(items, provisional(opened, self.view), **totals)
            closing, becomes = self._becoming(after) if self._broken is None else ((), None)
            if opened and (isinstance(becomes, End) or any(action.child for action in opened)):
                # An end, by a limit, closes the waits that it finds, so these have to be there before it. And
                # children are started by a statement of their own, which most writes need not be as heavy as.
                becomes = None
            items = [*items, *closing]
            known = None if opened or closing else after
            becomes = becomes if self._running == 0 else None
            self._write(items, opened, becomes, known, pause_seconds=pause_seconds, **totals)

    def fail(self, error: RunError) -> None:
        """End the run as failed; or leave it to newer builds, if it may be this one's code that is wrong."""
        with self.lock:
            if not (isinstance(error, CodeMismatchError) and self._is_left(error)):
                self._write([], (), failed(error))

    def _is_left(self, error: CodeMismatchError) -> bool:
        """Leave the run to newer builds, if one is live. No word of it is recorded: to them nothing has happened."""
        build, run_id = self._services.build, self.view.run.id
        wakeup = None if build is None else build.leave(run_id, self._claim.token)
        if build is None or wakeup is None:
            return False
        self.released = True
        log.warning(
            "run left to a newer build",
            extra={"run_id": run_id, "build": build.id, "error": type(error).__name__, "problem": str(error)},
        )
        self._services.wakeups.publish(wakeup)
        return True

    def start(self, call_id: str, *, taken_back: bool = False) -> None:
        """Write down that a pass begins; or, with `taken_back`, that it has ended and may begin again."""
        with self.lock:
            self._write([StartItem(call_id=call_id, taken_back=taken_back)], (), None)

    def reopen(self, item: ReopeningItem) -> None:
        """Open a wait again whose answer cannot be read: the end of one activity. Raises `StaleClaimError`."""
        with self.lock:
            services, run = self._services, self.view.run
            place = services.store.claims.reopen(run.id, self._claim.token, note_of(item), item)
            self._running -= 1
            self.reload()
            log.warning("wait opened again", extra={"run_id": run.id, "action_id": item.action_id})
            opened = [state.action for state in self.view.actions if state.resolution is None and state.child is None]
            services.events.publish(run.thread_id, [RefreshEvent(id=str(place), run_id=run.id)], opened=opened)
            if run.root_thread_id is not None:
                services.events.publish(run.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=run.id)])

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
            self.view = View.of(self._claim, self._services.app.blocks, self.view.said)
            self.place = ThreadPosition(self._claim.ordinal, self._claim.items[-1].seq)
            self.history_bytes = self._claim.history_bytes

    # --- inside ------------------------------------------------------------------------------

    def _becoming(self, after: View) -> tuple[Sequence[ItemBody], Park | Requeue | End | None]:
        """What else is to be written with this step, and what it makes of the run."""
        try:
            decision = after.decision
        except RunError:
            return (), None  # said again, and dealt with, when the next thing to do is looked for
        step = decision.step
        if isinstance(step, Finish):
            return decision.closing, step.end
        if isinstance(step, Wait):
            return decision.closing, None if self._resolvable(after) else Park()
        turns = {each.place.call_id for each in step.activities if isinstance(each, AskModel)}
        if len(turns) < len(step.activities) or not turns <= self.asked:
            return decision.closing, None
        return decision.closing, Requeue(after_pause=turns <= self._faulty(after))

    @staticmethod
    def _faulty(view: View) -> set[str]:
        """Agents whose model could not be asked when it last was to be."""
        return {call_id for call_id, faults in view.log.faults.items() if faults}

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
        run_id, services = self.view.run.id, self._services
        written = services.store.claims.write(run_id, self._claim.token, self._claim.revision, write)
        self.history_bytes += written.bytes
        states = [_state(action, written) for action in opened]
        if becomes is None:
            after = after or self.view.with_(items, states, usage=usage, turns=turns, tool_calls=tool_calls)
            self.view = after.at(written.seconds)
        self.place = ThreadPosition(self._claim.ordinal, written.seq)
        events = self._events(write, written, states)
        if isinstance(becomes, Park) and written.status == "running":
            # An answer, a cancel or a message came while this pass ran: see it before parking.
            self.reload()
        elif becomes is not None:
            self.released = True
        self._tell(written, states, becomes, events)
        for action in opened:
            if action.announced:
                receive_kept(services, action.id)

    def _events(self, write: Write, written: Written, opened: Sequence[ActionState]) -> list[Event]:
        """What a viewer is told of a write: its items, which are the last of the run, and that the run parked."""
        run_id, (ordinal, last) = self.view.run.id, self.place
        actions = {state.action.id: state.action for state in opened if state.child is None}
        output = write.becomes.output if isinstance(write.becomes, End) else None
        events: list[Event] = []
        for seq, body in enumerate(write.items, last - len(write.items) + 1):
            item = Item(run_id=run_id, seq=seq, at=written.at, body=body)
            action = actions.get(body.action_id) if isinstance(body, SuspensionItem) else None
            events.append(event_of(item, ordinal, action, output))
        if written.status == "parked":
            events.append(parked(run_id, self.place, written.at))
        return events

    def _tell(
        self,
        written: Written,
        opened: Sequence[ActionState],
        becomes: Park | Requeue | End | None,
        events: Sequence[Event],
    ) -> None:
        """After the commit: the parking index, live events and wake-ups. All of it can be lost and is made up for."""
        services, run = self._services, self.view.run
        asked = [state.action for state in opened if state.child is None]
        services.events.publish(run.thread_id, events, opened=asked, ended=written.closed_action_ids)
        if asked and run.root_thread_id is not None:
            services.events.publish(run.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=run.id)])
        for state in opened:
            if state.child is not None:
                services.wakeups.publish(WakeUp(run_id=state.child.run_id, due="turn"))
        if written.unsettled:
            settle(services, run.id)
        if isinstance(becomes, Requeue) and not written.rests:
            services.wakeups.publish(WakeUp(run_id=run.id, due=becomes.due))
        if written.next_run_id is not None:
            services.wakeups.publish(WakeUp(run_id=written.next_run_id, due="turn"))


def provisional(opened: Sequence[NewAction], view: View) -> list[ActionState]:
    """Waits as they will be, for deciding; their times are not known before the write."""
    return [action.opened(view.run.updated_at, None) for action in opened]


def _state(action: NewAction, written: Written) -> ActionState:
    expires = None if action.timeout_seconds is None else written.at + timedelta(seconds=action.timeout_seconds)
    return action.opened(written.at, expires)
