"""What a client does with actions: list them, answer them, and issue credentials for others who answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, overload

from pydantic import ValidationError

from adjourn.schemas.contracts.given import given_json
from adjourn.schemas.errors import (
    AnswerPayloadError,
    AnswerRefusedError,
    IllegalArgumentError,
    NotFoundError,
    ValidationIssue,
)
from adjourn.schemas.records.answers import Answer, Issue, Receipt, ShortAnswer
from adjourn.schemas.records.credentials import ANY_ACTION, sign
from adjourn.schemas.records.ids import check_findable, is_action_id
from adjourn.schemas.strict_json import pointer
from adjourn.tasks.answers.answering import receive_answer
from adjourn.worker.client import arguments
from adjourn.worker.client.actions import Action, failure_text
from adjourn.worker.client.connected import Connected
from adjourn.worker.client.publisher import publish

CHANNEL: Final = "client"
_NO_ID: Final = "(no id)"


class AnswerCalls(Connected):
    """Actions of one deployment."""

    def pending(self, thread_id: str | None = None, run_id: str | None = None, *, limit: int = 100) -> list[Action]:
        """What waits for an answer, oldest first: of a thread, of a run, or of everything.

        At most `limit`. Of a thread or a run that is not there nothing does; raises `NotFoundError` for an id that
        none can have.
        """
        arguments.check_limit(limit)
        if thread_id is not None:
            check_findable("thread", thread_id)
        if run_id is not None:
            check_findable("run", run_id)
        found = self._door.store.actions.pending(thread_id=thread_id, run_id=run_id, limit=limit)
        return [Action.of(record, self) for record in found]

    def action(self, action_id: str) -> Action:
        """An action as it is now, pending or ended: what was asked, and in `resolution` what was answered.

        The resolution has the value, the reason or message, who answered and by which channel. A request id names
        the newest open action for which a tool chose it, or else the newest. Raises `NotFoundError`.
        """
        check_findable("action", action_id)
        state = self._door.store.actions.get(action_id)
        if state is None:
            found = self._door.store.actions.newest_by_request_id(action_id)
            state = None if found is None else self._door.store.actions.get(found)
        if state is None:
            raise NotFoundError("action", action_id)
        return Action.of(state.action, self, state.resolution)

    def submit(
        self,
        action_id: str,
        data: Any = None,
        *,
        reason: str | None = None,
        answer_id: str | None = None,
        name: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
        raise_on_refusal: bool = True,
    ) -> Receipt:
        """Answer an action with `data`: a JSON value, or a model or other value that has a JSON form.

        `reason` is kept beside it, and the tool can read it. The same `answer_id` with the same data and reason is
        taken once, however often it is sent. `name`, if given, must be the action's. The answer is from `identity`,
        or from whom the `credential` proves, else from the client's own identity; give one of them. Raises
        `AnswerRefusedError` if the answer was not taken; with `raise_on_refusal=False` the receipt says so instead.

        Where only a worker can validate the answer (see `PendingAction.schema_decides`) and none has in
        `Tuning.verdict_seconds`, the receipt is `kept`: the answer is not lost, and not accepted yet.
        """
        return self._send(
            raise_on_refusal,
            identity=identity,
            action_id=action_id,
            data=given_json(data, "the answer", AnswerPayloadError),
            reason=reason,
            answer_id=answer_id,
            name=name,
            credential=credential,
        )

    def cancel(
        self,
        action_id: str,
        *,
        reason: str | None = None,
        data: Any = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
        raise_on_refusal: bool = True,
    ) -> Receipt:
        """Decline an action: its tool is told no, with the `reason` and with `data`, a JSON value, if there is any.

        `answer_id`, `identity`, `credential` and `raise_on_refusal` are as for `submit`.
        """
        said: dict[str, Any] = {"reason": reason, "answer_id": answer_id, "credential": credential}
        if data is not None:
            said["data"] = given_json(data, "the answer", AnswerPayloadError)
        return self._send(raise_on_refusal, identity=identity, action_id=action_id, kind="cancel", **said)

    def fail(
        self,
        action_id: str,
        *,
        message: str | BaseException,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
        raise_on_refusal: bool = True,
    ) -> Receipt:
        """Say that an action cannot be answered, and why: in a text, or by the exception that says it.

        `answer_id`, `identity`, `credential` and `raise_on_refusal` are as for `submit`.
        """
        said: dict[str, Any] = {"answer_id": answer_id, "credential": credential}
        return self._send(
            raise_on_refusal, identity=identity, action_id=action_id, kind="fail", message=failure_text(message), **said
        )

    @overload
    def resume(
        self,
        answer: ShortAnswer | Mapping[str, Any],
        *,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    @overload
    def resume(
        self,
        *,
        id: object,
        ok: bool,
        data: dict[str, Any] | None = None,
        reason: str | None = None,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
    ) -> Receipt: ...
    def resume(
        self,
        answer: ShortAnswer | Mapping[str, Any] | None = None,
        *,
        identity: str | None = None,
        credential: str | None = None,
        **fields: Any,
    ) -> Receipt:
        """Answer in the short form `{id, ok, data, reason}`: whatever run of the deployment waits for it.

        `id` is the request's or the action's; an id that is not text is taken as its JSON. `ok` accepts or declines,
        either with `data` and a `reason`. `identity` and `credential` are as for `submit`. The same answer again is
        a `duplicate`. Raises `IllegalArgumentError` for an `answer` beside fields of another, and
        `AnswerRefusedError`, whose status says why: `unknown` (also if several open requests have this id: use the
        action's), `late`, `invalid`, `forbidden` or `malformed`. A request that waited still waits then.
        """
        if answer is not None and fields:
            raise IllegalArgumentError(next(iter(fields)), next(iter(fields.values())), "say it in the answer itself")
        short = _short(answer if answer is not None else fields)
        who: dict[str, Any] = {"answer_id": short.answer_id, "identity": identity, "credential": credential}
        if short.ok:
            return self.submit(short.id, short.data, reason=short.reason, **who)
        return self.cancel(short.id, reason=short.reason, data=short.data, **who)

    def issue_credential(
        self, identity: str, action_id: str | None = None, *, expires_in: timedelta | None = None
    ) -> str:
        """Sign a credential that proves `identity` in answers of channels that know no users, such as the queue.

        It is for the one action, whose own id or request id is given, or for all, and ends after `expires_in`, or
        never. Whoever has it may answer as `identity`: treat it as a password. It cannot be revoked. Raises
        `NotFoundError` for an action that this deployment has not made.
        """
        arguments.check_identity(identity)
        arguments.check_span("expires_in", expires_in)
        store = self._door.store
        scope = ANY_ACTION if action_id is None else self._own_action_id(action_id)
        expires_at = None if expires_in is None else store.clock() + expires_in
        return sign(identity, store.signing_key(), scope=scope, expires_at=expires_at)

    def _own_action_id(self, action_id: str) -> str:
        """The id that an action is signed with. Raises `NotFoundError`, also where a request id names several."""
        check_findable("action", action_id)
        if is_action_id(action_id, self._door.store.signing_key()):
            return action_id
        found = self._door.store.actions.find_by_request_id(action_id)
        if len(found) != 1:
            raise NotFoundError("action", action_id)
        return found[0]

    def publish(self, answer: Answer, timeout: float = 30) -> Receipt:
        """Send an answer the way another program does, through the resume queue, and wait for its receipt.

        Needs a worker that reads the queue. An answer without a credential gets one for its action, if this client has
        an identity: nothing else on the queue says who sends it. Raises `WaitTimeoutError` after `timeout` seconds; the
        answer stays on the queue and will be judged.
        """
        if not isinstance(answer, Answer):
            raise IllegalArgumentError("answer", answer, "give an Answer(action_id=...)")
        arguments.check_seconds(timeout)
        if self._identity is not None and answer.credential is None:
            with suppress(NotFoundError):  # an answer that no open action waits for: its receipt says so
                own = self.issue_credential(self._identity, answer.action_id)
                answer = answer.model_copy(update={"credential": own})
        return publish(self._settings, answer, timeout)

    def _send(self, raise_on_refusal: bool, *, identity: str | None = None, **fields: Any) -> Receipt:
        if identity is not None:
            arguments.check_identity(identity)
            if fields.get("credential") is not None:
                raise IllegalArgumentError("identity", identity, "give it or a credential, which names its own")
        receipt = self._judged(fields, self._identity if identity is None else identity)
        if raise_on_refusal and not receipt.ok:
            raise refused(receipt, fields["action_id"])
        return receipt

    def _judged(self, fields: dict[str, Any], identity: str | None) -> Receipt:
        try:
            answer = Answer.model_validate(fields, strict=True)  # as on the wire
        except ValidationError as error:
            return _malformed(error)
        return receive_answer(self._door, answer, channel=CHANNEL, answered_by=identity, wait=True)


def refused(receipt: Receipt, action_id: object) -> AnswerRefusedError:
    """The error that a receipt stands for."""
    issues = [ValidationIssue(issue.path, issue.message) for issue in receipt.issues]
    return AnswerRefusedError(action_id, receipt.status, receipt.detail, issues)


def _short(said: object) -> ShortAnswer:
    """Raises `IllegalArgumentError` for what is no document, and `AnswerRefusedError` as it would be on the wire."""
    if not isinstance(said, ShortAnswer | Mapping):
        raise IllegalArgumentError("answer", said, "give {id, ok, data, reason}")
    document = dict(said)
    try:
        return ShortAnswer.model_validate(document, strict=True)
    except ValidationError as error:
        raise refused(_malformed(error), document.get("id", _NO_ID)) from None


def _malformed(error: ValidationError) -> Receipt:
    found = error.errors(include_url=False, include_input=False)
    issues = tuple(Issue(path=pointer(each["loc"]), message=each["msg"]) for each in found)
    return Receipt(
        status="malformed", detail="; ".join(f"{each.path}: {each.message}" for each in issues), issues=issues
    )
