"""What follows a commit of a claimed run: the parking index, live events, wake-ups, and answers that came early.

A crash anywhere in here loses nothing: the sweep gives lost wake-ups again, makes up the parking index, settles ends
and finds early answers; a viewer whose event was lost reads the thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from adjourn.schemas.internal.state import End, Requeue, Write, Written
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.events import THREAD_START, Event, ParkedEvent, RefreshEvent, ThreadPosition, event_of
from adjourn.schemas.records.items import Item, ReopeningItem, SuspensionItem
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.tasks.answers.answering import receive_kept
from adjourn.tasks.answers.ends import propagate_end
from adjourn.tasks.host.services import Services

log = logging.getLogger(__name__)


def after_write(
    services: Services, run: Run, last: ThreadPosition, write: Write, written: Written, opened: Sequence[ActionState]
) -> None:
    """A step was written, whose last item is `last` and which opened these waits."""
    asked = [state.action for state in opened if state.child is None]
    events = _events(run.id, last, write, written, opened)
    services.events.publish(run.thread_id, events, opened=asked, ended=written.closed_action_ids)
    if asked:
        _refresh_root(services, run)
    for state in opened:
        if state.child is not None:
            services.wakeups.publish(WakeUp(run_id=state.child.run_id, due="turn"))
    if written.unpropagated:
        propagate_end(services, run.id)
    if isinstance(write.becomes, Requeue) and not written.rests:
        services.wakeups.publish(WakeUp(run_id=run.id, due=write.becomes.due))
    if written.next_run_id is not None:
        services.wakeups.publish(WakeUp(run_id=written.next_run_id, due="turn"))
    for action in write.actions:
        if action.announced:
            receive_kept(services, action.id)


def after_reopening(
    services: Services, run: Run, item: ReopeningItem, place: ThreadPosition, waits: Sequence[ActionState]
) -> None:
    """A wait was opened again, by the item at `place`; these are the waits of the run now."""
    log.warning("wait opened again", extra={"run_id": run.id, "action_id": item.action_id})
    asked = [state.action for state in waits if state.resolution is None and state.child is None]
    services.events.publish(run.thread_id, [RefreshEvent(id=str(place), run_id=run.id)], opened=asked)
    _refresh_root(services, run)


def after_leaving(services: Services, wakeup: WakeUp, build: str, error: Exception) -> None:
    """A run was left to newer builds, because of an error that may be this one's."""
    log.warning(
        "run left to a newer build",
        extra={"run_id": wakeup.run_id, "build": build, "error": type(error).__name__, "problem": str(error)},
    )
    services.wakeups.publish(wakeup)


def _events(
    run_id: str, last: ThreadPosition, write: Write, written: Written, opened: Sequence[ActionState]
) -> list[Event]:
    """What a viewer reads of a write: its items, which are the last of the run, and that the run parked."""
    actions = {state.action.id: state.action for state in opened if state.child is None}
    output = write.becomes.output if isinstance(write.becomes, End) else None
    events: list[Event] = []
    for seq, body in enumerate(write.items, last.seq - len(write.items) + 1):
        item = Item(run_id=run_id, seq=seq, at=written.at, body=body)
        action = actions.get(body.action_id) if isinstance(body, SuspensionItem) else None
        events.append(event_of(item, last.run, action, output))
    if written.status == "parked":
        events.append(ParkedEvent.of(run_id, last, written.at))
    return events


def _refresh_root(services: Services, run: Run) -> None:
    """Viewers of the root's thread see the waits of the runs below it."""
    if run.root_thread_id is not None:
        services.events.publish(run.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=run.id)])
