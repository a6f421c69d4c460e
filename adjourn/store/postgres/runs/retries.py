"""How a failed run is retried: it is due again, and the waits that were closed with it are open again.

The children that failed it, or were closed with it, are revived in the same statement, at any depth.
Owns the one statement that takes a run out of an end. What is recorded stays: the end stands in the
log as it happened, and a `retry` after it.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import (
    ChildRunError,
    NotFoundError,
    NotRetryableError,
    StoreUnavailableError,
    ThreadBusyError,
)
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import RetryItem, stored
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ACTIVE, BEHIND, RUN_COLUMNS, run_of
from adjourn.store.postgres.runs.children import LIVE
from adjourn.store.results import Retried, Revived
from adjourn.store.rules import PARENT_ENDED

ATTEMPTS: Final = 20
"""A retry is tried again when its thread, or its tree, changed between its snapshot and its locks."""

_TYPE: Final = r"""substring(r.error from '^{"type" ?: ?"(\w+)"')"""
"""The type of the error of run `r`."""


def _counted(path: str, column: str) -> str:
    """The sum of one number that ended children of a run have used, as their waits `b` have recorded it.

    Version 3 of the state recorded none of these numbers and counted none. If the record is damaged, the child's
    own row says the same.
    """
    recorded = f"coalesce(cast(adjourn.json_or_null(b.resume) #>> '{{{path}}}' as numeric), 0)"
    return f"sum(case when adjourn.json_or_null(b.resume) is null then c.{column} else {recorded} end) as {column}"


_COUNTED: Final = {
    "input_tokens": "usage,input_tokens",
    "output_tokens": "usage,output_tokens",
    "requests": "usage,requests",
    "cost": "usage,cost",
    "turns": "turns",
    "tool_calls": "tool_calls",
}

# Which waits for children are reopened. `branch.becomes` says what happens to a wait of a run that is retried:
#   revived   the child failed with an error that a retry can fix, or was closed with its parent: it is due again
#   adopted   the child was about to be closed with its parent and still lives: the wait is pending again
#   untold    the child completed, or a person cancelled it, and the parent has yet to be notified: likewise
#   heard     the same, but the parent had been notified after its own end: the result counts now
# Any other wait stays as it is. A failed or closed one is void then (`engine.history`), its call starts a new child:
# the child failed with an error of its own, or at a limit, and a new one gets a share of the raised limit. The
# same holds for a parent that failed only because of such a child. A call whose output is recorded is history.
_BRANCHES: Final = f"""
recursive root as materialized (
    select r.id, r.thread_id, r.status, r.parent_run_id, {_TYPE} as type
    from adjourn.runs r where r.id = :run_id
), below as (
    select id from root where parent_run_id is null and status = 'failed' and type = any(cast(:types as text[]))
    union all
    select c.id from adjourn.runs c join below on c.parent_run_id = below.id
), member as materialized (
    select r.*, r.xmin as version, {_TYPE} as type, adjourn.json_or_null(r.error) as failure
    from adjourn.runs r join below on below.id = r.id
), limited as (
    select id, parent_run_id from member
    where status = 'failed' and type = any(cast(:types_anew as text[])) and id <> :run_id
    union
    select m.id, m.parent_run_id from limited l join member m on m.id = l.parent_run_id
    where m.id <> :run_id and m.status = 'failed' and m.type = 'ChildFailedError'
        and m.failure #>> '{{data,child_run_id}}' = l.id
), recorded as materialized (
    select i.run_id, i.kind, i.seq, adjourn.json_or_null(i.body) as body
    from adjourn.items i join below on below.id = i.run_id
    where i.kind in ('suspension', 'output')
), wait as materialized (
    select distinct on (a.run_id, a.call_id)
        a.id, a.run_id, a.call_id, a.child_run_id, a.child_group, a.status, a.answer_id, a.answered_by, a.resume
    from adjourn.actions a join below on below.id = a.run_id
    left join recorded s on s.kind = 'suspension' and s.run_id = a.run_id and s.body ->> 'action_id' = a.id
    where a.child_run_id is not null
    order by a.run_id, a.call_id, s.seq desc nulls last, a.opened_at desc, a.id desc
), edge as materialized (
    select w.*, case
        when w.status = 'cancelled' and c.{LIVE} then 'adopted'
        when c.status = 'failed' and c.type = any(cast(:types as text[]))
            and not exists (select from limited l where l.id = c.id) then 'revived'
        when w.status <> 'cancelled' then null
        when c.status = 'cancelled' and coalesce(
            c.failure #>> '{{data,orphaned}}' = 'true',
            c.failure ->> 'message' = :orphaned and c.failure #>> '{{data,by}}' is null
        ) then 'revived'
        when c.status = 'failed' then null
        when w.answer_id is not null then 'heard'
        when c.unpropagated then 'untold'
    end as becomes
    from wait w join member c on c.id = w.child_run_id
    where not exists (
        select from recorded o where o.kind = 'output' and o.run_id = w.run_id and o.body ->> 'call_id' = w.call_id
    )
), tree as (
    select id from root where exists (select from below)
    union all
    select e.child_run_id from tree join edge e on e.run_id = tree.id where e.becomes = 'revived'
), branch as materialized (
    select e.* from edge e join tree on tree.id = e.run_id where e.becomes is not null
)
"""

# All of a tree is retried or nothing. Everything is decided by the snapshot of the statement, and then the
# threads and the runs are locked, each in the order of their ids. If one of them has changed since the snapshot
# (`xmin` is the transaction that wrote the row), nothing is written, and the caller tries again. So nobody ends,
# notifies or revives a run of the tree in between. Whoever writes to an action locks its run first.
# A run becomes its thread's active one, as by a start, so it takes the thread's next ordinal as a start
# does (and leaves it unused): of two that do so, the second one finds that the ordinal has moved on and does
# nothing, for it may not have seen the run of the other. `runs_active` is never violated.
# A run stays on its queue: one that killed its workers is tried in a process of its own again.
# A wait that was closed with the run has no answer; one that a person declined has one, and stays as it is.
# What a revived child had used is taken from its parent again. Its next end counts all of it, once.
# `revision` of every child that is revived or adopted moves on: a process that still closes the children of the
# failed run closes only those whose `revision` it has read.
# A crash before the commit: the tree is failed, as it was. After: all of it is due, and wake-ups that were never
# published are published by the sweep. A wait without a record in Redis is looked up here.
RETRY = sa.text(f"""
with {_BRANCHES}, touched as materialized (
    select m.id, m.thread_id, m.version, true as again from member m join tree on tree.id = m.id
    union all
    select b.child_run_id, null, null, false from branch b where b.becomes = 'adopted'
), place as materialized (
    select t.id, t.last_ordinal from adjourn.threads t where t.id in (select thread_id from touched where again)
), busy as materialized (
    select o.id, o.thread_id from adjourn.runs o, root
    where o.thread_id in (select root.thread_id union select id from place) and (o.{ACTIVE} or o.{BEHIND})
    order by o.thread_id = root.thread_id desc, o.thread_id, o.ordinal limit 1
), thread as materialized (
    select t.id from adjourn.threads t join place p on p.id = t.id and p.last_ordinal = t.last_ordinal
    where not exists (select from busy)
    order by t.id
    for update of t
), locked as materialized (
    select r.id from adjourn.runs r join touched s on s.id = r.id
    where case when s.again then r.xmin = s.version else r.{LIVE} end
        and (select count(*) from thread) = (select count(*) from place)
    order by r.id
    for update of r
), go as materialized (
    select from root where exists (select from tree) and not exists (select from busy)
        and (select count(*) from thread) = (select count(*) from place)
        and (select count(*) from locked) = (select count(*) from touched)
), moved as (
    update adjourn.threads as t set last_ordinal = t.last_ordinal + 1 from go, place where t.id = place.id
), spent as materialized (
    select b.run_id, {", ".join(_counted(path, column) for column, path in _COUNTED.items())}
    from branch b join member c on c.id = b.child_run_id
    where b.becomes = 'revived' and b.answer_id is not null
    group by b.run_id
), plan as materialized (
    select tree.id, adjourn.adjourn_now() as now,
        (select count(*) from branch b where b.run_id = tree.id and b.becomes = 'heard') as heard,
        {", ".join(f"coalesce(spent.{column}, 0) as {column}" for column in _COUNTED)}
    from go, tree left join spent on spent.run_id = tree.id
), run as (
    update adjourn.runs as r
    set status = 'queued', error = null, output = null, deaths = 0, retry_at = null, seq = r.seq + 1 + plan.heard,
        revision = r.revision + 1, wakeups = 0, due_at = plan.now, updated_at = plan.now,
        wakeup_at = plan.now + make_interval(secs => :wakeup_retry_seconds),
        limits = case when r.id = :run_id then coalesce(:limits, r.limits) else r.limits end,
        {", ".join(f"{column} = r.{column} - plan.{column}" for column in _COUNTED)}
    from plan
    where r.id = plan.id
    returning {RUN_COLUMNS}, r.ordinal, r.seq, r.due, plan.heard
), adopted as (
    update adjourn.runs as r set revision = r.revision + 1
    from go, branch b
    where r.id = b.child_run_id and b.becomes = 'adopted'
), reopened as (
    update adjourn.actions as a
    set status = 'pending', resolved_at = null, reason = null
    from run
    where a.run_id = run.id and a.status = 'cancelled' and a.answer_id is null and a.child_run_id is null
        and a.closed_by is null
), awaited as (
    update adjourn.actions as a
    set status = 'pending', resolved_at = null, reason = null, answer_id = null, answered_by = null, resume = null
    from run, branch b
    where b.run_id = run.id and a.id = b.id and b.becomes <> 'heard'
), heard as (
    update adjourn.actions as a
    set status = 'submitted', reason = null
    from run, branch b
    where b.run_id = run.id and a.id = b.id and b.becomes = 'heard'
), grouped as (
    insert into adjourn.child_groups as g (run_id, name, open)
    select w.run_id, w.child_group, count(b.id) filter (where b.becomes <> 'heard')
    from run join wait w on w.run_id = run.id left join branch b on b.id = w.id
    group by w.run_id, w.child_group
    on conflict (run_id, name) do update set open = excluded.open
), appended as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select run.id, run.seq - run.heard, run.updated_at, 'retry', :body from run
    union all
    select run.id, run.seq - run.heard + row_number() over (partition by run.id order by b.id), run.updated_at,
        'resolution', json_build_object(
            'kind', 'resolution', 'call_id', b.call_id, 'action_id', b.id, 'status', 'submitted',
            'answer_id', b.answer_id, 'answered_by', b.answered_by
        )::text
    from run join branch b on b.run_id = run.id and b.becomes = 'heard'
)
select root.thread_id as in_thread, root.parent_run_id as parent, root.status as was, root.type,
    (select busy.id from busy) as busy, (select busy.thread_id from busy) as busy_thread,
    run.id is not null as retried, run.ordinal, run.seq, run.due, {RUN_COLUMNS.replace("r.", "run.")},
    (select coalesce(json_agg(json_build_object(
        'run_id', r.id, 'thread_id', r.thread_id, 'ordinal', r.ordinal, 'seq', r.seq, 'due', r.due
    ) order by r.depth, r.id)::text, '[]') from run r where r.id <> :run_id) as revived,
    (select coalesce(json_agg(b.child_run_id order by b.child_run_id)::text, '[]') from branch b, run r
     where r.id = b.run_id and b.becomes = 'untold') as untold
