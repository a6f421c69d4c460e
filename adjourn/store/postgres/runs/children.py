"""Children: runs that other runs have started, and that a wait of their parent waits for.

Owns how children begin (a part of the parent's write, `writes.SPAWN`), how the end of a run reaches its
parent and its children, and the counter by which the last child of a group wakes the parent, and no other.

Lock order: a run, its actions, its items; the parent is never locked in one statement with the child. So the
end of a run and what follows from it are two steps, and `runs.unpropagated` stands between them.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.actions import Child
from adjourn.schemas.records.items import ITEM, Item, MessageItem, stored
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.rows import ENDED, RESTS, woken
from adjourn.store.results import Notified

ATTEMPTS: Final = 20
"""A parent is told again when it changed between the snapshot and the lock of the statement."""
LIVE: Final = "status in ('queued', 'running', 'parked')"

CHILDREN: Final = """, new_child as materialized (
    select run.id as parent_run_id, run.updated_at as now, new.*
    from run, unnest(
        cast(:child_ids as text[]), cast(:child_threads as text[]), cast(:child_agents as text[]),
        cast(:child_bodies as text[]), cast(:child_limits as text[]), cast(:child_paths as text[]),
        cast(:child_roots as text[]), cast(:child_depths as text[]), cast(:child_names as text[])
    ) as new(id, thread_id, agent, body, limits, path, root_thread_id, depth, group_name)
), child_thread as (
    insert into adjourn.threads (id, created_at, last_ordinal) select thread_id, now, 1 from new_child
), child as (
    insert into adjourn.runs (
        id, thread_id, ordinal, agent, status, due, due_at, wakeup_at, seq, limits, state_version,
        created_at, updated_at, parent_run_id, root_thread_id, depth, path
    )
    select
        id, thread_id, 1, agent, 'queued', 'turn', now, now + make_interval(secs => :wakeup_retry_seconds), 1, limits,
        :state_version, now, now, parent_run_id, root_thread_id, cast(depth as integer), path
    from new_child
), child_message as (
    insert into adjourn.items (run_id, seq, at, kind, body) select id, 1, now, 'message', body from new_child
), child_group as (
    insert into adjourn.child_groups as g (run_id, name, open)
    select parent_run_id, group_name, count(*) from new_child group by parent_run_id, group_name
    on conflict (run_id, name) do update set open = g.open + excluded.open
)"""
"""Starts the children of the waits that are opened, each on a thread of its own."""

# The end of a child is the answer to what its parent waits for. The parent is locked first, as by every answer.
# The counter is read from the newest version of its row, which this updates: of two children that end at
# the same instant the second one finds 0, whatever its snapshot shows, and wakes the parent. One that is
# not the last changes nothing that a parent about to park would have to see, unless its failure is its parent's.
# A wait that was closed with the parent stays closed; what the child has used counts for its parent all the same.
# The child is read in the snapshot and not locked, and a retry may revive it while this waits for the parent. Every
# retry that does moves the parent's `revision` on; if that has moved since the snapshot, nothing is written (`moved`),
# and the caller looks again.
# A crash before the commit: the child is unpropagated, and told again. After: the wait has the child's id, and told
# again it is not found without one. If the wake-up is never published, the sweep does it.
NOTIFY_PARENT = sa.text(f"""
with stored as materialized (
    select c.*, adjourn.json_or_null(c.output) as output_json, adjourn.json_or_null(c.error) as error_json,
        p.revision as parent_revision
    from adjourn.runs c join adjourn.runs p on p.id = c.parent_run_id
    where c.id = :run_id and c.unpropagated and c.{ENDED}
), child as materialized (
    select *, output is not null and output_json is null as damaged from stored
), parent as materialized (
    select r.id, {RESTS} as rests, adjourn.adjourn_now() as now
    from adjourn.runs r
    where r.id = (select parent_run_id from child) and r.revision = (select parent_revision from child)
    for update
), heard as (
    update adjourn.actions as a
    set answer_id = child.id, status = case when a.status = 'pending' then 'submitted' else a.status end,
        resolved_at = coalesce(a.resolved_at, parent.now), answered_by = child.agent,
        resume = json_build_object(
            'status', case when child.damaged then 'failed' else child.status end, 'output', child.output_json,
            'error', case when child.damaged then json_build_object(
                'type', 'DamagedRecordError', 'message', 'the output of run ' || child.id || ' is damaged'
            ) else child.error_json end,
            'turns', child.turns, 'tool_calls', child.tool_calls, 'usage', json_build_object(
                'input_tokens', child.input_tokens, 'output_tokens', child.output_tokens,
                'requests', child.requests, 'cost', cast(child.cost as text)
            )
        )::text
    from parent, child
    where a.child_run_id = child.id and a.run_id = parent.id and a.answer_id is null
    returning a.id, a.call_id, a.child_group, a.status = 'submitted' as resolved,
        (child.status <> 'completed' or child.damaged)
            and adjourn.json_or_null(a.asked) #>> '{{child,ends_parent}}' = 'true' as fatal
), counted as (
    update adjourn.child_groups as g
    set open = g.open - 1
    from heard, parent
    where heard.resolved and g.run_id = parent.id and g.name = heard.child_group
    returning g.open = 0 or coalesce(heard.fatal, false) as last
), woken as (
    update adjourn.runs as r
    set input_tokens = r.input_tokens + child.input_tokens, output_tokens = r.output_tokens + child.output_tokens,
        requests = r.requests + child.requests, cost = r.cost + child.cost,
        turns = r.turns + child.turns, tool_calls = r.tool_calls + child.tool_calls,
        seq = r.seq + case when heard.resolved then 1 else 0 end,
        updated_at = case when heard.resolved then parent.now else r.updated_at end,
        revision = r.revision + case when counted.last then 1 else 0 end,
        {woken("parent.now", f"counted.last and {RESTS}")}
    from parent cross join child cross join heard left join counted on true
    where r.id = parent.id
    returning r.id, r.thread_id, r.ordinal, r.seq, parent.rests and counted.last as wake
), recorded as (
    insert into adjourn.items (run_id, seq, at, kind, body)
    select woken.id, woken.seq, parent.now, 'resolution', json_build_object(
        'kind', 'resolution', 'call_id', heard.call_id, 'action_id', heard.id, 'status', 'submitted',
        'answer_id', child.id, 'answered_by', child.agent
    )::text
    from woken, heard, parent, child
    where heard.resolved
    returning at, body
)
select look.moved, told.* from (
    select exists(select from child) and not exists(select from parent) as moved
) as look left join (
    select woken.*, recorded.at, recorded.body from woken, recorded
) as told on true
""")

# Reads only: children that nothing waits for any more, and that still live or have yet to tell what they used.
ORPHANS = sa.text(f"""
select c.id, c.revision from adjourn.runs c
where c.parent_run_id = :run_id and (c.unpropagated or c.{LIVE})
    and not exists (select from adjourn.actions a where a.child_run_id = c.id and a.status = 'pending')
