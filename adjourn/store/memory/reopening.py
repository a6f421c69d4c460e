"""`adjourn.store.postgres.runs.reopening` in memory."""

from __future__ import annotations

import json
from datetime import timedelta

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import ReopeningItem
from adjourn.store.memory.runs import held
from adjourn.store.memory.tables import ActionRow, Memory


def reopen(db: Memory, run_id: str, token: str, note: str, item: ReopeningItem) -> ThreadPosition:
    action = db.statement("asked", lambda: db.actions.get(item.action_id), repeatable=True)
    if action is None:
        raise StaleClaimError(run_id)

    def open_again() -> ThreadPosition:
        run = held(db, run_id, token)
        if action.status != "submitted" or action.run_id != run_id:
            raise StaleClaimError(run_id)
        closed = [row for row in db.actions_of(run_id) if row.closed_by == action.id and row.status == "cancelled"]
        action.asked = action.asked.model_copy(update={"note": note})
        for row in [action, *sorted(closed, key=lambda row: row.id)]:
            _open_again(db, row)
            fields = {"kind": "reopening", "call_id": row.asked.origin.tool_call_id, "action_id": row.id}
            pairs = (f"{json.dumps(key)} : {json.dumps(value)}" for key, value in fields.items())
            run.append(item if row is action else f"{{{', '.join(pairs)}}}", db.now)
        run.updated_at = db.now
        return ThreadPosition(run.ordinal, run.seq)

    return db.statement("reopen", open_again, run_id=run_id, token=token)


def _open_again(db: Memory, row: ActionRow) -> None:
    seconds = row.asked.timeout_seconds
    row.status, row.expires_at = "pending", None if seconds is None else db.now + timedelta(seconds=seconds)
    row.resolved_at = row.resume = row.reason = row.message = row.answered_by = row.channel = None
    row.answer_id = row.answer_digest = row.closed_by = None
