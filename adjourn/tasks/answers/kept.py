"""Answers that are kept: those that come before their action is open, and those that a worker has to validate."""

from __future__ import annotations

import time
from typing import Final

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.answers import Answer, Receipt
from adjourn.tasks.answers.envelope import Refusal, body_of
from adjourn.tasks.host.services import Door

_LOOK_SECONDS: Final = (0.02, 0.05, 0.1, 0.2)
"""Between looks for the receipt of a worker; the last one for as long as it takes."""


def keep_until_open(door: Door, answer: Answer, action_id: str, who: str | None, channel: str) -> None:
    """The id is ours and the action is not open: its suspend has not committed yet, or never will.

    Raises `Refusal` if too many are kept. A crash before the statement: the answer is still with its sender. After:
    whoever opens the action takes it, or the sweep.
    """
    kept = door.store.early_answers.keep(action_id=action_id, body=body_of(answer), answered_by=who, channel=channel)
    if kept is None:
        raise Refusal("unknown", "the action is not open, and too many answers wait for such; send it again later")


def keep_for_worker(door: Door, answer: Answer, action_id: str, who: str | None, channel: str, *, awaited: bool) -> int:
    """Keep an answer for a worker that can ask its model, and notify one. Returns its number.

    Raises `Refusal` if too many are kept. A crash before the statement: it is still with its sender. After: it is
    taken by a worker, by its sweep at the latest, and only then it counts. Meanwhile the action is as open as before,
    for the first answer that is accepted.
    """
    kept = door.store.early_answers.keep(
        action_id=action_id,
        # By the id that it was found by: its request id may mean another action by then.
        body=body_of(answer.model_copy(update={"action_id": action_id})),
        answered_by=who,
        channel=channel,
        awaited=awaited,
    )
    if kept is None:
        raise Refusal("unknown", "too many answers wait for a worker to validate them; send it again later")
    door.wakeups.notify_readers(action_id)
    return kept


def await_receipt(door: Door, kept: int) -> Receipt | None:
    """The receipt of a worker for a kept answer; `None` if none has taken it in time."""
    deadline = time.monotonic() + door.tuning.verdict_seconds
    looks = 0
    while True:
        try:
            text = door.store.early_answers.receipt(kept)
            if text is not None:
                door.store.early_answers.drop([kept])
                return Receipt.model_validate_json(text)
        except StoreUnavailableError:
            return None  # the answer is kept; only its receipt cannot be read
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(left, _LOOK_SECONDS[min(looks, len(_LOOK_SECONDS) - 1)]))
        looks += 1
