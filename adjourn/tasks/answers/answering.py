"""The way of an answer, whichever way it comes in: receive, parse, authorise, validate, accept, publish.

`receive` takes bytes, `receive_answer` an `Answer`. Both return a receipt. All that they raise is
`StoreUnavailableError`: then nothing has happened, and the answer must be offered again. A refusal leaves the action
as it was. Its receipt says why, and a dead letter is stored.

An answer counts only when the live model has validated it. A process that cannot ask the model, and whose pinned
schema does not say all that the model checks, keeps the answer for a worker that can (`kept`).
"""

from __future__ import annotations

import logging
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from adjourn.schemas.errors import CredentialError, DamagedRecordError, StoreUnavailableError
from adjourn.schemas.internal.state import Answered
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, AnswerKind, Receipt
from adjourn.schemas.records.credentials import verify
from adjourn.schemas.records.events import THREAD_START, Event, RefreshEvent, ThreadPosition, event_of
from adjourn.schemas.records.ids import is_action_id
from adjourn.schemas.records.runs import WakeUp
from adjourn.schemas.strict_json import clean_text, digest, dumps
from adjourn.store.results import EarlyAnswer
from adjourn.tasks.answers.ends import fail_damaged
from adjourn.tasks.answers.envelope import MAX_QUOTED, Refusal, body_of, check_answer, parse, redacted_body
from adjourn.tasks.answers.kept import await_receipt, keep_for_worker, keep_until_open
from adjourn.tasks.answers.validation import Unproven, Validated, validated
from adjourn.tasks.blocks.sub_agents import TASK
from adjourn.tasks.blocks.user_code import is_interrupt
from adjourn.tasks.host.services import Door, Services

log = logging.getLogger(__name__)

EARLY_CHANNEL: Final = "early"
_STATUS_OF: Final = MappingProxyType[AnswerKind, Literal["submitted", "cancelled", "failed"]](
    {"submit": "submitted", "cancel": "cancelled", "fail": "failed"}
)
_LATE: Final = "the deadline has passed; an answer that came in time has yet to be validated"


class Addressed(NamedTuple):
    """An answer whose sender may answer the action."""

    action_id: str
    who: str | None
    """Whom it is from: proved by a credential, or known to the channel."""
    action: PendingAction | None
    """`None` while the action is not open."""


# --- receive ------------------------------------------------------------------------------------


def receive(door: Door, raw: bytes | str, *, channel: str, answered_by: str | None = None) -> Receipt:
    """Take one message through all steps, and return its receipt.

    `channel` names the way it came in, for the dead letters; `answered_by` is whom the channel knows
    the sender to be, never what the message says of itself.
    """
    try:
        answer = parse(raw, door.tuning)
    except Exception as error:
        return _refuse(door, _as_refusal(error), channel, redacted_body(raw, door.tuning.dead_letter_bytes))
    return _take(door, answer, channel, answered_by)


def receive_answer(
    door: Door, answer: Answer, *, channel: str, answered_by: str | None = None, wait: bool = False
) -> Receipt:
    """`receive` for an answer that is an object already. Its data is held to the same rules.

    With `wait` an answer that a worker has to validate is waited for, `Tuning.verdict_seconds` at most: then its
    receipt is the worker's, or still `kept`.
    """
    try:
        check_answer(answer, door.tuning)
    except Refusal as refusal:
        return _refuse(door, refusal, channel, b"", answer)
    return _take(door, answer, channel, answered_by, wait=wait)


def receive_kept(door: Door, action_id: str) -> None:
    """Take what was kept for an action through the steps, in the order in which it came in.

    For the process that opened an action whose id was known before, and for one that was notified that an answer
    needs its app. An answer is deleted only after its result has committed: a crash in between takes it again, and
    finds its own duplicate.
    """
    for early in door.store.early_answers.of_action(action_id):
        receive_early(door, early)


