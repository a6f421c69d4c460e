"""An action as lines for a person. Turns a record into text; prints nothing."""

from __future__ import annotations

from collections.abc import Iterator

from adjourn.schemas.records.actions import Resolution
from adjourn.worker.client.actions import Action
from adjourn.worker.text.lines import as_json, one_line

_LABEL_WIDTH = len("answered by")


def described(action: Action) -> Iterator[str]:
    """One line per fact: what was asked first, then how it ended."""
    asked = (
        ("action", f"{action.id}  {action.name}  {action.status}"),
        ("request id", action.request_id),
        ("run", f"{action.origin.run_id}  on thread {action.origin.thread_id}"),
        ("asked by", " / ".join(action.origin.block_path)),
        ("prompt", action.prompt),
        ("data", as_json(action.input)),
        ("opened", action.opened_at.isoformat(timespec="seconds")),
        ("until", action.expires_at.isoformat(timespec="seconds") if action.expires_at else None),
        ("answerers", ", ".join(action.answerers) if action.answerers is not None else None),
    )
    for label, text in (*asked, *_ending(action.resolution)):
        if text is not None:
            yield f"{label:<{_LABEL_WIDTH}}  {one_line(text)}"


def _ending(ended: Resolution | None) -> tuple[tuple[str, str | None], ...]:
    if ended is None:
        return ()
    has_value = ended.status == "submitted" or ended.resume is not None
    return (
        ("ended", f"{ended.status} at {ended.resolved_at.isoformat(timespec='seconds')}"),
        ("answer", as_json(ended.resume) if has_value else None),
        ("said", None if ended.data is None else as_json(ended.data)),
        ("reason", ended.reason),
        ("message", ended.message),
        ("answered by", ended.answered_by),
        ("channel", ended.channel),
        ("answer id", ended.answer_id),
    )
