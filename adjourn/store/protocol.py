"""What the rest of Adjourn asks of a store: one protocol for each capability, and `Store`, which has them all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.internal.state import Answered, Claim, Started, Write, Written
from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.answers import Issue
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import Item, ReopeningItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import Run, RunStatus, WakeUp
from adjourn.store.results import (
    ArchivedThread,
    Cancelled,
    DeadLetter,
    EarlyAnswer,
    Extent,
    LostWaits,
    Notified,
    Overdue,
    Retried,
    RunHistory,
    RunPage,
    Seen,
    ThreadSummary,
)


class Runs(Protocol):
    """Runs: how they start, what is read of them, and how they are ended from outside."""

    def start(
        self,
        *,
        run_id: str,
        thread_id: str,
        agent: str,
        text: str,
        data: Any = None,
        limits: Limits | None,
        enqueue: bool,
        any_thread: bool = False,
    ) -> Started:
        """Start a run on a thread, which is made if it is new. A run id that is there already starts nothing.

        Raises `RunIdClashError` if another request has started the run of this id; with `any_thread` it may have
        named another thread. Raises `ThreadBusyError` if another run of the thread has not ended; with `enqueue` the
        run waits behind it instead (`due` is false). `data` is the input, where it is more than `text`.
        """

    def get(self, run_id: str) -> Run | None:
        """A run; `None` if there is none of this id."""

    def items(self, run_id: str, after_seq: int = 0) -> tuple[Item, ...]:
        """The items of a run by seq, those after `after_seq` only."""

    def items_to_show(self, run_id: str) -> tuple[Item, ...]:
        """The items of a run by seq, those of resolutions with what was answered."""

    def cancel(self, run_id: str, *, reason: str | None, by: str | None) -> Cancelled | None:
        """End a run as cancelled, with what it waits for. `None`: there is no such run.

        A run that has ended stays as it is (`changed` is false).
        """

    def close_orphan(self, run_id: str, revision: int) -> Cancelled | None:
        """`cancel` a child whose parent has ended, unless its counter has moved on from `revision`.

        Its record says that nobody wanted it cancelled (`orphaned`), and so a retry of its root revives it.
        """

    def fail_damaged(self, error: DamagedRecordError) -> Cancelled | None:
        """Fail a run of which a row is damaged, whoever holds it. Nothing of it is parsed.

        `None`: there is no such run.

        A run that has ended stays as it is (`changed` is false).
        """

    def record_death(self, run_id: str) -> Sequence[WakeUp]:
        """The process made for this run died: the run is due again, or fails as poison if it died too often.

        Returns the wake-ups to publish. Does nothing if the run is not held by such a process.
        """

    def record_refusal(self, run_id: str, token: str, problem: str) -> Sequence[WakeUp]:
        """Postgres refused what the holder of this run had to store: the run is due again later, or fails.

        Counts as a death does. Raises `StoreUnavailableError`, with nothing counted, if Postgres takes
        this no more than that: then it is out of order, and it was not the run. Returns the wake-ups to
        publish; does nothing if the claim was lost.
        """

    def list(
        self, *, thread_id: str | None = None, status: RunStatus | None = None, limit: int = 100
    ) -> tuple[Run, ...]:
        """Runs, newest first."""


class Claims(Protocol):
    """Claims: who may write a run, and every durable step that is written under one."""

    def claim(self, run_id: str, *, suspect: bool, token: str, place: int | None = None) -> Claim | None:
        """Take a run that is due, under `token`, and load it. `None`: it is not due, or not for us (drop the wake-up).

        `suspect` says whether the caller is a process made for one run: it takes the runs that
        killed their worker, and no others. `place` is the caller's among the builds, if it has registered as one.

        Raises `DamagedRecordError` if a row of the run cannot be read. The run is claimed then, and has to be failed.
        """

    def reload(self, claim: Claim) -> Claim:
        """Load the run of a claim again. Raises `StaleClaimError` when the claim is lost, and `DamagedRecordError`."""

    def renew(self, held: Sequence[tuple[str, str]]) -> set[str]:
        """Renew the leases of (run id, token) pairs. Returns the ids of the runs that are still held."""

    def put_back(self, held: Sequence[tuple[str, str]]) -> list[WakeUp]:
        """Give claims back, for a worker that stops: the runs are due at once and no death is counted."""

    def write(self, run_id: str, token: str, seen_revision: int, write: Write) -> Written:
        """Do one durable step of a run, all of it or nothing.

        Park only happens if `seen_revision`, of the `Claim` last loaded, is still the run's counter;
        else the status comes back as `running`, the claim is kept, and the rest of the write is
        there. A run that was to be due after a pause is due at once then. `Written.revision` is for
        information: only a load may tell what was seen.

        Raises `StaleClaimError` if `token` no longer holds the run (nothing was written), and
        `StoreUnavailableError` if it is not known whether it was.
        """

    def reopen(self, run_id: str, token: str, note: str, item: ReopeningItem) -> ThreadPosition:
        """Open the wait of `item` again, under the same id; `note` tells the person why.

        Returns the place of the last item. Raises `StaleClaimError`, also for a wait of another run; then nothing has
        changed.
        """

    def leave(self, run_id: str, token: str, place: int) -> WakeUp | None:
        """Give a claim back for the live builds that are newer than the one at `place`.

        Counts no death, records nothing.

        Returns the wake-up to publish. `None`: no live build is newer, or the claim was lost; nothing has changed.
        """


class Children(Protocol):
    """Children: how the end of a run reaches its parent and the runs that it has started."""

    def notify_parent(self, run_id: str) -> Notified | None:
        """Tell the parent of a run that has ended, and count for it what the run has used, once.

        None if nobody waits for it, or was told before.
        """

    def orphans(self, run_id: str, limit: int) -> list[tuple[str, int]]:
        """Children of a run that nothing waits for, and that live or are unpropagated, each with its `revision`."""

    def seq_of(self, run_id: str) -> int | None:
        """How much is recorded of a run of which somebody has to be told; None if nobody has."""

    def mark_propagated(self, run_id: str, seq: int) -> None:
        """Note that everybody was told of the end of this run, if it still has the `seq` that it had before."""

    def unpropagated(self, limit: int) -> list[str]:
        """Runs that ended so long ago, or by a death, and whose parent or children have yet to be told."""


class Builds(Protocol):
    """Builds: which versions of the user's code are live, and what each may take."""

    def register(self, build_id: str) -> int:
        """A process of this build comes up. Returns the build's place, by which `claim` tells which runs are for it."""

    def renew(self, build_id: str, place: int) -> int:
        """A process of this build is still up. Returns the build's place, which is another if it was deployed again."""

    def is_outdated(self, place: int) -> bool:
        """Whether a live build is newer than the one at `place`."""

    def may_take(self, run_id: str, place: int | None, *, suspect: bool = False) -> bool:
        """Whether a run is queued, and not left by the build at `place` to newer ones.

        With `suspect`: queued for a process of its own. A wake-up says nothing of that: anybody can write one.
        """

    def left(self, limit: int) -> list[WakeUp]:
        """Wake-ups of runs that some live builds left to others, to be published again."""


