"""Waits that are opened again because no worker can read their answer, after a retry of the run either.

An answer is validated by the live model before it is accepted, wherever the app has that model. The type of an
undeclared wait is known to the body alone, and the tools of a `tools=` function to the run alone: there the pinned
schema decides, and what else the model checks shows when the body reads the answer. That fails the run with
`StoredValueError`, and the answer is kept. After a retry the answer is read again. If the code is the same, no
retry could ever read it, so the same question is put again.
"""

from __future__ import annotations

from typing import Final

from adjourn.schemas.errors import StoredValueError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.items import EndItem, GivenAnswer, ReopeningItem, ResolutionItem
from adjourn.tasks.blocks.app import App
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.decisions import View

_MOST_CHARACTERS: Final = 2_000
"""Of the problem that the person reads."""


def reopening(call: OpenCall, error: StoredValueError, view: View, app: App) -> ReopeningItem | None:
    """The record with which the wait of an unreadable answer is opened again; None if the run has to fail instead.

    The wait is opened again if its answer has failed the run before, and if this app could not have refused it.
    """
    state = next((state for state in call.actions if state.action.id == error.action_id), None)
    if state is None or state.resolution is None or not _has_failed_the_run(state, view):
        return None
    origin, pinned = state.action.origin, state.action.resume_schema
    if app.resume_contract(origin, pinned) is not None or app.wider_contract(origin, pinned) is not None:
        return None
    ended = state.resolution
    return ReopeningItem(
        call_id=call.call.id,
        action_id=state.action.id,
        problem="; ".join(map(repr, error.issues))[:_MOST_CHARACTERS],
        answer_id=ended.answer_id,
        answered_by=ended.answered_by,
        answer=GivenAnswer.of(ended),
    )


def note_of(item: ReopeningItem) -> str:
    """Why the question is put again, for the person who answers."""
    return f"Asked again because the earlier answer could not be read ({item.problem}); it was not used."


def _has_failed_the_run(state: ActionState, view: View) -> bool:
    """True if the last end of the run was this error, about this answer and not about an earlier one."""
    for item in reversed(view.items):
        body = item.body
        if isinstance(body, ResolutionItem) and body.action_id == state.action.id:
            return False
        if isinstance(body, EndItem):
            error = body.error
            return (
                error is not None
                and error.type == StoredValueError.__name__
                and error.data.get("action_id") == state.action.id
            )
    return False
