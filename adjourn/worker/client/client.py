"""The Python client: starts runs, watches them, and answers what they wait for.

Owns no rule. Runs are started and cancelled by the store's own statements, answers go through the
one door of every channel (`adjourn.tasks.answers.door`), and wake-ups are published only after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self

from pydantic import ValidationError

from adjourn.schemas.contracts.given import given_json
from adjourn.schemas.errors import (
    AnswerPayloadError,
    AnswerRefusedError,
    ConfigurationError,
    IllegalArgumentError,
    IllegalIdError,
    NotFoundError,
    RunEndedError,
    StoreUnavailableError,
    ThreadBusyError,
    TooLargeError,
    ValidationIssue,
    WaitTimeoutError,
)
from adjourn.schemas.internal.checks import Check
from adjourn.schemas.internal.state import Started
from adjourn.schemas.records.answers import Answer, Issue, Receipt
from adjourn.schemas.records.credentials import ANY_ACTION, sign
from adjourn.schemas.records.events import AttemptDiscarded, Cursor, DeltaEvent, EndEvent, Event, NestedEvent
from adjourn.schemas.records.ids import check_findable, check_own_id, is_action_id, new_run_id, new_thread_id
from adjourn.schemas.records.items import Item, MessageItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import Run, RunStatus, WakeUp, WhenBusy
from adjourn.schemas.records.threads import ThreadStatus
from adjourn.schemas.strict_json import clean_text, dumps, pointer
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import START, Events
from adjourn.store.redis.parking import Parking
from adjourn.store.results import Extent, ThreadSummary
from adjourn.tasks.answers.door import submit_answer
from adjourn.tasks.answers.ends import cancel
from adjourn.tasks.blocks.app import App
from adjourn.tasks.engine.conversation import conversation
from adjourn.tasks.engine.open_turns import open_turns
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.host.services import Door
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.streaming.viewer import Viewer
from adjourn.worker.broker.celery_app import make_celery
from adjourn.worker.client import arguments
from adjourn.worker.client.actions import Action, Thread, failure_text
from adjourn.worker.client.publisher import publish
from adjourn.worker.config.deployment import find_deployment
from adjourn.worker.config.settings import Settings

CHANNEL: Final = "client"
POOL_SIZE: Final = 4
"""Connections of one client to Postgres and to Redis each, at most."""
POLL_SECONDS: Final = 1.0
"""How long a wait trusts in live events before it looks for itself: Redis may have lost one."""
SUPERSEDE_TRIES: Final = 100
"""Runs that one `supersede` cancels at most: the one that is busy, those waiting behind it, those that slip in."""


class Client:
    """A client of one deployment, usable from any thread.

    Without `settings` it reads `ADJOURN_*`, and where no database is set there it finds the
    embedded servers that run on this machine. With an `app` it knows the agents: an unknown one
    is refused at the start, and answers are held against the live model as
    well. `identity` is who answers through this client, for actions that say who may.

    Connects when first used; use it in `with`, or `close` it. Raises `ConfigurationError` if a
    URL is missing or wrong, or what is given is no settings or no app; every method raises
    `StoreUnavailableError` if Postgres cannot be reached, and `IllegalArgumentError` for what it does not take: a
    message without JSON form, a timeout that is no time.
    """

    def __init__(
        self, settings: Settings | None = None, *, app: App | None = None, identity: str | None = None
    ) -> None:
        arguments.check_client(settings, app)
        self._settings = settings = settings or find_deployment()
        self._app = app
        if identity is not None:
            arguments.check_identity(identity)
        self._identity = identity
        self._redis = connect(settings.redis, max_connections=POOL_SIZE)
        self._celery = make_celery(settings)
        store = PostgresStore(
            Database(settings.database, settings.tuning, pool_size=POOL_SIZE, application_name="adjourn-client")
        )
        self._door = Door(
            store=store,
            parking=Parking(self._redis, store.signing_key),
            events=Events(self._redis, store.signing_key),
            wakeups=CeleryWakeUps(self._celery),
            tuning=settings.tuning,
            app=app,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, if there are any. The client may be used again."""
        self._door.events.close()
        self._redis.close()
        self._celery.close()
        self._door.store.close()

    @property
    def settings(self) -> Settings:
        """The deployment that this is a client of."""
        return self._settings

    @property
    def app(self) -> App | None:
        """The app whose agents this client knows; `None` if it was given none."""
        return self._app

    # --- runs ------------------------------------------------------------------------------

    def start(
        self,
        agent: str,
        message: Any,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        limits: Limits | None = None,
        when_busy: WhenBusy = "refuse",
    ) -> Run:
        """Start a run of a block, mostly an agent, on a new thread or on `thread_id`.

        `message` is what the user says, or the input of a block that takes more than text: a JSON
        value or a pydantic model. The block checks it when the run begins.

        A `run_id` of your own makes this idempotent: the same request again returns the run that is there. A
        request with another agent, message, thread or other limits for that id raises `RunIdClashError`, which
        names what differs. On a thread whose run has not ended, `when_busy` says whether to
        `refuse` (raises `ThreadBusyError`), to `enqueue` behind it, or to `supersede`: cancel it
        and whatever waits behind it. NUL and lone surrogates in `message` are replaced by U+FFFD, NaN and
        infinities by null.

        Without `limits` those of the agent apply. What comes back is the run as it was started;
        it may have moved on since.

        Raises `IllegalIdError` for an id of your own that cannot be used everywhere,
        `TooLargeError` for a `message` over `Tuning.max_message_bytes`, and
        `UnknownBlockError` if the client has an app without such an agent.
        """
        arguments.check_agent(agent)
        arguments.check_when_busy(when_busy)
        arguments.check_limits(limits)
        if self._app is not None:
            self._app.block(agent)
        first = self._message(message)
        run_id = new_run_id() if run_id is None else check_own_id("run id", run_id)
        any_thread = thread_id is None
        thread_id = new_thread_id() if thread_id is None else check_own_id("thread id", thread_id)
        tries = SUPERSEDE_TRIES if when_busy == "supersede" else 1
        while True:
            tries -= 1
            try:
                started = self._start(run_id, thread_id, agent, first, limits, when_busy, any_thread)
                break
            except ThreadBusyError as busy:
                if not tries:
                    raise
                self.cancel_run(busy.run_id, reason="superseded")
        if started.due:
            self._door.wakeups.publish(WakeUp(run_id=started.run_id, due="turn"))
        if started.at is None:
            return self.run(started.run_id)
        return Run(
            id=run_id,
            thread_id=thread_id,
            agent=agent,
            status="queued",
            limits=limits,
            created_at=started.at,
            updated_at=started.at,
        )

    def _start(
        self,
        run_id: str,
        thread_id: str,
        agent: str,
        first: MessageItem,
        limits: Limits | None,
        when_busy: WhenBusy,
        any_thread: bool,
    ) -> Started:
        return self._door.store.runs.start(
            run_id=run_id,
            thread_id=thread_id,
            agent=agent,
            text=first.text,
            data=first.data,
            limits=limits,
            enqueue=when_busy == "enqueue",
            any_thread=any_thread,
        )

    def _message(self, said: Any) -> MessageItem:
        """What is stored of what a user says: without NUL and lone surrogates, and never cut."""
        if isinstance(said, str):
            first = MessageItem.of_text(clean_text(said))
        else:
            data = arguments.as_json("message", said)
            first = MessageItem(text=dumps(data), data=data)
        size, limit = len(first.text.encode()), self._door.tuning.max_message_bytes
        if size > limit:
            raise TooLargeError("the message", size, limit)
        return first

    def send(self, thread_id: str, message: Any, *, agent: str | None = None, when_busy: WhenBusy = "refuse") -> Run:
        """Say something more on a thread, to the agent of its last run unless another is named.

        Raises `NotFoundError` for a thread that has no run yet, and what `start` raises.
        """
        if agent is None:
            check_findable("thread", thread_id)
            latest = self._door.store.runs.list(thread_id=thread_id, limit=1)
            if not latest:
                raise NotFoundError("thread", thread_id)
            agent = latest[0].agent
        return self.start(agent, message, thread_id=thread_id, when_busy=when_busy)

    def run(self, run_id: str) -> Run:
        """The run as it is now. Raises `NotFoundError`."""
        check_findable("run", run_id)
        run = self._door.store.runs.get(run_id)
        if run is None:
            raise NotFoundError("run", run_id)
        return run

    def items(self, run_id: str) -> tuple[Item, ...]:
        """Everything that happened in a run, in order. Raises `NotFoundError`."""
        self.run(run_id)
        return self._door.store.runs.items_to_show(run_id)

    def wait(
        self,
        run_id: str,
        *,
        until: Collection[RunStatus] | None = None,
        timeout: float | None = None,
        on_change: Callable[[Run], None] | None = None,
    ) -> Run:
        """Wait until the run has one of the statuses `until`; by default, until it waits for an answer or has ended.

        By default a run that is parked for runs of its sub-agents is waited for on, unless one of these waits for an
        answer: see `pending`. One that waits for an answer while its model is left alone is `queued`. With a status
        in `until` nothing but the status counts.

        `timeout` is in seconds, `None` waits for ever. `on_change` is called with the run as first
        seen and after each change of its status. Raises `WaitTimeoutError`, `NotFoundError`, and
        `RunEndedError` as soon as the run has ended in a status that is not in `until`.
        """
        arguments.check_timeout(timeout)
        if until is not None:
            arguments.check_until(until)
        arguments.check_on_change(on_change)
        deadline = None if timeout is None else time.monotonic() + timeout
        seen: RunStatus | None = None
        entry = START
        while True:
            run = self.run(run_id)
            if run.status != seen and on_change is not None:
                on_change(run)
            seen = run.status
            if self._is_settled(run) if until is None else run.status in until:
                return run
            if run.ended:
                raise RunEndedError(run_id, run.status, run.error.message if run.error else None)
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                awaited = "the end, or something to answer," if until is None else " or ".join(until)
                raise WaitTimeoutError(f"{awaited} of run {run_id} (now {run.status})", timeout or 0)
            entry = self._next_entry(run.thread_id, entry, left)

    def _is_settled(self, run: Run) -> bool:
        if run.status not in ("parked", "queued"):
            return run.ended
        return self._door.store.actions.asks_in(run.id) == run.status

    def _next_entry(self, thread_id: str, entry: str, seconds: float) -> str:
        """Wait up to `seconds` until something more is recorded on a thread; returns the entry to go on from."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                entries = self._door.events.read(thread_id, entry, max(1, int(left * 1000)))
            except StoreUnavailableError:
                # Without Redis nothing tells us; looking again now and then still does.
                time.sleep(left)
                return entry
            if not entries:
                return entry
            entry = entries[-1].id
            if not all(isinstance(event, DeltaEvent | AttemptDiscarded) for each in entries for event in each.events):
                return entry
        return entry

    def stream(self, thread_id: str, after: str | None = None, *, timeout: float | None = None) -> Iterator[Event]:
        """What happens on a thread, from its beginning or after the event of id `after`, and as it goes on.

        Ends after `timeout` seconds, `None` means never; with 0 it gives what is recorded. An
        agent's deltas come only if it is told to `stream`. Who is cut off joins again with the id
        of the last event. Raises `IllegalIdError`; with the first event, `NotFoundError` for a thread
        without runs and `StoreUnavailableError` if Postgres cannot be reached; without Redis it goes on, slower.
        """
        check_findable("thread", thread_id)
        arguments.check_timeout(timeout)
        if not isinstance(after, str | None):
            raise IllegalIdError("event id", after)
        cursor = Cursor() if after is None else Cursor.parse(after)
        return Viewer(self._door.store, self._door.events, thread_id, cursor).read(timeout)

    def follow(self, run_id: str, *, timeout: float | None = None) -> Iterator[Event]:
        """`stream` of one run, from its first item until it has ended. Raises `NotFoundError`."""
        arguments.check_timeout(timeout)
        thread_id, begins, _ = self._extent(run_id)
        return self._until_end(run_id, self.stream(thread_id, str(begins), timeout=timeout))

    def _until_end(self, run_id: str, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            # What is asked below is told of the run in front alone, which is this one until it has ended.
            if event.run_id == run_id or isinstance(event, NestedEvent):
                yield event
                # A run that failed may have been retried: then there is more after this end.
                is_end = isinstance(event, EndEvent) and event.reason != "parked"
                if is_end and Cursor.parse(event.id).place == self._extent(run_id).last:
                    return

    def _extent(self, run_id: str) -> Extent:
        check_findable("run", run_id)
        extent = self._door.store.streams.extent(run_id)
        if extent is None:
            raise NotFoundError("run", run_id)
        return extent

    def cancel_run(self, run_id: str, reason: str | None = None, *, identity: str | None = None) -> Run:
        """Cancel a run, all that it waits for and all that was started under it; one that has ended stays as it is.

        `identity` is who cancels it, else the client's own. Raises `NotFoundError`.
        """
        check_findable("run", run_id)
        if identity is not None:
            arguments.check_identity(identity)
        reason = arguments.text_or_none("reason", reason)
        cancelled = cancel(self._door, run_id, reason=reason, by=identity or self._identity)
        if cancelled is None:
            raise NotFoundError("run", run_id)
        return cancelled.run

    def retry(self, run_id: str, *, limits: Limits | None = None) -> Run:
        """Let a failed run go on after a fix, where it was: nothing that it has recorded is done again.

        For failures that lie outside the run: code that no longer fitted it, a limit (give new
        `limits`, or raise the agent's), a model that could not be asked, a body that killed its
        workers. Answers that were accepted are used; waits that were closed with the run are open again,
        with the deadlines that they had. Raises `NotFoundError`, `NotRetryableError`, and `ThreadBusyError`
        if another run of the thread has not ended.
        """
        check_findable("run", run_id)
        arguments.check_limits(limits)
        return retry(self._door, run_id, by=self._identity, limits=limits)

    # --- deploys -----------------------------------------------------------------------------

    def check(self, run_id: str) -> Check:
        """Replay the log of a run against the code of this client's app; nothing runs and nothing is changed.

        Raises `NotFoundError`, and `ConfigurationError` if the client has no app.
        """
        blocks = self._own_app().blocks
        check_findable("run", run_id)
        log = self._door.store.histories.of_run(run_id)
        if log is None:
            raise NotFoundError("run", run_id)
        return check(log, blocks)

    def check_all(self) -> Iterator[Check]:
        """`check` every run that has not ended, a page at a time. Raises `ConfigurationError`."""
        blocks = self._own_app().blocks
        return (check(log, blocks) for log in self._door.store.histories.unfinished())

    def _own_app(self) -> App:
        if self._app is None:
            raise ConfigurationError("ADJOURN_APP", "names no app, and a log is checked against code", "name yours")
        return self._app

    # --- threads -----------------------------------------------------------------------------

    def threads(self, limit: int = 100) -> Sequence[ThreadSummary]:
        """Threads with their last runs, newest first."""
        arguments.check_limit(limit)
        return self._door.store.threads.list(limit=limit)

    def snapshot(self, thread_id: str) -> Thread:
        """A thread as it is now: its conversation, its open turns, its runs and what they wait for.

        Its `pending` actions can be answered like those of `pending()`. Raises `NotFoundError`.
        """
        check_findable("thread", thread_id)
        seen = self._door.store.threads.look(thread_id)
        if not seen.runs:
            raise NotFoundError("thread", thread_id)
        return Thread(
            thread_id=thread_id,
            status=_thread_status(seen.runs),
            messages=conversation(seen.items),
            open_turns=open_turns(seen),
            pending=tuple(Action.of(each, self) for each in seen.pending),
            runs=seen.runs,
            usage_total=sum((run.usage for run in seen.runs), Usage()),
            turns_total=sum(run.turns for run in seen.runs),
        )

    def fork(
        self,
        thread_id: str,
        run_id: str | None = None,
        seq: int | None = None,
        *,
        new_thread_id: str | None = None,
    ) -> str:
        """Copy a conversation, up to item `seq` of run `run_id` and with it, to a new thread; returns its id.

        Without `seq` all that the run has recorded by now, without `run_id` all runs that have ended. The copies
        have ended and wait for nothing: a call that was open there is closed as one that was closed with its run,
        and the next `send` goes on from there. Their totals are zero, for what they took was spent on the old
        thread, which is not touched and may be running or parked.

        A `new_thread_id` of your own makes this idempotent: the same call again returns the fork that is there.
        Raises `NotFoundError` for a thread, run or item that is not there, `ForkRefusedError` if nothing of the
        thread has ended, `new_thread_id` is another thread or a `seq` comes without the run that it is of, and
        `IllegalIdError`.
        """
        check_findable("thread", thread_id)
        if run_id is not None:
            check_findable("run", run_id)
        if new_thread_id is not None:
            check_own_id("thread id", new_thread_id)
        arguments.check_seq(seq)
        return self._door.store.threads.fork(thread_id=thread_id, run_id=run_id, seq=seq, new_thread_id=new_thread_id)

    # --- actions -----------------------------------------------------------------------------

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
        check: bool = True,
    ) -> Receipt:
        """Answer an action with `data`: a JSON value, or a model or other value that has a JSON form.

        `reason` is kept beside it, and the tool can read it. The same `answer_id` with the same data and reason is
        taken once, however often it is sent. `name`, if given, must be the action's. The answer is from `identity`,
        or from whom the `credential` proves, else from the client's own identity; give one of them. Raises
        `AnswerRefusedError` if the answer was not taken; with `check=False` the receipt says so instead.

        Where only a worker can validate the answer (see `PendingAction.schema_decides`) and none has in
        `Tuning.verdict_seconds`, the receipt is `kept`: the answer is not lost, and not accepted yet.
        """
        return self._send(
            check,
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
        check: bool = True,
    ) -> Receipt:
        """Decline an action: its tool is told no, with the `reason` and with `data`, a JSON value, if there is any.

        `answer_id`, `identity` and `credential` are as for `submit`. Raises `AnswerRefusedError` unless `check=False`.
        """
        said: dict[str, Any] = {"reason": reason, "answer_id": answer_id, "credential": credential}
        if data is not None:
            said["data"] = given_json(data, "the answer", AnswerPayloadError)
        return self._send(check, identity=identity, action_id=action_id, kind="cancel", **said)

    def fail(
        self,
        action_id: str,
        *,
        message: str | BaseException,
        answer_id: str | None = None,
        identity: str | None = None,
        credential: str | None = None,
        check: bool = True,
    ) -> Receipt:
        """Say that an action cannot be answered, and why: in a text, or by the exception that says it.

        `answer_id`, `identity` and `credential` are as for `submit`. Raises `AnswerRefusedError` unless `check=False`.
        """
        said: dict[str, Any] = {"answer_id": answer_id, "credential": credential}
        return self._send(
            check, identity=identity, action_id=action_id, kind="fail", message=failure_text(message), **said
        )

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

    def _send(self, check: bool, *, identity: str | None = None, **fields: Any) -> Receipt:
        if identity is not None:
            arguments.check_identity(identity)
            if fields.get("credential") is not None:
                raise IllegalArgumentError("identity", identity, "give it or a credential, which names its own")
        receipt = self._judged(fields, self._identity if identity is None else identity)
        if check and not receipt.ok:
            raise refused(receipt, fields["action_id"])
        return receipt

    def _judged(self, fields: dict[str, Any], identity: str | None) -> Receipt:
        try:
            answer = Answer.model_validate(fields, strict=True)  # as on the wire
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            issues = tuple(Issue(path=pointer(each["loc"]), message=each["msg"]) for each in found)
            return Receipt(status="malformed", detail=f"{issues[0].path}: {issues[0].message}", issues=issues)
        return submit_answer(self._door, answer, channel=CHANNEL, answered_by=identity, wait=True)


def refused(receipt: Receipt, action_id: object) -> AnswerRefusedError:
    """The error that a receipt stands for."""
    issues = [ValidationIssue(issue.path, issue.message) for issue in receipt.issues]
    return AnswerRefusedError(action_id, receipt.status, receipt.detail, issues)


def _thread_status(all_runs: Sequence[Run]) -> ThreadStatus:
    """Of the run that is at work or parked; runs behind it wait for it."""
    statuses = {run.status for run in all_runs}
    active_agents: tuple[Literal["running", "parked", "queued"], ...] = ("running", "parked", "queued")
    return next((status for status in active_agents if status in statuses), "idle")
