"""How a wait is opened again whose answer no worker can read. The answer is kept in the log of the run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.records.actions import NewAction
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import ReopeningItem, stored
from adjourn.store.postgres.database import Database

# Reads only. Nothing else changes what was asked: the claim is held.
ASKED = sa.text("select asked from adjourn.actions where id = :action_id")

# Locks the run, under its token, and then the waits: the one that was answered, and those of the same `ask_any` that
# the answer had closed. All of them have their whole time again. The counter of the run stays: its holder does this,
# and loads the run again after it.
# A crash before the commit: the lease runs out, and whoever takes the run finds the answer unreadable again. After:
# the waits are open and can be answered; the run is parked by its next holder. A wait without a record in Redis is
# looked up here.
REOPEN = sa.text("""
with held as materialized (
    select r.id, adjourn.adjourn_now() as now from adjourn.runs r where r.id = :run_id and r.token = :token for update
), reopened as (
    update adjourn.actions as a
    set status = 'pending', asked = case when a.id = :action_id then :asked else a.asked end,
        expires_at = held.now
            + make_interval(secs => cast(adjourn.json_or_null(a.asked) ->> 'timeout_seconds' as double precision)),
        resolved_at = null, resume = null, reason = null, message = null, answered_by = null, channel = null,
        answer_id = null, answer_digest = null, closed_by = null
    from held, adjourn.actions answered
    where answered.id = :action_id and answered.run_id = held.id and answered.status = 'submitted'
        and a.run_id = held.id and (a.id = answered.id or (a.closed_by = answered.id and a.status = 'cancelled'))
    returning a.id, a.call_id
), numbered as (
    select id, call_id, row_number() over (order by id <> :action_id, id) as place, count(*) over () as total
    from reopened
), moved as (
    update adjourn.runs as r set seq = r.seq + (select count(*) from reopened), updated_at = held.now
    from held where r.id = held.id and exists (select from reopened)
    returning r.id, r.ordinal, r.seq, held.now
), recorded as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select moved.id, moved.seq - n.total + n.place, moved.now, 'reopening', case
        when n.id = :action_id then :body
        else json_build_object('kind', 'reopening', 'call_id', n.call_id, 'action_id', n.id)::text
    end
    from moved, numbered n
)
select ordinal, seq from moved
""")


def reopen(db: Database, run_id: str, token: str, note: str, item: ReopeningItem) -> ThreadPosition:
    params: dict[str, Any] = {"action_id": item.action_id}
    row = db.one(ASKED, params, repeatable=True)
    if row is None:
        raise StaleClaimError(run_id)
    asked = NewAction.model_validate_json(row.asked).model_copy(update={"note": note})
    params |= {"run_id": run_id, "token": token, "asked": asked.model_dump_json(), "body": stored(item)}
    moved = db.one(REOPEN, params)
    if moved is None:
        raise StaleClaimError(run_id)
    return ThreadPosition(moved.ordinal, moved.seq)