order by c.id
limit :limit
""")

# Everybody was told, if nothing was written of the run since that began: a run may be retried, and end again, in
# between, and then there are others to be told. A crash before the commit: they are told again.
PROPAGATED = sa.text("update adjourn.runs set unpropagated = false where id = :run_id and unpropagated and seq = :seq")

SEQ = sa.text("select seq from adjourn.runs where id = :run_id and unpropagated")

# Reads only. Whoever ended a run settles it at once, so one that is still to be settled after a while has lost
# whoever that was; one that died too often never had anybody. What another sweep settles at the same time is
# settled twice, which changes nothing.
UNPROPAGATED = sa.text("""
select id from adjourn.runs
where unpropagated and (deaths > 0 or updated_at <= adjourn.adjourn_now() - make_interval(secs => :after_seconds))
order by updated_at
limit :limit
""")


def child_params(children: Sequence[Child], wakeup_retry_seconds: float) -> dict[str, Any]:
    """The parameters of `CHILDREN`."""
    return {
        "child_ids": [child.run_id for child in children],
        "child_threads": [child.thread_id for child in children],
        "child_agents": [child.agent for child in children],
        "child_bodies": [stored(MessageItem(text=child.text, data=child.data)) for child in children],
        "child_limits": [child.limits.model_dump_json() for child in children],
        "child_paths": [json.dumps(child.path) for child in children],
        "child_roots": [child.root_thread_id for child in children],
        "child_depths": [str(child.depth) for child in children],
        "child_names": [child.group for child in children],
        "state_version": STATE_VERSION,
        "wakeup_retry_seconds": wakeup_retry_seconds,
    }


def notify_parent(db: Database, run_id: str) -> Notified | None:
    params = {"run_id": run_id, "wakeup_retry_seconds": db.tuning.wakeup_retry_seconds}
    for _ in range(ATTEMPTS):
        (row,) = db.execute(NOTIFY_PARENT, params, repeatable=True)
        if not row.moved:
            return None if row.id is None else _notified(row)
    raise StoreUnavailableError("PostgreSQL", f"the parent of run {run_id} changed at every attempt to tell it")


def _notified(row: Any) -> Notified:
    item = Item(run_id=row.id, seq=row.seq, at=row.at, body=ITEM.validate_json(row.body))
    return Notified(row.id, row.thread_id, row.ordinal, item, row.wake)


def orphans(db: Database, run_id: str, limit: int) -> list[tuple[str, int]]:
    return [(row.id, row.revision) for row in db.execute(ORPHANS, {"run_id": run_id, "limit": limit}, repeatable=True)]


def seq_of(db: Database, run_id: str) -> int | None:
    row = db.one(SEQ, {"run_id": run_id}, repeatable=True)
    return None if row is None else int(row.seq)


def mark_propagated(db: Database, run_id: str, seq: int) -> None:
    db.execute(PROPAGATED, {"run_id": run_id, "seq": seq}, repeatable=True)


def unpropagated(db: Database, limit: int) -> list[str]:
    rows = db.execute(UNPROPAGATED, {"limit": limit, "after_seconds": db.tuning.wakeup_retry_seconds}, repeatable=True)
    return [row.id for row in rows]