class Recovery(Protocol):
    """Recovery: what the sweep finds that nobody else has seen to."""

    def unsent(self, limit: int) -> list[WakeUp]:
        """Wake-ups of runs that are due and were not claimed in time, to be published again."""

    def abandoned(self, limit: int) -> list[WakeUp]:
        """Take runs from workers whose leases ran out. Returns the wake-ups to publish.

        A run that has died more than `suspect_deaths` times fails with `PoisonedRunError` instead.
        """

    def overdue(self, limit: int) -> Overdue:
        """Expire actions past their deadline. A run that cannot record it does not keep the others from theirs."""

    def lost_waits(self, after: str, limit: int) -> LostWaits:
        """Search a page of the active runs for parked ones that nothing can wake, because a row of them is lost.

        The page begins after the thread `after`. Runs that wait for nothing are due again, so that whoever loads
        them names the row; those whose child does not exist are named here.
        """

    def make_all_due(self) -> None:
        """Let `unsent` find every run that is due, after Redis has lost its wake-ups."""


class Actions(Protocol):
    """Actions: the waits of runs, and the one answer that each takes."""

    def answer(
        self,
        *,
        action_id: str,
        status: Literal["submitted", "cancelled", "failed"],
        resume: str | None,
        reason: str | None,
        message: str | None,
        answer_id: str,
        digest: str,
        answered_by: str | None,
        channel: str | None = None,
        fits: bool = True,
        received_at: datetime | None = None,
    ) -> Answered:
        """Make this the answer of an action, if it is the first and in time.

        `resume` is JSON text: the data of the answer, whatever its kind. Nothing is judged here but order and time: the
        data has to have been validated, and `fits` says what came of that; one that does not is never taken, and
        `waiting` for an action that goes on waiting. `received_at` is when the answer came in, if that was before now.
        An answer past the deadline is `late` and expires the action there and then, which may wake the run as an answer
        does; so is an answer past a deadline that decides for another wait of the same `ask_any`, which expires that
        one. It expires nothing while an answer that came in time is yet to be validated: the action is `pending` then.
        The same `answer_id` with the same `digest` as the answer that won is `duplicate`. Raises `DamagedRecordError`
        for an action whose run does not exist, or cannot record the answer.
        """

    def get(self, action_id: str) -> ActionState | None:
        """An action and how it ended; `None` if there is none of this id. Raises `DamagedRecordError`."""

    def find_by_request_id(self, request_id: str) -> list[str]:
        """Ids of pending actions for which their tools chose this id; two of them mean that it is ambiguous."""

    def last_by_request_id(self, request_id: str) -> str | None:
        """Id of the newest action for which its tool chose this id, ended or not; `None` if there is none."""

    def newest_by_request_id(self, request_id: str) -> str | None:
        """Id of the newest action for which its tool chose this id, one that is open before all that have ended."""

    def answered_by_request_id(self, request_id: str, answer_id: str, digest: str) -> str | None:
        """Id of the action of this request id that this very answer has resolved; `None` if there is none."""

    def pending(self, thread_id: str | None = None, run_id: str | None = None, limit: int = 100) -> list[PendingAction]:
        """Pending actions of a run or a thread, with those of the runs that were started under it, or of all.

        Oldest first. What a run waits for a child for is nobody's to answer, and not among them.
        """

    def pending_after(self, after: PendingAction | None, limit: int) -> list[PendingAction]:
        """All pending actions, oldest first, page by page: those after the last one of the page before."""

    def asks_in(self, run_id: str) -> RunStatus | None:
        """The status of a run that rests while it, or one below that it waits for, waits for somebody's answer."""