from root left join run on run.id = root.id
""")

BUSY = sa.text("select status from adjourn.runs where id = :run_id")


def retry(
    db: Database,
    run_id: str,
    *,
    types: Collection[str],
    types_anew: Collection[str] = (),
    by: str | None,
    limits: Limits | None = None,
) -> Retried:
    params = {
        "run_id": run_id,
        "types": sorted(types),
        "types_anew": sorted(types_anew),
        "orphaned": PARENT_ENDED,
        "limits": None if limits is None else limits.model_dump_json(),
        "body": stored(RetryItem(by=by)),
        "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds,
    }
    for _ in range(ATTEMPTS):
        row = db.one(RETRY, params)
        if row is None:
            raise NotFoundError("run", run_id)
        if row.retried:
            return _retried(row)
        if row.parent is not None:
            raise ChildRunError(run_id, row.parent)
        if row.was != "failed" or row.type not in types:
            raise NotRetryableError(run_id, row.was, row.type)
        if row.busy is not None:
            busy = db.one(BUSY, {"run_id": row.busy}, repeatable=True)
            raise ThreadBusyError(row.busy_thread, row.busy, busy.status if busy else "ended")
    raise StoreUnavailableError("PostgreSQL", f"the tree of run {run_id} changed at every attempt to retry it")


def _retried(row: Any) -> Retried:
    wakeup = WakeUp(run_id=row.id, due=row.due)
    revived = tuple(_revived(each) for each in json.loads(row.revived))
    return Retried(run_of(row), wakeup, ThreadPosition(row.ordinal, row.seq), revived, tuple(json.loads(row.untold)))


def _revived(each: dict[str, Any]) -> Revived:
    wakeup = WakeUp(run_id=each["run_id"], due=each["due"])
    return Revived(each["thread_id"], wakeup, ThreadPosition(each["ordinal"], each["seq"]))
