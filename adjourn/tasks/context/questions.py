"""Comparison of an `ask` with the questions that were recorded at its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn.schemas.contracts.unset import Path, without
from adjourn.schemas.errors import PayloadError, SuspendPayloadError
from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.wait_points import WaitPoint
from adjourn.schemas.strict_json import digest


def same_question(
    earlier: Sequence[ActionState], wait: WaitPoint[Any, Any], data: Any, where: str
) -> ActionState | None:
    """The newest of `earlier` that asked what `data` asks. Raises `SuspendPayloadError` for data that does not fit.

    A recorded question was validated when it opened. A date in it is not compared with the clock again.
    """
    if not earlier:
        return None
    try:
        full, unset = wait.suspend.dump_unset(data, where, SuspendPayloadError)
    except PayloadError:
        full, unset = wait.suspend.dump_again(data), ()
        if full is None or (found := _newest(earlier, wait, full, unset)) is None:
            raise
        return found
    return _newest(earlier, wait, full, unset)


def as_recorded(recorded: Any, full: Any, unset: Sequence[Path]) -> Any:
    """`full` without the fields that a deploy has added and that the body did not set: they ask nothing else."""
    return without(full, [path for path in unset if not _has(recorded, path)])


def _newest(
    earlier: Sequence[ActionState], wait: WaitPoint[Any, Any], full: Any, unset: Sequence[Path]
) -> ActionState | None:
    for state in reversed(earlier):
        recorded = state.action.input
        now = wait.question_in(as_recorded(recorded, full, unset))
        if digest(now) == digest(wait.question_in(recorded)):
            return state
    return None


def _has(document: Any, path: Path) -> bool:
    for key in path:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
