"""Whether the data of an answer fits: by the schema that was pinned at the suspend, and by the live model.

The live model is asked only where it still is the model that the action was opened with. After a deploy that changed
it nobody could give an answer that both accept; then the pinned schema decides, and the re-entry resumes or fails.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from adjourn.schemas.contracts.pinned import validate_pinned
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import AnswerPayloadError
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, Issue
from adjourn.tasks.answers.envelope import Refusal
from adjourn.tasks.blocks.app import App

_MISSING: Final = "data is missing"


class Unproven(Refusal):
    """It fits the pinned schema, and what else its model checks only a process with the app can tell."""

    def __init__(self) -> None:
        super().__init__("kept", "fits the schema; a worker with the app has yet to validate it")


class Validated(NamedTuple):
    """What became of the data of an answer."""

    misfit: Refusal | None
    """Why it is not accepted, if it is not."""
    data: Any = None
    """What is stored of it."""


def validated(app: App | None, answer: Answer, action: PendingAction, *, pinned_decides: bool = False) -> Validated:
    """Validate the data of a submit. Never raises, whatever a validator of the app's does.

    With `pinned_decides` the pinned schema is enough where this app lacks the model.
    """
    if not answer.has_data:
        return Validated(Refusal("invalid", f"{_MISSING} (null has to be said)", [Issue(path="", message=_MISSING)]))
    try:
        validate_pinned(action.resume_schema, answer.data, action.name)
        data = _by_live_model(app, answer.data, action, pinned_decides)
    except AnswerPayloadError as error:
        issues = [Issue(path=each.path, message=each.message) for each in error.issues]
        return Validated(Refusal("invalid", str(error), issues))
    except Unproven as unproven:
        return Validated(unproven)
    return Validated(None, data)


def _by_live_model(app: App | None, data: Any, action: PendingAction, pinned_decides: bool) -> Any:
    """What is stored of it. Raises `AnswerPayloadError`, and `Unproven` where the model is asked and is not at hand."""
    contract = app.resume_contract(action.origin, action.resume_schema) if app else None
    if contract is not None:
        # What a default of the model's own makes is made once, here: every pass reads the same value.
        return contract.canonical(data, action.name)[1]
    wider = app.wider_contract(action.origin, action.resume_schema) if app else None
    if wider is not None and wider.makes_values:
        return _completed(wider, data, action)
    if not pinned_decides and not action.schema_decides and (app is None or app.lacks(action.origin)):
        raise Unproven
    return data


def _completed(wider: Contract[Any], data: Any, action: PendingAction) -> Any:
    """The answer with what the defaults of added fields make, once. Its validators do not decide: nobody is shown
    the model that they belong to, so they could refuse every answer that the pinned schema takes."""
    try:
        return wider.canonical(data, action.name)[1]
    except AnswerPayloadError:
        return data
