"""`adjourn.store.postgres.answers.actions` in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from adjourn.schemas.internal.state import Answered
from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.runs import RunStatus
from adjourn.store.memory.tables import ActionRow, Memory, RunRow, resolution
from adjourn.store.rules import CLOSED_BY_ANSWER, CLOSED_BY_DEADLINE


def answer(
    db: Memory,
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
    def judge() -> Answered:
        action = db.actions.get(action_id)
        if action is None:
            return Answered(outcome="unknown")
        if not may_answer(action):
            same = (action.answer_id, action.answer_digest) == (answer_id, digest)
            return _answered(action, "duplicate" if same else "late", wake=False)
        run = db.runs[action.run_id]
        assert not run.ended, f"{action_id} is open in {run.id}, which has ended"
        passed = _passed(db, action, received_at or db.now)
        if passed is not None and kept_in_time(db, passed):
            return _answered(action, "late", wake=False)
        if not fits and passed is None:
            return _answered(action, "waiting", wake=False)
        target = passed or action
        target.resolved_at = db.now
        if passed is not None:
            target.status, target.resume = "expired", target.default_resume
        else:
            action.status, action.resume, action.reason, action.message = status, resume, reason, message
            action.answered_by, action.answer_id, action.answer_digest = answered_by, answer_id, digest
            action.channel = channel
        wake = db.wake(run)
        said = {"answer_id": target.answer_id, "answered_by": target.answered_by, "digest": target.answer_digest}
        run.append(resolution(target, **said), db.now)
        item = run.items[-1]
        closed = close_others(db, target, run) if passed is None or target.decides else ()
        return replace(
            _answered(action, "accepted" if passed is None else "late", wake=wake),
            item=item,
            closed=closed,
            resolution=target.record().resolution,
            ordinal=run.ordinal,
            root_thread_id=run.root_thread_id,
        )

    return db.statement("answer", judge, repeatable=True)


def _passed(db: Memory, action: ActionRow, received: datetime) -> ActionRow | None:
    """The wait whose deadline decides against an answer that came in at that time."""
    due = [
        row
        for row in _group(db, action)
        if row.status == "pending" and row.overdue(received) and (row is action or row.decides)
    ]
    return min(due, key=lambda row: (not row.decides, row.expires_at, row.id), default=None)


def kept_in_time(db: Memory, action: ActionRow) -> bool:
    """As `records.kept_in_time`."""
    ids = {row.id for row in _group(db, action)}
    deadline = action.expires_at
    assert deadline is not None, "only a wait with a deadline can be past it"
    return any(row.receipt is None and row.action_id in ids and row.received_at < deadline for row in db.early.values())


def _group(db: Memory, action: ActionRow) -> list[ActionRow]:
    """The waits of the same `ask_any`, or this one alone."""
    group = action.asked.any_of
    return [row for row in db.actions.values() if row is action or (group is not None and row.asked.any_of == group)]


def close_others(db: Memory, action: ActionRow, run: RunRow) -> tuple[str, ...]:
    """The waits of the same `ask_any`, which an answer to this one closes, or its deadline."""
    group = sorted((row for row in _group(db, action) if row.status == "pending"), key=lambda row: row.id)
    fails = action.status == "expired" and action.asked.on_timeout == "fail_run"
    reason = CLOSED_BY_DEADLINE if fails else CLOSED_BY_ANSWER
    for row in group:
        row.status, row.resolved_at, row.reason, row.closed_by = "cancelled", db.now, reason, action.id
        run.append(resolution(row), db.now)
    return tuple(row.id for row in group)


def may_answer(action: ActionRow) -> bool:
    """The comparison before the set: only the first answer finds the action pending."""
    return action.status == "pending"


def get(db: Memory, action_id: str) -> ActionState | None:
    row = db.statement("get_action", lambda: db.actions.get(action_id), repeatable=True)
    return None if row is None else row.record()


def find_by_request_id(db: Memory, request_id: str) -> list[str]:
    def find() -> list[str]:
        rows = db.actions.values()
        return [row.id for row in rows if row.asked.request_id == request_id and row.status == "pending"][:2]

    return db.statement("find_by_request_id", find, repeatable=True)


def last_by_request_id(db: Memory, request_id: str) -> str | None:
    def find() -> str | None:
        rows = [row for row in db.actions.values() if row.asked.request_id == request_id]
        return max(rows, key=lambda row: row.opened_at).id if rows else None

    return db.statement("last_by_request_id", find, repeatable=True)


def newest_by_request_id(db: Memory, request_id: str) -> str | None:
    def find() -> str | None:
        rows = [row for row in db.actions.values() if row.asked.request_id == request_id]
        return max(rows, key=lambda row: (row.status == "pending", *row.order)).id if rows else None

    return db.statement("newest_by_request_id", find, repeatable=True)


def answered_by_request_id(db: Memory, request_id: str, answer_id: str, digest: str) -> str | None:
    def find() -> str | None:
        said = (request_id, answer_id, digest)
        rows = db.actions.values()
        return next((row.id for row in rows if (row.asked.request_id, row.answer_id, row.answer_digest) == said), None)

    return db.statement("answered_by_request_id", find, repeatable=True)


def pending(
    db: Memory, thread_id: str | None = None, run_id: str | None = None, limit: int = 100
) -> list[PendingAction]:
    def find() -> list[PendingAction]:
        rows = [
            row
            for row in _pending(db)
            if (run_id is None and thread_id is None) or is_under(db, row, run_id, None if run_id else thread_id)
        ]
        return [row.record().action for row in rows[:limit]]

    return db.statement("pending", find, repeatable=True)


def pending_after(db: Memory, after: PendingAction | None, limit: int) -> list[PendingAction]:
    def find() -> list[PendingAction]:
        rows = [row for row in _pending(db) if after is None or row.order > (after.opened_at, after.id)]
        return [row.record().action for row in rows[:limit]]

    return db.statement("pending_after", find, repeatable=True)


def asks_in(db: Memory, run_id: str) -> RunStatus | None:
    def find() -> RunStatus | None:
        row = db.runs.get(run_id)
        return row.status if row is not None and row.rests(db.now) and _asks(db, run_id) else None

    return db.statement("asks_in", find, repeatable=True)


def _asks(db: Memory, run_id: str) -> bool:
    """Whether the run, or one that it waits for at any depth, waits for what somebody may answer."""
    waits = [row.asked.child for row in db.actions_of(run_id) if row.status == "pending"]
    return any(child is None or _asks(db, child.run_id) for child in waits)


def _pending(db: Memory) -> list[ActionRow]:
    asked = (row for row in db.actions.values() if row.status == "pending" and row.asked.child is None)
    return sorted(asked, key=lambda row: row.order)


def is_under(db: Memory, row: ActionRow, run_id: str | None, thread_id: str | None) -> bool:
    """As `records.runs_under`."""
    run: RunRow | None = db.runs[row.run_id]
    while run is not None:
        if run.id == run_id or run.thread_id == thread_id:
            return True
        run = db.runs.get(run.parent_run_id or "")
    return False


def _answered(
    action: ActionRow, outcome: Literal["accepted", "duplicate", "late", "waiting"], *, wake: bool
) -> Answered:
    return Answered(
        outcome=outcome,
        run_id=action.run_id,
        thread_id=action.thread_id,
        name=action.asked.name,
        action_status=action.status,
        wake=wake,
    )