def receive_early(door: Door, early: EarlyAnswer) -> bool:
    """Take one kept answer through the steps, and delete it; False if it is left to a process whose app has its model.

    A sender that does not wait has had its receipt, `early` or `kept`, and gets no other.
    """
    try:
        answer = Answer.model_validate_json(early.body)
    except ValueError:
        log.error("an early answer cannot be read any more", extra={"action_id": early.action_id})
        door.store.early_answers.drop([early.id])
        return True
    receipt = _take(door, answer, early.channel or EARLY_CHANNEL, early.answered_by, kept=early)
    if receipt.status == "kept":
        return False
    # A crash before this line: it is taken again, and found to be a duplicate of itself.
    if early.awaited:
        door.store.early_answers.conclude(early.id, receipt.model_dump_json())
    else:
        door.store.early_answers.drop([early.id])
    return True


def _take(
    door: Door,
    answer: Answer,
    channel: str,
    answered_by: str | None,
    *,
    wait: bool = False,
    kept: EarlyAnswer | None = None,
) -> Receipt:
    """All steps after parsing; whatever they raise becomes a receipt."""
    answer = answer if answer.answer_id else answer.model_copy(update={"answer_id": digest_of(answer)})
    try:
        try:
            return _steps(door, answer, channel, answered_by, kept=kept)
        except Unproven as unproven:
            if kept is None:
                return _leave_to_worker(door, answer, channel, answered_by, unproven, wait)
            if not _is_newest_build(door):
                return Receipt(status="kept", action_id=answer.action_id, answer_id=answer.answer_id)
            # The newest live build lacks the model: no worker will ever ask it. The pinned schema decides, and the
            # re-entry says that the tool is gone, with the answer kept for a retry.
            return _steps(door, answer, channel, answered_by, kept=kept, pinned_decides=True)
    except StoreUnavailableError:
        raise
    except DamagedRecordError as error:
        if not fail_damaged(door, error):
            # A newer worker has opened the action. Who answers is held against it by that one.
            if kept is not None:
                return Receipt(status="kept", action_id=answer.action_id, answer_id=answer.answer_id)
            return _leave_to_worker(door, answer, channel, answered_by, Unproven(), wait)
        refusal = Refusal("unknown", str(error))
        return _refuse(door, refusal, channel, body_of(answer).encode(), answer)
    except BaseException as error:  # a refusal, or an error of the code of a user's type
        if is_interrupt(error):
            raise
        return _refuse(door, _as_refusal(error), channel, body_of(answer).encode(), answer)


def _steps(
    door: Door,
    answer: Answer,
    channel: str,
    answered_by: str | None,
    *,
    kept: EarlyAnswer | None = None,
    pinned_decides: bool = False,
) -> Receipt:
    """Authorise, validate, accept, publish. Raises `Refusal`."""
    to = authorise(door, answer, answered_by)
    if to.action is None:
        keep_until_open(door, answer, to.action_id, to.who, EARLY_CHANNEL)
        to = authorise(door, answer, answered_by)
        if to.action is None:
            detail = "kept until the action opens"
            return Receipt(status="early", action_id=to.action_id, answer_id=answer.answer_id, detail=detail)
        # It opened between the look and the keeping, and whoever opened it saw nothing waiting. Taken on here; what
        # was kept is found to be a duplicate by the sweep.
    checked = validate(door, answer, to.action, pinned_decides=pinned_decides)
    accepted = accept(door, answer, to, checked, channel, None if kept is None else kept.received_at)
    publish(door, to.action_id, accepted)
    return _receipt(answer, to.action_id, accepted)


# --- authorise: which action, from whom, and whether they may -------------------------------------


def authorise(door: Door, answer: Answer, answered_by: str | None) -> Addressed:
    """Find the action that the answer means, and whom it is from. Raises `Refusal` if they may not answer it."""
    action_id = _action_id(door, answer)
    who = _who(door, answer, action_id, answered_by)
    action = _action(door, action_id)
    if action is None:
        return Addressed(action_id, who, None)
    if action.kind == TASK and not action.answerers:
        raise Refusal("forbidden", "nobody is to answer this action: it ends with the run that a sub-agent has started")
    if action.answerers is not None and who not in action.answerers:
        raise Refusal("forbidden", f"this action is not for {who or 'an unknown sender'} to answer")
    if answer.name is not None and answer.name != action.name:
        raise Refusal("invalid", f"the action is {action.name}, not {answer.name[:MAX_QUOTED]}")
    return Addressed(action_id, who, action)


