"""`adjourn.store.postgres.runs.children` in memory."""

from __future__ import annotations

import json
from datetime import timedelta

from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.actions import Child
from adjourn.schemas.records.items import MessageItem
from adjourn.store.memory.tables import Memory, RunRow, resolution
from adjourn.store.results import Notified


def add_child(db: Memory, parent: RunRow, child: Child) -> None:
    """The part of a write that starts a child."""
    db.threads[child.thread_id] = 1
    row = db.runs[child.run_id] = RunRow(
        id=child.run_id,
        thread_id=child.thread_id,
        ordinal=1,
        agent=child.agent,
        status="queued",
        due="turn",
        due_at=db.now,
        wakeup_at=db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds),
        limits=child.limits,
        state_version=STATE_VERSION,
        created_at=db.now,
        updated_at=db.now,
        parent_run_id=parent.id,
        depth=child.depth,
        root_thread_id=child.root_thread_id,
        path=child.path,
    )
    row.append(MessageItem(text=child.text, data=child.data), db.now)
    db.groups[parent.id, child.group] = db.groups.get((parent.id, child.group), 0) + 1


def notify_parent(db: Memory, run_id: str) -> Notified | None:
    def told() -> Notified | None:
        child = db.runs.get(run_id)
        if child is None or not child.unpropagated or not child.ended or child.parent_run_id is None:
            return None
        parent = db.runs[child.parent_run_id]
        waiting = (row for row in db.actions_of(parent.id) if row.asked.child and row.asked.child.run_id == run_id)
        action = next((row for row in waiting if row.answer_id is None), None)
        if action is None or action.asked.child is None:
            return None
        error = None if child.error is None else json.loads(child.error.model_dump_json())
        ended = {"status": child.status, "output": child.output, "error": error}
        used = {"turns": child.turns, "tool_calls": child.tool_calls, "usage": child.usage.model_dump(mode="json")}
        action.resume = json.dumps(ended | used)
        action.answer_id, action.answered_by = child.id, child.agent
        parent.usage += child.usage
        parent.turns += child.turns
        parent.tool_calls += child.tool_calls
        if action.status != "pending":
            return None
        action.status, action.resolved_at = "submitted", db.now
        group = parent.id, action.asked.child.group
        db.groups[group] -= 1
        parent.updated_at = db.now
        parent.append(resolution(action, answer_id=child.id, answered_by=child.agent), db.now)
        fatal = child.status != "completed" and action.asked.child.ends_parent
        wake = (db.groups[group] == 0 or fatal) and db.wake(parent)
        return Notified(parent.id, parent.thread_id, parent.ordinal, parent.items[-1], wake)

    return db.statement("tell", told, repeatable=True)


def orphans(db: Memory, run_id: str, limit: int) -> list[tuple[str, int]]:
    def found() -> list[tuple[str, int]]:
        waited = {row.asked.child.run_id for row in db.actions.values() if row.asked.child and row.status == "pending"}
        below = (row for row in db.runs.values() if row.parent_run_id == run_id)
        open_ = (row for row in below if row.id not in waited and (row.unpropagated or not row.ended))
        return sorted((row.id, row.revision) for row in open_)[:limit]

    return db.statement("orphans", found, repeatable=True)


def seq_of(db: Memory, run_id: str) -> int | None:
    def seq() -> int | None:
        row = db.runs.get(run_id)
        return row.seq if row is not None and row.unpropagated else None

    return db.statement("seq_of", seq, repeatable=True)


def mark_propagated(db: Memory, run_id: str, seq: int) -> None:
    def settle() -> None:
        if run_id in db.runs and db.runs[run_id].seq == seq:
            db.runs[run_id].unpropagated = False

    db.statement("settled", settle, repeatable=True)


def unpropagated(db: Memory, limit: int) -> list[str]:
    def forgotten() -> list[str]:
        latest = db.now - timedelta(seconds=db.tuning.wakeup_retry_seconds)
        found = (row for row in db.runs.values() if row.unpropagated and (row.deaths or row.updated_at <= latest))
        rows = sorted(found, key=lambda row: row.updated_at)
        return [row.id for row in rows[:limit]]

    return db.statement("unpropagated", forgotten, repeatable=True)
