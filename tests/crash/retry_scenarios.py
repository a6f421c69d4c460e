"""The plays of scenarios about retries: of runs and trees that failed, and of waits whose answer no code can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adjourn.schemas.records.actions import PendingAction
from adjourn.tasks.blocks.outcome import OUTCOME_WAIT_POINT
from tests.crash.tools import MENDED, REFUSE
from tests.crash.trial import Trial

T = TypeVar("T")


def _failed_beside_a_wait(t: Trial) -> str:
    """A run that has failed with a finished tool and an open wait. What failed it is put right."""
    run = t.start("breaking")
    t.until(lambda: t.run(run).status == "failed", "the run to fail")
    t.settled()
    t.signal(run)
    return run


def retry(t: Trial) -> None:
    """It goes on where it was: the tool does not run again, and the wait that was closed with the run is open again."""
    run = _failed_beside_a_wait(t)
    t.retry(run)
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def _broken_tree(t: Trial) -> str:
    """A root that failed with a child, whose accepted answer is unused, and closed the child beside it."""
    run = t.start("boss_of_a_breaking_one")
    breaking, waiting = t.children(run, 2)
    if t.run(breaking).agent != "breaking_child":
        breaking, waiting = waiting, breaking
    t.parked(waiting)
    t.answer(t.parked(breaking)[0].id)
    t.until(lambda: t.run(run).status == "failed" and t.run(waiting).status == "cancelled", "the tree to fail")
    t.settled()
    t.signal(f"{run}.one")  # a child goes by its message
    return run


def retry_of_a_tree(t: Trial) -> None:
    """The failed child goes on with the answer that it has, the closed one waits again, and neither is started anew."""
    run = _broken_tree(t)
    t.retry(run)
    _revived(t, run)


def _revived(t: Trial, run: str) -> None:
    children = t.children(run, 2)
    (waiting,) = [child for child in children if t.run(child).agent == "gated_child"]
    t.answer(t.parked(waiting)[0].id)
    t.ended(*children, run)


def retry_of_a_tree_by_client(t: Trial) -> None:
    run = _broken_tree(t)
    t.client("retry", done=lambda: t.run(run).status != "failed", run_id=run)
    _revived(t, run)


def retry_by_client(t: Trial) -> None:
    run = _failed_beside_a_wait(t)
    t.client("retry", done=lambda: t.run(run).status != "failed", run_id=run)
    t.answer(t.parked(run)[0].id)
    t.ended(run)


# --- answers that were accepted and cannot be read --------------------------------------------------


def unreadable_answer(t: Trial) -> None:
    """The first answer is refused when the second lets the tool go on. A retry, with other code, uses both."""
    run = _failed_by_its_answer(t)
    t.retry(run)
    t.ended(run)


def unreadable_answer_by_client(t: Trial) -> None:
    run = _failed_by_its_answer(t)
    t.client("retry", done=lambda: t.run(run).status != "failed", run_id=run)
    t.ended(run)


def _failed_by_its_answer(t: Trial) -> str:
    """A run whose first answer was accepted and used, and then cannot be read any more. The code is put right."""
    run = t.start("checked_twice")
    (first,) = t.parked(run)
    t.answer(first.id)
    (second,) = t.until(lambda: [each for each in t.parked(run) if each.id != first.id], "the second wait")
    t.signal(REFUSE)
    t.answer(second.id)
    t.until(lambda: t.run(run).status == "failed", "the run to fail")
    error = t.run(run).error
    if error is None or error.type != "StoredValueError":
        t.faults.append(f"the run failed with {error}, where an answer cannot be read")
    t.settled()
    t.signal(MENDED)
    return run


# --- waits that are opened again, since no code can read their answer ----------------------------------


def reopened_wait(t: Trial) -> None:
    """A retry with the same code puts the same question again, under the same id. The next answer is read."""
    run = t.start("doubting")
    (action,) = t.parked(run)
    _answered_in_vain(t, run, action.id)
    t.retry(run)
    if [each.id for each in t.parked(run)] != [action.id]:
        t.faults.append("another wait was opened")
    t.signal(MENDED)
    t.answer(action.id, answer_id="second")
    t.ended(run)


def reopened_first_of_two(t: Trial) -> None:
    """With the wait those are opened again that its answer had closed, and any of them can be answered."""
    run = t.start("doubting_either")
    fragile, second = t.parked(run, 2)
    if fragile.origin.wait_point != "fragile":
        fragile, second = second, fragile
    _answered_in_vain(t, run, fragile.id)
    t.retry(run)
    t.parked(run, 2)
    t.answer(second.id)
    t.ended(run)


def start_taken_back(t: Trial) -> None:
    """A tool that is not repeatable stops where it cannot read an answer. A retry runs it again, and asks nobody."""
    run = t.start("pay_if_told")
    (action,) = _besides_outcomes(t, run, lambda: _parked_on_its_own(t, run))
    t.settled()
    t.signal(REFUSE)
    t.answer(action.id)
    _besides_outcomes(t, run, lambda: t.run(run).status == "failed")
    t.settled()
    t.signal(MENDED)
    t.retry(run)
    _besides_outcomes(t, run, lambda: t.run(run).status == "completed")


def _answered_in_vain(t: Trial, run: str, action_id: str) -> None:
    t.signal(REFUSE)
    t.answer(action_id)
    t.until(lambda: t.run(run).status == "failed", "the run to fail")
    t.settled()


def _parked_on_its_own(t: Trial, run: str) -> list[PendingAction]:
    return [] if t.run(run).status != "parked" else [each for each in t.pending(run) if not _asks_outcome(each)]


def _asks_outcome(action: PendingAction) -> bool:
    return action.origin.wait_point == OUTCOME_WAIT_POINT


def _besides_outcomes(t: Trial, run: str, wanted: Callable[[], T]) -> T:
    """Wait for something true; an operator who is asked what became of an interrupted call looks and says so."""
    while True:
        asked = t.until(lambda: wanted() or [each for each in t.pending(run) if _asks_outcome(each)], "the run")
        if found := wanted():
            return found
        paid = [row.value for row in t.rows() if row.kind == "answer"] if _has_paid(t) else []
        for action in asked if isinstance(asked, list) else ():
            t.answer(action.id, value={"happened": True, "output": paid[0]} if paid else {"happened": False})


def _has_paid(t: Trial) -> bool:
    return any(row.kind == "effect" for row in t.rows())
