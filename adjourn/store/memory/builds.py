"""`adjourn.store.postgres.runs.builds` in memory."""

from __future__ import annotations

from datetime import timedelta

from adjourn.schemas.records.runs import WakeUp
from adjourn.store.memory.runs import again
from adjourn.store.memory.tables import Memory
from adjourn.store.rules import BUILD_KEPT_DAYS, LEFT_WAKE_UPS


def register(db: Memory, build_id: str) -> int:
    def come_up() -> int:
        kept = db.now - timedelta(days=BUILD_KEPT_DAYS)
        db.builds = {name: row for name, row in db.builds.items() if name == build_id or row[1] >= kept}
        db.places += 1
        place, until = db.builds.get(build_id, (db.places, db.now))
        live_until = max(until, db.now + timedelta(seconds=db.tuning.build_seconds))
        db.builds[build_id] = (place if until > db.now else db.places, live_until)
        return db.builds[build_id][0]

    return db.statement("register", come_up, repeatable=True)


def renew(db: Memory, build_id: str, place: int) -> int:
    def extend() -> int:
        known, until = db.builds.get(build_id, (place, db.now))
        db.builds[build_id] = (known, max(until, db.now + timedelta(seconds=db.tuning.build_seconds)))
        return known

    return db.statement("renew_build", extend, repeatable=True)


def leave(db: Memory, run_id: str, token: str, place: int) -> WakeUp | None:
    def give_back() -> WakeUp | None:
        row = db.runs.get(run_id)
        if row is None or row.token != token or not db.is_outdated(place):
            return None
        again(db, row, "suspect" if row.due == "suspect" else "reentry")
        row.wakeup_at = db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds)
        row.newer_than = max(row.newer_than or place, place)
        return row.wakeup

    return db.statement("leave", give_back, repeatable=True, run_id=run_id, token=token)


def left(db: Memory, limit: int) -> list[WakeUp]:
    def announce() -> list[WakeUp]:
        announced = db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds * (LEFT_WAKE_UPS - 1) / LEFT_WAKE_UPS)
        rows = [
            row
            for row in db.runs.values()
            if row.status == "queued" and row.due and row.newer_than is not None
            if row.wakeup_at <= announced and row.due_at <= db.now
            if any(place <= row.newer_than and until > db.now for place, until in db.builds.values())
        ]
        rows = sorted(rows, key=lambda row: row.wakeup_at)[:limit]
        for row in rows:
            row.wakeups, row.wakeup_at = 0, db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds)
        return [row.wakeup for row in rows]

    return db.statement("left", announce)


def is_outdated(db: Memory, place: int) -> bool:
    return db.statement("is_outdated", lambda: db.is_outdated(place), repeatable=True)


def may_take(db: Memory, run_id: str, place: int | None, *, suspect: bool = False) -> bool:
    def takes() -> bool:
        row = db.runs.get(run_id)
        is_due = row is not None and row.status == "queued" and (not suspect or row.due == "suspect")
        return row is not None and is_due and db.may_take(row, place)

    return db.statement("may_take", takes, repeatable=True)
