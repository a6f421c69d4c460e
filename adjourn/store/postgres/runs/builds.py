"""Builds: which of them run this deployment, in the order in which they were deployed, and what they leave to others.

Owns the table `builds` and the column `runs.newer_than`. A build is live for some time after the last sign of a
process of it. Its place is the time at which it came up when no process of it was live: later is newer. Restarting
some processes of a live build does not make it newer; deploying an older build again, when it is gone, does.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import GIVEN_BACK
from adjourn.store.postgres.runs.claims import PUT_BACK_DUE
from adjourn.store.rules import BUILD_KEPT_DAYS, LEFT_WAKE_UPS

_ANNOUNCED: Final = f"cast(:wakeup_retry_seconds as double precision) * {LEFT_WAKE_UPS - 1} / {LEFT_WAKE_UPS}"
_LIVE_UNTIL: Final = "adjourn.adjourn_now() + make_interval(secs => :build_seconds)"

# Two processes of one build that come up together stand in line for its row, and the second finds it live.
# A crash before the commit: the build is not there, and no run is left to it. After: it counts as live until its time
# is over, though no process of it may have come up; older builds leave runs to it until then.
REGISTER = sa.text(f"""
with gone as (
    delete from adjourn.builds
    where id <> :id and live_until < adjourn.adjourn_now() - make_interval(days => {BUILD_KEPT_DAYS})
)
insert into adjourn.builds as b (id, place, live_until) values (:id, nextval('adjourn.build_places'), {_LIVE_UNTIL})
on conflict (id) do update
set place = case when b.live_until > adjourn.adjourn_now() then b.place else excluded.place end,
    live_until = greatest(b.live_until, excluded.live_until)
returning b.place
""")

# A process that was cut off for long comes back at its old place, unless its build was deployed again meanwhile.
# A crash before the commit: the build is live for as long as it was. After: for longer.
RENEW = sa.text(f"""
insert into adjourn.builds as b (id, place, live_until) values (:id, :place, {_LIVE_UNTIL})
on conflict (id) do update set live_until = greatest(b.live_until, excluded.live_until)
returning b.place
""")

# A crash before the commit: the run is still held, its lease runs out, and a death is counted as of any worker. After:
# it is due for newer builds, and its wake-up is published again by the sweep (`LEFT`).
# Sent again it finds the claim gone and does nothing.
LEAVE = sa.text(f"""
update adjourn.runs as r
set status = 'queued', due = {PUT_BACK_DUE}, newer_than = greatest(r.newer_than, :place),
    due_at = adjourn.adjourn_now(), wakeups = 0,
    wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds),
    {GIVEN_BACK}, updated_at = adjourn.adjourn_now()
where r.id = :run_id and r.token = :token
    and exists (select from adjourn.builds b where b.place > :place and b.live_until > adjourn.adjourn_now())
returning r.id, r.due
""")

# All builds share the queues of wake-ups, and those that a run was left by drop its wake-ups. It is announced often and
# evenly, for as long as one of them is live. Nobody to leave it to is left, or those who left it are: then whoever
# takes the wake-up takes the run.
# A crash before the commit: the next sweep finds the same. After: the wake-up is not published, and given once more.
LEFT = sa.text(f"""
with left_behind as materialized (
    select id from adjourn.runs r
    where status = 'queued' and due is not null and newer_than is not null
        and wakeup_at <= (select adjourn.adjourn_now()) + make_interval(secs => {_ANNOUNCED})
        and due_at <= (select adjourn.adjourn_now())
        and exists (
            select from adjourn.builds b where b.place <= r.newer_than and b.live_until > adjourn.adjourn_now()
        )
    order by wakeup_at
    limit :limit
    for update skip locked
)
update adjourn.runs as r
set wakeups = 0, wakeup_at = adjourn.adjourn_now() + make_interval(secs => :wakeup_retry_seconds)
from left_behind
where r.id = left_behind.id
returning r.id, r.due
""")

# Reads only.
NEWER = sa.text("""
select exists (
    select from adjourn.builds b where b.place > :place and b.live_until > adjourn.adjourn_now()
) as found
""")

# Reads only. The rule is that of `claims.CLAIM`.
TAKES = sa.text("""
select r.newer_than is null or cast(:place as bigint) is null or r.newer_than < :place or not exists (
    select from adjourn.builds b where b.place > :place and b.live_until > adjourn.adjourn_now()
) as found
from adjourn.runs r where r.id = :run_id and r.status = 'queued' and (not :suspect or r.due = 'suspect')
""")


def register(db: Database, build_id: str) -> int:
    params = {"id": build_id, "build_seconds": db.tuning.build_seconds}
    place: int = db.one(REGISTER, params, repeatable=True).place
    return place


def renew(db: Database, build_id: str, place: int) -> int:
    params = {"id": build_id, "place": place, "build_seconds": db.tuning.build_seconds}
    now_at: int = db.one(RENEW, params, repeatable=True).place
    return now_at


def leave(db: Database, run_id: str, token: str, place: int) -> WakeUp | None:
    params = {"run_id": run_id, "token": token, "place": place, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
    row = db.one(LEAVE, params, repeatable=True)
    return None if row is None else WakeUp(run_id=row.id, due=row.due)


def left(db: Database, limit: int) -> list[WakeUp]:
    rows = db.execute(LEFT, {"limit": limit, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds})
    return [WakeUp(run_id=row.id, due=row.due) for row in rows]


def is_outdated(db: Database, place: int) -> bool:
    return bool(db.one(NEWER, {"place": place}, repeatable=True).found)


def may_take(db: Database, run_id: str, place: int | None, *, suspect: bool = False) -> bool:
    row = db.one(TAKES, {"run_id": run_id, "place": place, "suspect": suspect}, repeatable=True)
    return row is not None and bool(row.found)
