"""The one door for answers, whichever way they come.

An answer is judged in this order: its bytes, which action it is for, who sent it, its shape; then
one compare-and-set makes it the action's answer. A refusal leaves the action as it was, is told
in the receipt and kept as a dead letter. Nothing that is sent here raises: the only error that
leaves is `StoreUnavailableError`, after which nothing has happened, and the answer must be
offered again.

An answer counts only when the live model has validated it. A process that cannot ask the model, and whose pinned
schema does not say all that the model checks, keeps the answer for a worker that can.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

from adjourn.schemas.errors import CredentialError, DamagedRecordError, StoreUnavailableError
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, AnswerKind, Receipt
from adjourn.schemas.records.credentials import verify
from adjourn.schemas.records.events import THREAD_START, Event, RefreshEvent, ThreadPosition, event_of
from adjourn.schemas.records.ids import is_action_id
from adjourn.schemas.records.runs import WakeUp
from adjourn.schemas.strict_json import clean_text, digest, dumps
from adjourn.store.results import EarlyAnswer
from adjourn.tasks.answers.ends import fail_damaged
from adjourn.tasks.answers.envelope import MAX_QUOTED, Refusal, body_of, check_answer, read_answer, redacted_body
from adjourn.tasks.answers.validation import Unproven, Validated, validated
from adjourn.tasks.blocks.sub_agents import TASK
from adjourn.tasks.blocks.user_code import is_interrupt
from adjourn.tasks.host.services import Door, Services

log = logging.getLogger(__name__)

EARLY_CHANNEL: Final = "early"
_LOOK_SECONDS: Final = (0.02, 0.05, 0.1, 0.2)
"""Between looks for the verdict of a worker; the last one for as long as it takes."""
_STATUS_OF: Final = MappingProxyType[AnswerKind, Literal["submitted", "cancelled", "failed"]](
    {"submit": "submitted", "cancel": "cancelled", "fail": "failed"}
)

_LATE: Final = "the deadline has passed; an answer that came in time has yet to be validated"


def submit(door: Door, raw: bytes | str, *, channel: str, answered_by: str | None = None) -> Receipt:
    """Judge one message and say what became of it.

    `channel` names the way it came, for the dead letters; `answered_by` is whom the channel knows
    the sender to be, never what the message says of itself.
    """
    try:
        answer = read_answer(raw, door.tuning)
    except Exception as error:
        return _refused(door, _as_refusal(error), channel, redacted_body(raw, door.tuning.dead_letter_bytes))
    return _settle(door, answer, channel, answered_by)


def submit_answer(
    door: Door, answer: Answer, *, channel: str, answered_by: str | None = None, wait: bool = False
) -> Receipt:
    """`submit` for an answer that is an object already. Its data is held to the same rules.

    With `wait` an answer that a worker has to validate is waited for, `Tuning.verdict_seconds` at most: then its
    receipt is the worker's, or still `kept`.
    """
    try:
        check_answer(answer, door.tuning)
    except Refusal as refusal:
        return _refused(door, refusal, channel, b"", answer)
    return _settle(door, answer, channel, answered_by, wait=wait)


def apply_early(door: Door, action_id: str) -> None:
    """Judge what was kept for an action, in the order in which it came.

    For the process that opened an action whose id was known before, and for one that was told that an answer needs
    its app. An answer is let go of only once it has been judged: a crash in between judges it again, and finds its
    own duplicate.
    """
    for early in door.store.early_answers.of_action(action_id):
        settle_early(door, early)


def settle_early(door: Door, early: EarlyAnswer) -> bool:
    """Judge one kept answer, and let go of it; False if it is left to a process whose app has its model.

    A sender that does not wait was told `early` or `kept`, and hears no more of it.
    """
    try:
        answer = Answer.model_validate_json(early.body)
    except ValueError:
        log.error("an early answer cannot be read any more", extra={"action_id": early.action_id})
        door.store.early_answers.drop([early.id])
        return True
    receipt = _settle(door, answer, early.channel or EARLY_CHANNEL, early.answered_by, kept=early)
    if receipt.status == "kept":
        return False
    # A crash before this line: it is judged again, and found to be a duplicate of itself.
    if early.awaited:
        door.store.early_answers.conclude(early.id, receipt.model_dump_json())
    else:
        door.store.early_answers.drop([early.id])
    return True


def _settle(
    door: Door,
    answer: Answer,
    channel: str,
    answered_by: str | None,
    *,
    wait: bool = False,
    kept: EarlyAnswer | None = None,
) -> Receipt:
    answer = answer if answer.answer_id else answer.model_copy(update={"answer_id": _digest(answer)})
    try:
        try:
            return _judge(door, answer, channel, answered_by, kept=kept)
        except Unproven as unproven:
            if kept is None:
                return _keep_for_worker(door, answer, channel, answered_by, unproven, wait)
            if not _is_newest_build(door):
                return Receipt(status="kept", action_id=answer.action_id, answer_id=answer.answer_id)
            # The newest live build lacks the model: no worker will ever ask it. The pinned schema decides, and the
            # re-entry says that the tool is gone, with the answer kept for a retry.
            return _judge(door, answer, channel, answered_by, kept=kept, pinned_decides=True)
    except StoreUnavailableError:
        raise
    except DamagedRecordError as error:
        if not fail_damaged(door, error):
            # A newer worker has opened the action. Who answers is held against it by that one.
            if kept is not None:
                return Receipt(status="kept", action_id=answer.action_id, answer_id=answer.answer_id)
            return _keep_for_worker(door, answer, channel, answered_by, Unproven(), wait)
        refusal = Refusal("unknown", str(error))
        return _refused(door, refusal, channel, body_of(answer).encode(), answer)
    except BaseException as error:  # a refusal, or an error of the code of a user's type
        if is_interrupt(error):
            raise
        return _refused(door, _as_refusal(error), channel, body_of(answer).encode(), answer)


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


def _judge(
    door: Door,
    answer: Answer,
    channel: str,
    answered_by: str | None,
    *,
    kept: EarlyAnswer | None = None,
    pinned_decides: bool = False,
) -> Receipt:
    action_id = _action_id(door, answer)
    who = _who(door, answer, action_id, answered_by)
    action = _action(door, action_id)
    if action is None:
        return _keep(door, answer, channel, action_id, who)
    if action.kind == TASK and not action.answerers:
        raise Refusal("forbidden", "nobody is to answer this action: it ends with the run that a sub-agent has started")
    if action.answerers is not None and who not in action.answerers:
        raise Refusal("forbidden", f"this action is not for {who or 'an unknown sender'} to answer")
    if answer.name is not None and answer.name != action.name:
        raise Refusal("invalid", f"the action is {action.name}, not {answer.name[:MAX_QUOTED]}")
    # Of one that has ended too: it may be open again, by a retry, before the next statement.
    checked = Validated(None, answer.data)
    if answer.kind == "submit":
        checked = validated(door.app, answer, action, pinned_decides=pinned_decides)
    received_at = None if kept is None else kept.received_at
    return _make_it_the_answer(door, answer, action_id, who, checked, channel, received_at)


# --- which action, and who answers ------------------------------------------------------------


def _action_id(door: Door, answer: Answer) -> str:
    """The id that this answer means. One that this deployment signed needs no look-up."""
    if is_action_id(answer.action_id, door.store.signing_key()):
        return answer.action_id
    said = _digest(answer)
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


# --- the compare-and-set ------------------------------------------------------------------------


def _make_it_the_answer(
    door: Door,
    answer: Answer,
    action_id: str,
    who: str | None,
    checked: Validated,
    channel: str,
    received_at: datetime | None = None,
) -> Receipt:
    """Or hear why it is not. An answer that does not fit is told that only of an action that truly waits.

    The action may have been read from Redis, where one that has ended may have left its record; and its
    deadline is Postgres's to judge.
    """
    came = door.store.actions.answer(
        action_id=action_id,
        status=_STATUS_OF[answer.kind],
        resume=dumps(checked.data) if answer.has_data else None,
        reason=answer.reason,
        message=answer.message,
        answer_id=answer.answer_id or "",
        digest=_digest(answer),
        answered_by=who,
        channel=channel,
        fits=checked.misfit is None,
        received_at=received_at,
    )
    if came.outcome == "waiting":
        assert checked.misfit is not None, "only an answer that does not fit leaves its action waiting"
        raise checked.misfit
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
            events.append(event_of(came.item.with_said(came.resolution), came.ordinal))
            if came.closed:
                last = ThreadPosition(came.ordinal, came.item.seq + len(came.closed))
                events.append(RefreshEvent(id=str(last), run_id=came.item.run_id))
        door.events.publish(came.thread_id, events, ended=ended)
    if came.root_thread_id is not None and came.run_id is not None:
        door.events.publish(came.root_thread_id, [RefreshEvent(id=THREAD_START, run_id=came.run_id)])
    if came.run_id is not None and (came.wake or came.outcome == "duplicate"):
        # A duplicate is most often a redelivery: whoever took the first may have died before its wake-up.
        door.wakeups.publish(WakeUp(run_id=came.run_id, due="reentry"))
    if came.outcome == "unknown":
        raise Refusal("unknown", "no action has this id")
    if came.outcome == "late":
        detail = _LATE if came.action_status == "pending" else f"the action is {came.action_status}"
        raise Refusal("late", detail, action_status=came.action_status)
    return Receipt(
        status=came.outcome,
        action_id=action_id,
        answer_id=answer.answer_id,
        run_id=came.run_id,
        action_status=came.action_status,
    )


def _digest(answer: Answer) -> str:
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


def _keep(door: Door, answer: Answer, channel: str, action_id: str, who: str | None) -> Receipt:
    """The id is ours and the action is not open: its suspend has not committed yet, or never will."""
    kept = door.store.early_answers.keep(
        action_id=action_id,
        body=body_of(answer),
        answered_by=who,
        channel=EARLY_CHANNEL,
    )
    if kept is None:
        raise Refusal("unknown", "the action is not open, and too many answers wait for such; send it again later")
    if _action(door, action_id) is not None:
        # It opened between the look and the keeping, and whoever opened it saw nothing waiting.
        # Judged now; what was kept is found to be a duplicate by the sweep.
        return _judge(door, answer, channel, who)
    return Receipt(
        status="early", action_id=action_id, answer_id=answer.answer_id, detail="kept until the action opens"
    )


def _keep_for_worker(
    door: Door, answer: Answer, channel: str, answered_by: str | None, unproven: Unproven, wait: bool
) -> Receipt:
    """Keep an answer that fits the pinned schema and was let in, for a worker that can ask its model.

    A crash before the statement: it is still with its sender. After: it is judged by a worker, by its sweep at the
    latest, and only then it counts. Meanwhile the action is as open as before, for the first answer that is accepted.
    """
    action_id = _action_id(door, answer)
    kept = door.store.early_answers.keep(
        action_id=action_id,
        # By the id that it was found by: its request id may mean another action by then.
        body=body_of(answer.model_copy(update={"action_id": action_id})),
        answered_by=_who(door, answer, action_id, answered_by),
        channel=channel,
        awaited=wait,
    )
    if kept is None:
        raise Refusal("unknown", "too many answers wait for a worker to validate them; send it again later")
    door.wakeups.notify_readers(action_id)
    verdict = _verdict(door, kept) if wait else None
    if verdict is not None:
        return verdict
    return Receipt(
        status="kept",
        action_id=action_id,
        answer_id=answer.answer_id,
        action_status="pending",
        detail=unproven.detail,
    )


def _verdict(door: Door, kept: int) -> Receipt | None:
    """What a worker makes of a kept answer; `None` if none has judged it in time."""
    deadline = time.monotonic() + door.tuning.verdict_seconds
    looks = 0
    while True:
        try:
            text = door.store.early_answers.receipt(kept)
            if text is not None:
                door.store.early_answers.drop([kept])
                return Receipt.model_validate_json(text)
        except StoreUnavailableError:
            return None  # the answer is kept; only its verdict cannot be read
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(left, _LOOK_SECONDS[min(looks, len(_LOOK_SECONDS) - 1)]))
        looks += 1


def _refused(door: Door, refusal: Refusal, channel: str, body: bytes, answer: Answer | None = None) -> Receipt:
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