class EarlyAnswers(Protocol):
    """Answers that came before their action was open, or that only a worker can validate."""

    def keep(
        self, *, action_id: str, body: str, answered_by: str | None, channel: str | None = None, awaited: bool = False
    ) -> int | None:
        """Keep an answer that cannot be judged here and now; returns its number. None: there are too many already.

        `body` is what the answer said, without its credential; `answered_by` who it was found to be from. With
        `awaited` the receipt is kept, too, when it is judged: see `conclude`.
        """

    def of_action(self, action_id: str) -> tuple[EarlyAnswer, ...]:
        """What was kept for an action, in the order in which it came. `drop` each once it was applied."""

    def for_open_actions(self, limit: int, after: int = 0) -> tuple[EarlyAnswer, ...]:
        """Kept answers whose action has opened, but which nobody has applied: the sweep does. Those behind `after`."""

    def drop(self, ids: Sequence[int]) -> None:
        """Forget answers that were applied."""

    def conclude(self, id: int, receipt: str) -> None:
        """Put the receipt in the place of an answer that was applied, for the sender that waits for it."""

    def receipt(self, id: int) -> str | None:
        """What came of an awaited answer, as it was given to `conclude`; `None` if it has not been judged yet."""

    def prune(self) -> int:
        """Forget answers whose action never opened, and receipts that nobody has read. Returns how many."""


class Retries(Protocol):
    """Retries: failed runs that continue where they were."""

    def retry(
        self,
        run_id: str,
        *,
        types: Collection[str],
        types_anew: Collection[str] = (),
        by: str | None,
        limits: Limits | None = None,
    ) -> Retried:
        """Make a run due again that failed with an error of one of `types`; `limits` take the place of its own.

        Children that failed with one of `types` are revived with it, but for `types_anew`: those are started anew.

        Raises `NotFoundError`, `ChildRunError`, `NotRetryableError` for a run that has not failed, or with another
        error, and `ThreadBusyError` if another run of its thread, or of a child's, has not ended.
        """


