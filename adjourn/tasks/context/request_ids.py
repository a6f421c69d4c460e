"""The id that a tool chooses for a wait, as it is stored: text that an answer can name."""

from __future__ import annotations

from typing import Final

from pydantic import TypeAdapter, ValidationError

from adjourn.schemas.errors import SuspendPayloadError, ValidationIssue
from adjourn.schemas.records.answers import Id
from adjourn.schemas.strict_json import clean_text

_ID: Final = TypeAdapter[str](Id)


def chosen_id(value: object, name: str) -> str | None:
    """Return the id as text, and `None` for `None`: the tool has not chosen one.

    Raises `SuspendPayloadError` for an id that no answer could name. Nothing is opened then, and the model reads why.
    """
    if value is None:
        return None
    try:
        return clean_text(_ID.validate_python(clean_text(value) if isinstance(value, str) else value))
    except ValidationError as error:
        issues = [ValidationIssue("/id", f"the request id: {each['msg']}") for each in error.errors(include_url=False)]
        raise SuspendPayloadError(name, issues) from None
