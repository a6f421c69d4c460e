"""Finds what is damaged or lost among the rows of a run that was loaded."""

from __future__ import annotations

from collections.abc import Iterable

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import DamagedItem, StoredItem
from adjourn.schemas.records.runs import Run


def damage_of(
    run: Run, items: tuple[StoredItem, ...], seq: int, actions: Iterable[ActionState]
) -> DamagedRecordError | None:
    """The first damaged or lost row of a run that was loaded with `items`, the last of which has to be `seq`; or None.

    `actions` are all actions that there are of the run.
    """
    if run.error is not None and run.error.type == DamagedRecordError.__name__:
        return DamagedRecordError("runs", run.id, run.id, str(run.error.data["problem"]))
    there = {state.action.id for state in actions}
    # The waits of a run that was copied stay with the run that they are of; a copy has ended.
    waits = not run.ended
    for item in items:
        body = item.body
        if waits and body.kind == "suspension" and body.action_id not in there:
            problem = f"it is lost, and the run waited there (seq {item.seq}, {body.name})"
            return DamagedRecordError("actions", body.action_id, run.id, problem)
        if isinstance(body, DamagedItem):
            return DamagedRecordError("items", f"{run.id}, seq {item.seq}", run.id, body.problem)
    if len(items) != seq:
        problem = f"there are {len(items)} rows, and the run says {seq}"
        return DamagedRecordError("items", f"{run.id}, seq 1 to {seq}", run.id, problem)
    return None
