"""What follows from the end of a run: its parent is notified, and its children are closed.

Done by whoever ended the run, and by the sweep if that one died first. Everything here may be done again.
"""

from __future__ import annotations

import logging
from typing import Final

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.events import THREAD_START, RefreshEvent, event_of
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.errors import ContradictedError
from adjourn.store.results import Cancelled, Notified
from adjourn.tasks.host.services import Door

log = logging.getLogger(__name__)

_BATCH: Final = 200


def propagate_end(door: Door, run_id: str) -> None:
    """Tell the parent of an ended run, and cancel the children that nothing waits for any more.

    A crash before the last statement leaves the run unpropagated, and the sweep does all of it again.
    """
    seq = door.store.children.seq_of(run_id)
    if seq is None:
        return
    # Before the parent is notified: it is notified of what they have used, too.
    while orphans := door.store.children.orphans(run_id, _BATCH):
        for orphan, revision in orphans:
            _close(door, orphan, revision)
    notified = _notify_parent(door, run_id)
    if notified is not None:
        door.events.publish(notified.thread_id, [event_of(notified.item, notified.ordinal)])
        if notified.wake:
            door.wakeups.publish(WakeUp(run_id=notified.run_id, due="reentry"))
    door.store.children.mark_propagated(run_id, seq)


def _notify_parent(door: Door, run_id: str) -> Notified | None:
    """Tell the parent of an ended run. One that can record nothing any more fails: it would wait for ever."""
    try:
        return door.store.children.notify_parent(run_id)
    except ContradictedError as error:
        child = door.store.runs.get(run_id)
        if child is not None and (parent := child.parent_run_id) is not None:
            # A crash before the statement: the child is unpropagated, and notified again. After: as after any end.
            fail_damaged(door, damaged(parent, error))
        return None


def _close(door: Door, run_id: str, revision: int) -> None:
    """Cancel a child that nothing waited for when its `revision` was read, unless a retry has revived it since.

    A crash before the statement: the end is unpropagated, and the sweep continues. After: as after any end.
    """
    closed = door.store.runs.close_orphan(run_id, revision)
    if closed is not None:
        _published(door, closed)


def cancel(door: Door, run_id: str, *, reason: str | None, by: str | None) -> Cancelled | None:
    """Cancel a run, what it waits for, and all that was started under it. None if there is no such run.

    Of one that has ended, finish what whoever ended it may have left.
    """
    cancelled = door.store.runs.cancel(run_id, reason=reason, by=by)
    return None if cancelled is None else _published(door, cancelled)


def damaged(run_id: str, error: ContradictedError | DamagedRecordError) -> DamagedRecordError:
    """Name the row of the run that contradicts what else is stored of it."""
    return DamagedRecordError("runs", run_id, run_id, str(error)) if isinstance(error, ContradictedError) else error


def fail_damaged(door: Door, error: DamagedRecordError) -> bool:
    """Fail the run that a damaged row belongs to, and finish what follows from its end.

    False if the run goes on: a newer version of Adjourn has written it, and may read what this one cannot.
    A crash before the statement: whatever reads the row next does it. After: as after any end of a run.
    """
    ended = door.store.runs.fail_damaged(error)
    if ended is None:
        return True
    if ended.changed:
        log.error("a run failed because a row of it is damaged", extra={"run_id": error.run_id, "error": str(error)})
    _published(door, ended)
    return ended.run.ended


def _published(door: Door, cancelled: Cancelled) -> Cancelled:
    run = cancelled.run
    if cancelled.changed:
        event = RefreshEvent(id=str(cancelled.place), run_id=run.id)
        door.events.publish(run.thread_id, [event], ended=cancelled.closed_action_ids)
    if cancelled.closed_action_ids and run.root_thread_id is not None:
        door.events.publish(run.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=run.id)])
    if cancelled.next_run_id is not None:
        door.wakeups.publish(WakeUp(run_id=cancelled.next_run_id, due="turn"))
    if cancelled.unpropagated:
        propagate_end(door, run.id)
    return cancelled
