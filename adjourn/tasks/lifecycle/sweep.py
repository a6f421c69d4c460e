"""One sweep: finds what was forgotten, and sets it going again.

Looks only at state, so it does not matter what went missing, or how: a wake-up, a worker, a timer,
all of Redis. Any number of processes may sweep at once; rows that another sweep holds are skipped.
Everything is done in batches, so that a backlog never makes one statement long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.results import FIRST_PAGE
from adjourn.tasks.answers.answering import receive_early
from adjourn.tasks.answers.ends import fail_damaged, propagate_end
from adjourn.tasks.blocks.user_code import is_interrupt
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.retention import prune

log = logging.getLogger(__name__)

BATCH: Final = 200
MAX_BATCHES: Final = 50
"""Of each kind in one sweep: 10,000 rows, and the rest next time, so that no kind starves the others."""


class SweepReport(Record):
    """How many of each were found."""

    unsent: int = 0
    """Runs due whose wake-up was lost."""
    abandoned: int = 0
    """Runs whose worker died."""
    overdue: int = 0
    """Runs woken because a wait passed its deadline."""
    left: int = 0
    """Runs that some builds cannot drive, announced for the others."""
    early: int = 0
    """Answers that had come before their action opened."""
    lost_waits: int = 0
    """Parked runs that nothing could wake, because a row that they waited for is lost."""
    unpropagated: int = 0
    """Runs that had ended, and whose parent or children had not been told."""
    pruned: int = 0
    """Dead letters and early answers over their limits."""
    forgotten: int = 0
    """Threads over the retention time."""
    rebuilt: int = 0
    """Parking records put back after Redis had lost them."""

    def found(self) -> dict[str, int]:
        """What was not zero."""
        return {name: count for name, count in self.model_dump().items() if count}


class Round:
    """The search for lost waits goes through all parked runs, a page in each sweep. One object for each sweeper."""

    def __init__(self) -> None:
        self.after = FIRST_PAGE
        """The last thread that was looked at."""


def sweep(door: Door, round: Round | None = None) -> SweepReport:
    """Sweep once. Raises `StoreUnavailableError`; what was done before it stays done.

    `round` remembers which parked runs earlier sweeps have looked at; without it a sweep looks at the first page.

    Any other error of one search is logged and costs this search only: deadlines pass whatever the others find.
    """
    store, tuning = door.store, door.tuning
    searches: dict[str, Callable[[], int]] = {
        "rebuilt": lambda: _rebuild(door),
        # Before the deadlines: an answer that was kept in time is not to expire because nobody had looked at it.
        "early": lambda: _receive_early(door),
        "overdue": lambda: _published(door, lambda: _expire(door)),
        "abandoned": lambda: _published(door, lambda: store.recovery.abandoned(BATCH)),
        "lost_waits": lambda: _find_lost_waits(door, round or Round()),
        "unpropagated": lambda: _propagate_ends(door),
        "unsent": lambda: _published(door, lambda: store.recovery.unsent(BATCH)),
        "left": lambda: _published(door, lambda: store.builds.left(BATCH)),
        "forgotten": lambda: 0 if tuning.retention_days is None else prune(store, tuning.retention_days),
        "pruned": lambda: store.dead_letters.prune() + store.early_answers.prune(),
    }
    return SweepReport(**{name: _searched(name, search) for name, search in searches.items()})


def _searched(name: str, search: Callable[[], int]) -> int:
    try:
        return search()
    except StoreUnavailableError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        log.exception("a search of the sweep failed", extra={"search": name})
        return 0


def _published(door: Door, find: Callable[[], Sequence[WakeUp]]) -> int:
    """Publish the wake-ups that `find` gives, batch by batch, until it gives no full one."""
    count = 0
    for _ in range(MAX_BATCHES):
        wakeups = find()
        for wakeup in wakeups:
            door.wakeups.publish(wakeup)
        count += len(wakeups)
        if len(wakeups) < BATCH:
            break
    return count


def _expire(door: Door) -> Sequence[WakeUp]:
    """Expire what is past its deadline. Its records go: left there, they would say of it that it still waits."""
    overdue = door.store.recovery.overdue(BATCH)
    door.parking.drop(overdue.action_ids)
    for error in overdue.damaged:
        fail_damaged(door, error)
    return overdue.wakeups


def _find_lost_waits(door: Door, round: Round) -> int:
    """Parked runs that nothing can wake are due again, or fail: whichever worker loads them names what is lost."""
    found = door.store.recovery.lost_waits(round.after, BATCH)
    round.after = found.last
    for wakeup in found.wakeups:
        log.error("a parked run waits for nothing: a row of it is lost", extra={"run_id": wakeup.run_id})
        door.wakeups.publish(wakeup)
    for error in found.damaged:
        fail_damaged(door, error)
    return len(found.wakeups) + len(found.damaged)


def _receive_early(door: Door) -> int:
    """Answers that were kept and can be judged now: their action has opened, or this process has its app.

    Those that another app has to judge stay, and must not keep the sweep from those behind them.
    """
    count, last = 0, 0
    for _ in range(MAX_BATCHES):
        found = door.store.early_answers.for_open_actions(BATCH, last)
        for early in found:
            count += receive_early(door, early)
            last = early.id
        if len(found) < BATCH:
            break
    return count


def _propagate_ends(door: Door) -> int:
    """Runs that ended, where whoever ended them died before it had told their parents and children."""
    found = door.store.children.unpropagated(BATCH)
    for run_id in found:
        try:
            propagate_end(door, run_id)
        except StoreUnavailableError:
            raise
        except BaseException as error:  # one run must not keep the others from being finished
            if is_interrupt(error):
                raise
            log.exception("the end of a run could not be propagated", extra={"run_id": run_id})
    return len(found)


def _rebuild(door: Door) -> int:
    """Redis has lost what it held: with the records the wake-ups are gone too, so every queued run is due a new one.

    A record that this does not come to is put back by the first answer that looks for it. Marked
    as intact last: a crash in between does it again.
    """
    if door.parking.intact():
        return 0
    log.warning("Redis is new, or has lost what it held: giving all wake-ups again")
    door.store.recovery.make_all_due()
    count, last = 0, None
    while batch := door.store.actions.pending_after(last, BATCH):
        door.parking.put(batch)
        count, last = count + len(batch), batch[-1]
    door.parking.mark()
    return count