class Threads(Protocol):
    """Threads: what is read of a conversation, and how one is forked."""

    def snapshot(self, thread_id: str) -> tuple[tuple[Run, ...], tuple[Item, ...], tuple[PendingAction, ...]]:
        """The runs of a thread, oldest first, all their items, and its pending actions; all empty if it is unknown."""

    def look(self, thread_id: str) -> Seen:
        """The runs of a thread, their items, and what they and the runs below wait for; all empty if it is unknown."""

    def fork(self, *, thread_id: str, run_id: str | None, seq: int | None, new_thread_id: str | None) -> str:
        """Copy a thread up to an item of a run, both included; returns the id of the copy.

        Without `seq` all that the run has recorded, and without `run_id` all runs that have ended. With the
        `new_thread_id` of a fork that the same arguments made before, that one stays as it has become since.

        Raises `NotFoundError` for a thread, run or item that is not there, and `ForkRefusedError`.
        """

    def list(self, limit: int = 100) -> tuple[ThreadSummary, ...]:
        """Threads, newest first."""


class Histories(Protocol):
    """Histories: a run with everything that is recorded of it."""

    def of_run(self, run_id: str) -> RunHistory | None:
        """The log of a run; `None` if there is none of this id."""

    def unfinished(self, page: int = 100) -> Iterator[RunHistory]:
        """The logs of all runs that have not ended, `page` at a time, each as it was when its page was read."""


class Streams(Protocol):
    """Streams: what a viewer reads of a thread, from a place on."""

    def read(self, thread_id: str, after: ThreadPosition) -> list[RunPage]:
        """The run of a place and those that follow it on the thread, as one snapshot saw them."""

    def below(self, run_id: str | None, told: Collection[str]) -> tuple[ActionState, ...]:
        """A page of what waits for an answer below a run and is not `told`, oldest first, and what of `told` has ended.

        Without a run only the latter.
        """

    def extent(self, run_id: str) -> Extent | None:
        """Where a run is to be found; `None` if there is no such run."""


class Archive(Protocol):
    """The archive: threads that have ended long ago, read out whole and deleted."""

    def old(self, days: float, limit: int, after: str | None = None) -> list[str]:
        """Ids of threads, in order, of which nothing has moved for so many days and nothing can."""

    def read(self, thread_id: str) -> ArchivedThread | None:
        """All that is recorded of a thread; None if there is no such."""

    def delete(self, thread: ArchivedThread) -> bool:
        """Take away a thread as it was read. False if anything started on it since; then it is all there."""


class DeadLetters(Protocol):
    """Messages that were refused, stored for people to read."""

    def add(
        self,
        *,
        channel: str,
        status: str,
        detail: str,
        body: bytes,
        action_id: str | None = None,
        issues: Sequence[Issue] = (),
    ) -> None:
        """Keep a refused message: the first `max_bytes` of it, and why it was refused."""

    def prune(self) -> int:
        """Forget the oldest, so that about `keep` remain. Returns how many went."""

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Refused messages, newest first."""


class RunStore(Protocol):
    """What it takes to drive runs and to answer them.

    Every method is one step: it is wholly done or not at all, whatever dies.

    All methods raise `StoreUnavailableError` if the store does not answer.
    """

    @property
    def runs(self) -> Runs: ...

    @property
    def claims(self) -> Claims: ...

    @property
    def children(self) -> Children: ...

    @property
    def builds(self) -> Builds: ...

    @property
    def recovery(self) -> Recovery: ...

    @property
    def actions(self) -> Actions: ...

    @property
    def early_answers(self) -> EarlyAnswers: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    def clock(self) -> datetime:
        """The time, by the one clock that all workers share."""

    def signing_key(self) -> bytes:
        """The key that action ids and credentials of this store are signed with."""

    def ping(self) -> None:
        """Return if the store answers."""

    def close(self) -> None:
        """Close its connections."""


class Store(RunStore, Protocol):
    """A store with all that people and viewers read of it, and what they change afterwards."""

    @property
    def retries(self) -> Retries: ...

    @property
    def threads(self) -> Threads: ...

    @property
    def histories(self) -> Histories: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def archive(self) -> Archive: ...


CAPABILITIES: Final = tuple(
    name for asked in (RunStore, Store) for name, value in vars(asked).items() if isinstance(value, property)
)
"""The names of the protocols that a store has."""
