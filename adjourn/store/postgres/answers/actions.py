"""Actions: how an answer is judged and kept, and how pending actions are found.

Owns the compare-and-set of `actions`: the first answer wins, whatever comes after it.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.internal.state import Answered
from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.items import ITEM, Item
from adjourn.schemas.records.runs import RunStatus
from adjourn.store.errors import ContradictedError
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import (
    ACTIONS_JSON,
    DECIDES,
    RESTS,
    WAITED_FOR,
    actions_of,
    closed_by,
    kept_in_time,
    refuse,
    resolution_of,
    runs_under,
    woken,
)

# Locks the run, then the action. The lock on the run puts the answer before or after every write
# of the run's holder: one that parks has either this answer counted in `revision`, or has parked
# before it and is woken by it.
# `seen` is the action in the statement's snapshot. One that had ended there has ended for good.
# One that was pending there and is not resolved here was answered by somebody else meanwhile; what
# they said this snapshot cannot show, so it is asked for with another statement.
# An answer to one wait of an `ask_any` closes the others in this same statement: the second of two answers that come
# at once waits for the lock of the run, and finds its action closed.
# `passed` is the deadline that decides against the answer: its wait's own, or of another wait of the same `ask_any`.
# Its wait (`target`) expires, which closes the others. `received` is when the answer came in: one that a worker had to
# validate was in time if it came in time. While such an answer is there, a later one that is late changes nothing.
# `woken` goes by the row that it updates and not by `rests`: Postgres first tries the
# row of the snapshot, and checks its constraints, before it finds that there is a newer one.
# A crash before the commit: the answer is still with its sender, or in its queue. After: it is the
# action's answer, and sent again a duplicate. If the wake-up is never published, the sweep does it.
ANSWER = sa.text(f"""
with seen as materialized (
    select id, run_id, thread_id, name, status, expires_at, on_timeout, any_of, answer_id, answer_digest
    from adjourn.actions where id = :action_id
), run as materialized (
    select r.id, r.status in ('queued', 'running', 'parked') as active, {RESTS} as rests,
        adjourn.adjourn_now() as now, coalesce(cast(:received_at as timestamptz), adjourn.adjourn_now()) as received
    from adjourn.runs r
    where r.id = (select run_id from seen where status = 'pending')
    for update
), passed as materialized (
    select due.*, {kept_in_time("due")} as kept
    from (
        select seen.id, seen.any_of, seen.expires_at, seen.on_timeout from seen, run
        where run.active and seen.expires_at <= run.received
        union all
        select g.id, g.any_of, g.expires_at, g.on_timeout
        from run, seen join adjourn.actions g on g.any_of = seen.any_of and g.id <> seen.id
        where run.active and g.run_id = run.id and g.status = 'pending' and g.expires_at <= run.received
            and g.{DECIDES}
    ) as due
    order by due.{DECIDES} desc, due.expires_at, due.id
    limit 1
), verdict as materialized (
    select run.*, coalesce(passed.id, seen.id) as target, run.active and passed.id is null as accepted,
        case when not run.active then 'cancelled' when passed.id is not null then 'expired' else :status end as status
    from run cross join seen left join passed on true
    where (:fits or not run.active or passed.id is not null) and passed.kept is not true
), resolved as (
    update adjourn.actions as a
    set status = v.status, resolved_at = v.now,
        resume = case when v.accepted then :resume when v.status = 'expired' then a.default_resume end,
        reason = case when v.accepted then :reason end,
        message = case when v.accepted then :message end,
        answered_by = case when v.accepted then :answered_by end,
        channel = case when v.accepted then :channel end,
        answer_id = case when v.accepted then :answer_id end,
        answer_digest = case when v.accepted then :digest end
    from verdict v
    where a.id = v.target and a.status = 'pending'
    returning a.call_id, a.answered_by, a.answer_id, a.answer_digest,
        case when not v.accepted then a.resume end as default_resume,
        case when v.accepted or a.{DECIDES} then a.any_of end as decided_group,
        not v.accepted and a.on_timeout = 'fail_run' as fails,
        a.id as action_id, v.*
), {closed_by("resolved", "w.id")}, woken as (
    update adjourn.runs as r
    set seq = r.seq + 1 + (select count(*) from closed), revision = r.revision + 1, updated_at = w.now,
        {woken("w.now")}
    from resolved w
    where r.id = w.id and w.active
    returning r.id, r.ordinal, r.seq, r.root_thread_id
), recorded as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select woken.id, woken.seq - (select count(*) from closed), w.now, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', w.call_id, 'action_id', w.action_id, 'status', w.status,
        'answer_id', w.answer_id, 'answered_by', w.answered_by, 'digest', w.answer_digest
    )::text
    from woken, resolved w
    returning seq, at, body
), recorded_closed as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select woken.id, woken.seq - closed.total + closed.place, w.now, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', closed.call_id, 'action_id', closed.id, 'status', 'cancelled'
    )::text
    from woken, resolved w, (
        select *, row_number() over (order by id) as place, count(*) over () as total from closed
    ) closed
)
select seen.run_id, seen.thread_id, seen.name, seen.status as seen_status, seen.answer_id, seen.answer_digest,
    w.status, w.accepted, w.answer_id as own_answer_id, w.default_resume, w.rests and w.active as wake, woken.ordinal,
    woken.root_thread_id, recorded.seq, recorded.at, recorded.body, w.action_id as resolved_id,
    coalesce((select kept from passed), false) as kept, exists(select from run) as has_run,
    (select coalesce(json_agg(id order by id)::text, '[]') from closed) as closed_ids
