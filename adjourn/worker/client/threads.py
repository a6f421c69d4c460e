"""What a client does with threads: list and fork them, and check their runs against an app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from adjourn.schemas.errors import (
    ConfigurationError,
    NotFoundError,
)
from adjourn.schemas.internal.checks import Check
from adjourn.schemas.records.ids import check_findable, check_own_id
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import Run
from adjourn.schemas.records.threads import ThreadStatus
from adjourn.store.results import ThreadSummary
from adjourn.tasks.blocks.app import App
from adjourn.tasks.engine.conversation import conversation
from adjourn.tasks.engine.open_turns import open_turns
from adjourn.tasks.engine.preflight import check
from adjourn.worker.client import arguments
from adjourn.worker.client.actions import Action, ThreadState
from adjourn.worker.client.answers import AnswerCalls


class ThreadCalls(AnswerCalls):
    """Threads of one deployment. The actions that they show can be answered."""

    def threads(self, limit: int = 100) -> Sequence[ThreadSummary]:
        """Threads with their last runs, newest first."""
        arguments.check_limit(limit)
        return self._door.store.threads.list(limit=limit)

    def _state(self, thread_id: str) -> ThreadState:
        """Read all of a thread, in one statement. Raises `NotFoundError`."""
        check_findable("thread", thread_id)
        seen = self._door.store.threads.look(thread_id)
        if not seen.runs:
            raise NotFoundError("thread", thread_id)
        return ThreadState(
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
        and the next message continues from there. Their totals are zero, for what they took was spent on the old
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


def _thread_status(all_runs: Sequence[Run]) -> ThreadStatus:
    """Of the run that is at work or parked; runs behind it wait for it."""
    statuses = {run.status for run in all_runs}
    active_agents: tuple[Literal["running", "parked", "queued"], ...] = ("running", "parked", "queued")
    return next((status for status in active_agents if status in statuses), "idle")
