"""The plays of scenarios about answers: who validates them, what they close, and approvals."""

from __future__ import annotations

from typing import Any

from adjourn.schemas.records.actions import PendingAction
from tests.crash.tools import ODD
from tests.crash.trial import LATE, Trial

# --- answers that only the live model validates ----------------------------------------------------


def kept_answer_by_client(t: Trial) -> None:
    """A client without the app, which is killed, keeps the answer; a worker validates it."""
    run = t.start("checked")
    t.submit_by_client(t.parked(run)[0].id)
    t.ended(run)


def kept_answer(t: Trial) -> None:
    """A worker, which is killed, validates an answer that a client without the app has kept."""
    run = t.start("checked")
    t.keep(t.parked(run)[0].id)
    t.ended(run)


def kept_answer_awaited(t: Trial) -> None:
    """Its sender waits for the receipt, which takes the place of the answer."""
    run = t.start("checked")
    t.keep(t.parked(run)[0].id, awaited=True)
    t.ended(run)


def kept_answer_left(t: Trial) -> None:
    """Nobody is told that an answer is kept: the sweep finds it."""
    run = t.start("checked")
    t.keep(t.parked(run)[0].id, notify=False)
    t.sweep()
    t.ended(run)


def kept_answer_refused(t: Trial) -> None:
    """The live model refuses what was kept. The action still waits, and takes the next answer."""
    run = t.start("checked")
    (action,) = t.parked(run)
    t.keep(action.id, value={"value": ODD}, answer_id="odd", wanted=False)
    t.until(lambda: not t.lane.kept(), "a verdict on what was kept")
    t.answer(action.id)
    t.ended(run)


def forged_parking_record(t: Trial) -> None:
    """What somebody else wrote into Redis says nothing of the action."""
    run = t.start("gated")
    (action,) = t.parked(run)
    t.lane.forge_record(action)
    t.answer(action.id)
    t.ended(run)


# --- questions that change, and the first of several answers ---------------------------------------


def late_beside_a_default(t: Trial) -> None:
    """Past the deadline of the other wait and before any sweep: it is refused, and that one's default counts."""
    _late_beside(t, t.start("either_or_default"))


def late_beside_an_end(t: Trial) -> None:
    """The same, where the deadline of the other wait fails the run."""
    _late_beside(t, t.start("either_or_end", ends="failed"))


def _late_beside(t: Trial, run: str) -> None:
    (waiting,) = (each for each in t.parked(run, 2) if each.expires_at is None)
    t.lane.move_clock(LATE)
    t.answer(waiting.id, wanted=False)
    t.ended(run)


def asked_anew(t: Trial) -> None:
    """The tool asks something else when it is answered. That answer is not used; the other question is asked once."""
    run = t.start("changing")
    (first,) = t.parked(run)
    t.signal(run)
    t.answer(first.id)
    (second,) = t.until(lambda: [each for each in t.parked(run) if each.id != first.id], "the other question")
    if second.note is None or (first.input["prompt"], second.input["prompt"]) != ("the first", "another"):
        t.faults.append(f"{second.input} was asked after {first.input}, with the note {second.note}")
    t.answer(second.id)
    t.ended(run)


def first_of_two(t: Trial) -> None:
    """The first answer closes the other wait: an answer there is late."""
    run = t.start("either")
    first, second = t.parked(run, 2)
    t.answer(second.id)
    t.answer(first.id, wanted=False)
    t.ended(run)


def first_of_two_raced(t: Trial) -> None:
    """Both answers are on the queue at once. One of them counts."""
    run = t.start("either")
    first, second = t.parked(run, 2)
    letters = [t.send(each.id) for each in (second, first)]
    accepted = [each for each in letters if any(receipt.ok for receipt in t.receipts(each))]
    if len(accepted) != 1:
        t.faults.append(f"{len(accepted)} answers of an ask_any were accepted")
    t.refused(len(letters) - 1)
    t.ended(run)


# --- approvals --------------------------------------------------------------------------------------


def edited_approval(t: Trial) -> None:
    """The approver edits the call, another tuning asks about what it is now, and that is what runs."""
    run = t.start("transferring")
    (first,) = t.parked(run)
    _shows(t, first, {"amount": 1, "urgent": True})
    t.answer(first.id, value={"approved": True, "comment": "more", "args": {"amount": 5, "urgent": True}})
    (second,) = t.until(lambda: [each for each in t.parked(run) if each.id != first.id], "the second approval")
    _shows(t, second, {"amount": 5, "urgent": True})
    t.answer(second.id, value={"approved": True})
    t.ended(run)
    paid = [row.value for row in t.rows() if row.kind == "effect"]
    if set(paid) != {"5"}:
        t.faults.append(f"5 was approved, and transferred were {paid}")


def _shows(t: Trial, action: PendingAction, args: dict[str, Any]) -> None:
    if action.input["args"] != args:
        t.faults.append(f"the approver of {args} was shown {action.input}")