def _action_id(door: Door, answer: Answer) -> str:
    """The id that this answer means. One that this deployment signed needs no look-up."""
    if is_action_id(answer.action_id, door.store.signing_key()):
        return answer.action_id
    said = digest_of(answer)
    if answer.answer_id is not None and answer.answer_id != said:
        # A tool may use a request id again. The answer to the first, delivered again, is no answer to the next.
        resolved = door.store.actions.answered_by_request_id(answer.action_id, answer.answer_id, said)
        if resolved is not None:
            return resolved
    found = door.store.actions.find_by_request_id(answer.action_id)
    if len(found) > 1:
        raise Refusal("unknown", "ambiguous: several open actions have this request id; use the action's own id")
    # One that has ended is found too: an answer that is delivered again has to be told that it is a duplicate.
    action_id = found[0] if found else door.store.actions.last_by_request_id(answer.action_id)
    if action_id is None:
        raise Refusal("unknown", "no action has this id")
    return action_id


def _who(door: Door, answer: Answer, action_id: str, answered_by: str | None) -> str | None:
    """Whom the answer is from: proved by a credential, or known to the channel."""
    if answer.credential is None:
        return answered_by
    try:
        return verify(answer.credential, door.store.signing_key(), action_id=action_id, now=door.store.clock)
    except CredentialError as error:
        raise Refusal("forbidden", str(error)) from None


def _action(door: Door, action_id: str) -> PendingAction | None:
    """The action: from Redis while it is parked, else from Postgres, and then put back into Redis."""
    parked = door.parking.get(action_id)
    if parked is not None:
        return parked
    state = door.store.actions.get(action_id)
    if state is None:
        return None
    if state.action.status == "pending":
        door.parking.put([state.action])
    return state.action


# --- validate -----------------------------------------------------------------------------------


def validate(door: Door, answer: Answer, action: PendingAction, *, pinned_decides: bool) -> Validated:
    """Whether the data fits, and what is stored of it. Of an action that has ended too: a retry may open it again."""
    if answer.kind != "submit":
        return Validated(None, answer.data)
    return validated(door.app, answer, action, pinned_decides=pinned_decides)


# --- accept: the compare-and-set ------------------------------------------------------------------


def accept(
    door: Door, answer: Answer, to: Addressed, checked: Validated, channel: str, received_at: datetime | None
) -> Answered:
    """Make it the answer of its action, if that still waits. Raises `Refusal` if it does not fit an action that waits.

    The action may have been read from Redis, where one that has ended may have left its record; and its
    deadline is PostgreSQL's to decide.
    """
    came = door.store.actions.answer(
        action_id=to.action_id,
        status=_STATUS_OF[answer.kind],
        resume=dumps(checked.data) if answer.has_data else None,
        reason=answer.reason,
        message=answer.message,
        answer_id=answer.answer_id or "",
        digest=digest_of(answer),
        answered_by=to.who,
        channel=channel,
        fits=checked.misfit is None,
        received_at=received_at,
    )
    if came.outcome == "waiting":
        assert checked.misfit is not None, "only an answer that does not fit leaves its action waiting"
        raise checked.misfit
    return came


# --- publish ------------------------------------------------------------------------------------


