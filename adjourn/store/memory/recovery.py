"""`adjourn.store.postgres.runs.recovery` in memory."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from adjourn.schemas.records.runs import WakeUp
from adjourn.store.memory.actions import close_others, kept_in_time
from adjourn.store.memory.runs import Death, poison, take_from_dead
from adjourn.store.memory.tables import ActionRow, Memory, first_behind, resolution
from adjourn.store.results import Overdue
from adjourn.store.rules import LONGEST_RETRY

_MOST_DOUBLINGS = 10


def unsent(db: Memory, limit: int) -> list[WakeUp]:
    def late() -> list[WakeUp]:
        rows = [row for row in db.runs.values() if row.status == "queued" and row.due and row.wakeup_at <= db.now]
        rows = sorted(rows, key=lambda row: row.wakeup_at)[:limit]
        for row in rows:
            row.wakeups += 1
            pause = db.tuning.wakeup_retry_seconds * min(2 ** min(row.wakeups, _MOST_DOUBLINGS), LONGEST_RETRY)
            row.wakeup_at = db.now + timedelta(seconds=pause)
        return [row.wakeup for row in rows]

    def stranded() -> list[WakeUp]:
        firsts = (
            first_behind(db.of_thread(thread))
            for thread in db.threads
            if not any(row.active for row in db.of_thread(thread))
        )
        rows = [row for row in firsts if row is not None][:limit]
        for row in rows:
            db.make_due(row)
        return [row.wakeup for row in rows]

    return db.statement("unsent", late) + db.statement("stranded", stranded)


def abandoned(db: Memory, limit: int) -> list[WakeUp]:
    def dead() -> list[Death]:
        rows = [row for row in db.runs.values() if row.lease_until is not None and row.lease_until <= db.now]
        rows = sorted(rows, key=lambda row: row.lease_until or db.now)[:limit]
        return [take_from_dead(db, row) for row in rows]

    deaths = db.statement("abandoned", dead)
    wakeups = [WakeUp(run_id=death.row.id, due="suspect") for death in deaths if death.again]
    for death in deaths:
        if not death.again:
            wakeups += poison(db, death, at_once=False)
    return wakeups


def overdue(db: Memory, limit: int) -> Overdue:
    def expire() -> Overdue:
        late = [
            row
            for row in db.actions.values()
            if row.status == "pending" and row.overdue(db.now) and not kept_in_time(db, row)
        ]
        late = sorted(late, key=lambda row: row.expires_at or db.now)[:limit]
        by_run: defaultdict[str, list[ActionRow]] = defaultdict(list)
        for action in late:
            by_run[action.run_id].append(action)
        wakeups = []
        ended: list[str] = []
        for run_id, actions in by_run.items():
            run = db.runs[run_id]
            if run.rests(db.now):
                wakeups.append(WakeUp(run_id=run_id, due="reentry"))
            for action in sorted(_answering(actions), key=lambda action: action.id):
                action.status, action.resolved_at, action.resume = "expired", db.now, action.default_resume
                db.wake(run)
                run.append(resolution(action), db.now)
                ended.append(action.id)
                if action.decides:
                    closed = close_others(db, action, run)
                    ended += closed
                    for _ in closed:
                        db.wake(run)
        return Overdue(wakeups, ended)

    return db.statement("overdue", expire)


def _answering(late: list[ActionRow]) -> list[ActionRow]:
    """The waits that expire. Of an `ask_any` that a deadline has decided, that is the first such wait alone."""
    firsts: dict[str | None, str] = {}
    for row in sorted(late, key=lambda row: (row.expires_at, row.id)):
        if row.asked.any_of is not None and row.decides:
            firsts.setdefault(row.asked.any_of, row.id)
    return [row for row in late if firsts.get(row.asked.any_of, row.id) == row.id]


def make_all_due(db: Memory) -> None:
    def all_due() -> None:
        for row in db.runs.values():
            if row.status == "queued" and row.due is not None:
                row.wakeup_at, row.wakeups = max(row.due_at, db.now), 0

    db.statement("make_all_due", all_due)