from seen left join resolved w on true left join woken on true left join recorded on true
""")

_STATES = f"select {ACTIONS_JSON} as actions from adjourn.actions a"

# The reads. A crash before or after them changes nothing.
GET = sa.text(f"{_STATES} where a.id = :action_id")

RUN_OF = sa.text("select run_id from adjourn.actions where id = :action_id")

FIND_BY_REQUEST_ID = sa.text("""
select a.id from adjourn.actions a where a.request_id = :request_id and a.status = 'pending' limit 2
""")

LAST_BY_REQUEST_ID = sa.text("""
select a.id from adjourn.actions a where a.request_id = :request_id order by a.opened_at desc limit 1
""")

NEWEST_BY_REQUEST_ID = sa.text("""
select a.id from adjourn.actions a where a.request_id = :request_id
order by a.status = 'pending' desc, a.opened_at desc, a.id desc limit 1
""")

ANSWERED_BY_REQUEST_ID = sa.text("""
select a.id from adjourn.actions a
where a.request_id = :request_id and a.answer_id = :answer_id and a.answer_digest = :digest
limit 1
""")

PENDING = sa.text(f"""
with chosen as (
    select * from adjourn.actions a
    where a.status = 'pending' and a.child_run_id is null
        and (a.opened_at, a.id) > (coalesce(cast(:after_at as timestamptz), '-infinity'), :after_id)
    order by a.opened_at, a.id limit :limit
)
select {ACTIONS_JSON} as actions from chosen a
""")

PENDING_OF_THREAD = sa.text(f"""
with chosen as (
    select a.* from ({runs_under("thread_id = :thread_id")}) r join adjourn.actions a on a.run_id = r.id
    where a.status = 'pending' and a.child_run_id is null
    order by a.opened_at, a.id limit :limit
)
select {ACTIONS_JSON} as actions from chosen a
""")

PENDING_OF_RUN = sa.text(f"""
with chosen as (
    select a.* from ({runs_under("id = :run_id")}) r join adjourn.actions a on a.run_id = r.id
    where a.status = 'pending' and a.child_run_id is null
    order by a.opened_at, a.id limit :limit
)
select {ACTIONS_JSON} as actions from chosen a
""")

ASKS_IN = sa.text(f"""
with {WAITED_FOR}
select r.status from adjourn.runs r
where r.id = :run_id and {RESTS} and exists(
    select from under cross join lateral (select * from adjourn.actions a where a.run_id = under.id offset 0) a
    where a.status = 'pending' and a.child_run_id is null
)
""")


def answer(
    db: Database,
    *,
    action_id: str,
    status: Literal["submitted", "cancelled", "failed"],
    resume: str | None,
    reason: str | None,
    message: str | None,
    answer_id: str,
    digest: str,
    answered_by: str | None,
    channel: str | None = None,
    fits: bool = True,
    received_at: datetime | None = None,
) -> Answered:
    params = {
        "action_id": action_id,
        "status": status,
        "resume": resume,
        "reason": reason,
        "message": message,
        "answer_id": answer_id,
        "digest": digest,
        "answered_by": answered_by,
        "channel": channel,
        "fits": fits,
        "received_at": received_at,
        "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
    }
    was_without_run = False
    while True:
        try:
            row = db.one(ANSWER, params, repeatable=True)
        except ContradictedError as error:
            run_id = db.one(RUN_OF, {"action_id": action_id}, repeatable=True).run_id
            raise DamagedRecordError("runs", run_id, run_id, str(error)) from error
        if row is None:
            return Answered(outcome="unknown")
        if row.status is not None:
            # Of two waits that ended here, the one that was answered is the one that another one's deadline closed.
            status = row.status if row.resolved_id == action_id else "cancelled"
            came = _answered(row, "accepted" if row.accepted else "late", status, wake=row.wake)
            return _with_answer(came, row, params)
        if row.seen_status != "pending":
            same = (row.answer_id, row.answer_digest) == (answer_id, digest)
            return _answered(row, "duplicate" if same else "late", row.seen_status)
        if row.kept:
            return _answered(row, "late", row.seen_status)
        if was_without_run and not row.has_run:
            raise DamagedRecordError("actions", action_id, row.run_id, f"there is no run {row.run_id}")
        if not row.has_run:
            # It was deleted with its action after this statement began, or it is lost: the next pass tells.
            was_without_run = True
            continue
        if not fits:
            return _answered(row, "waiting", row.seen_status)
        # Lost the race: the next pass sees the winner, for an action that has ended stays so.


def _with_answer(came: Answered, row: Any, params: dict[str, Any]) -> Answered:
    """The answer with what its item does not say: the value is stored with the action."""
    if came.item is None:
        return came
    said = {"resume": row.default_resume, "reason": None, "message": None, "answered_by": None, "channel": None}
    if row.accepted:
        said = {name: params[name] for name in said}
    ended = {"status": row.status, "resolved_at": came.item.at, "answer_id": row.own_answer_id}
    return replace(came, resolution=resolution_of(ended | said))


def get(db: Database, action_id: str) -> ActionState | None:
    row = db.one(GET, {"action_id": action_id}, repeatable=True)
    return next(iter(actions_of(row.actions, refuse)), None)


def find_by_request_id(db: Database, request_id: str) -> list[str]:
    rows = db.execute(FIND_BY_REQUEST_ID, {"request_id": request_id}, repeatable=True)
    return [row.id for row in rows]


def last_by_request_id(db: Database, request_id: str) -> str | None:
    row = db.one(LAST_BY_REQUEST_ID, {"request_id": request_id}, repeatable=True)
    return None if row is None else str(row.id)


def newest_by_request_id(db: Database, request_id: str) -> str | None:
    row = db.one(NEWEST_BY_REQUEST_ID, {"request_id": request_id}, repeatable=True)
    return None if row is None else str(row.id)


def answered_by_request_id(db: Database, request_id: str, answer_id: str, digest: str) -> str | None:
    params = {"request_id": request_id, "answer_id": answer_id, "digest": digest}
    row = db.one(ANSWERED_BY_REQUEST_ID, params, repeatable=True)
    return None if row is None else str(row.id)


def pending(
    db: Database, thread_id: str | None = None, run_id: str | None = None, limit: int = 100
) -> list[PendingAction]:
    if run_id is not None:
        states = _states(db, PENDING_OF_RUN, run_id=run_id, limit=limit)
    elif thread_id is not None:
        states = _states(db, PENDING_OF_THREAD, thread_id=thread_id, limit=limit)
    else:
        return pending_after(db, None, limit)
    return [state.action for state in states]


def pending_after(db: Database, after: PendingAction | None, limit: int) -> list[PendingAction]:
    place: dict[str, Any] = {"after_at": None, "after_id": ""}
    if after is not None:
        place = {"after_at": after.opened_at, "after_id": after.id}
    while True:
        text = db.one(PENDING, {**place, "limit": limit}, repeatable=True).actions
        states = actions_of(text)
        if states or not (rows := json.loads(text)):
            return [state.action for state in states]
        # A page of nothing but damaged rows is not the end of the list.
        place = {"after_at": rows[-1]["opened_at"], "after_id": rows[-1]["id"]}


def asks_in(db: Database, run_id: str) -> RunStatus | None:
    row = db.one(ASKS_IN, {"run_id": run_id}, repeatable=True)
    return None if row is None else row.status


def _states(db: Database, statement: sa.TextClause, **params: Any) -> tuple[ActionState, ...]:
    return actions_of(db.one(statement, params, repeatable=True).actions)


def _answered(
    row: Any, outcome: Literal["accepted", "duplicate", "late", "waiting"], action_status: str, *, wake: bool = False
) -> Answered:
    return Answered(
        outcome=outcome,
        run_id=row.run_id,
        thread_id=row.thread_id,
        name=row.name,
        action_status=action_status,
        wake=wake,
        item=None
        if row.body is None
        else Item(run_id=row.run_id, seq=row.seq, at=row.at, body=ITEM.validate_json(row.body)),
        ordinal=row.ordinal or 0,
        root_thread_id=row.root_thread_id,
        closed=tuple(json.loads(row.closed_ids)),
    )