def publish(door: Door, action_id: str, came: Answered) -> None:
    """Publish what was committed: events, and the wake-up of the run."""
    # Committed. What follows may be lost in a crash: the record is then found stale by its
    # action, the event is read from Postgres, and the wake-up is published by the sweep.
    if came.thread_id is None:
        door.parking.drop([action_id])
    else:
        events: list[Event] = []
        ended = [] if came.action_status == "pending" else [action_id, *came.closed]
        if came.item is not None:
            assert came.item.body.kind == "resolution", "a wait ends with a resolution"
            if came.item.body.action_id != action_id:  # the one whose deadline closed this one
                ended.append(came.item.body.action_id)
            events.append(event_of(came.item.with_answer(came.resolution), came.ordinal))
            if came.closed:
                last = ThreadPosition(came.ordinal, came.item.seq + len(came.closed))
                events.append(RefreshEvent(id=str(last), run_id=came.item.run_id))
        door.events.publish(came.thread_id, events, ended=ended)
    if came.root_thread_id is not None and came.run_id is not None:
        door.events.publish(came.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=came.run_id)])
    if came.run_id is not None and (came.wake or came.outcome == "duplicate"):
        # A duplicate is most often a redelivery: whoever took the first may have died before its wake-up.
        door.wakeups.publish(WakeUp(run_id=came.run_id, due="reentry"))


def _receipt(answer: Answer, action_id: str, came: Answered) -> Receipt:
    """The receipt of what was committed. Raises `Refusal` where that was nothing."""
    if came.outcome == "unknown":
        raise Refusal("unknown", "no action has this id")
    if came.outcome == "late":
        detail = _LATE if came.action_status == "pending" else f"the action is {came.action_status}"
        raise Refusal("late", detail, action_status=came.action_status)
    assert came.outcome != "waiting", "`accept` has refused it"
    return Receipt(
        status=came.outcome,
        action_id=action_id,
        answer_id=answer.answer_id,
        run_id=came.run_id,
        action_status=came.action_status,
    )


def digest_of(answer: Answer) -> str:
    """The digest of all that the answer says, whoever says it and whatever they call it.

    What its kind always says is enough for most answers, and is all that older versions took: theirs stay duplicates.
    """
    parts = {"submit": answer.data, "cancel": answer.reason, "fail": answer.message}
    said: dict[str, Any] = {"kind": answer.kind, "said": parts[answer.kind]}
    if answer.kind != "submit" and answer.has_data:
        said["data"] = answer.data
    if answer.kind != "cancel" and answer.reason is not None:
        said["reason"] = answer.reason
    if answer.kind != "fail" and answer.message is not None:
        said["message"] = answer.message
    return digest(said)


# --- what is not accepted -------------------------------------------------------------------------


def _leave_to_worker(
    door: Door, answer: Answer, channel: str, answered_by: str | None, unproven: Unproven, wait: bool
) -> Receipt:
    """Keep an answer that fits the pinned schema and whose sender may answer, for a worker that can ask its model."""
    action_id = _action_id(door, answer)
    who = _who(door, answer, action_id, answered_by)
    kept = keep_for_worker(door, answer, action_id, who, channel, awaited=wait)
    receipt = await_receipt(door, kept) if wait else None
    if receipt is not None:
        return receipt
    return Receipt(
        status="kept",
        action_id=action_id,
        answer_id=answer.answer_id,
        action_status="pending",
        detail=unproven.detail,
    )


def _refuse(door: Door, refusal: Refusal, channel: str, body: bytes, answer: Answer | None = None) -> Receipt:
    """Keep the dead letter, and say why. Raises `StoreUnavailableError`, so that the sender keeps the message."""
    action_id = clean_text(answer.action_id) if answer else None
    door.store.dead_letters.add(
        channel=channel,
        status=refusal.status,
        detail=refusal.detail,
        body=body,
        action_id=action_id,
        issues=refusal.issues,
    )
    log.info("answer refused", extra={"channel": channel, "status": refusal.status, "action_id": action_id})
    return Receipt(
        status=refusal.status,
        action_id=action_id,
        answer_id=answer.answer_id if answer else None,
        action_status=refusal.action_status,
        detail=refusal.detail,
        issues=refusal.issues,
    )


def _as_refusal(error: BaseException) -> Refusal:
    """A message that breaks its reader must not come back to break it again: it is refused like any other."""
    if isinstance(error, Refusal):
        return error
    log.error("an answer could not be judged", exc_info=error)
    return Refusal("malformed", f"could not be judged ({type(error).__name__})")


def _is_newest_build(door: Door) -> bool:
    """True for a worker that has registered its build, if no newer build is live."""
    build = door.build if isinstance(door, Services) else None
    return build is not None and not build.is_outdated()
