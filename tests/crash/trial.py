"""One trial: a scenario played against real processes, one of which is stopped at one point.

The driver plays client, publisher and operator: it starts the runs, publishes the answers, starts a
new worker whenever one has died, and gathers the facts at the end. What it waits for must come.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from adjourn import Client, Limits
from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, AnswerKind, Receipt
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import SuspensionItem
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.answers.answering import receive_answer
from tests.crash import ledger
from tests.crash.checker import Facts, RunFacts, Sent
from tests.crash.forkserver import ForkedProcess
from tests.crash.lanes import AN_HOUR
from tests.crash.programs import JUDGED, QUIET
from tests.crash.publisher import Letter
from tests.crash.workers import StalledError, Workers

T = TypeVar("T")

RECEIPT_SECONDS: Final = 0.3
"""How long a receipt may take once nobody has the answer any more: a crash may have kept it from being sent."""


class Trial(Workers):
    """The processes of one trial, and the steps that scenarios are made of. Each step returns when it is done."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.republished = 0
        self._expected: dict[str, str] = {}
        self._refused = 0
        self._told: list[Sent] = []

    # --- steps: clients ----------------------------------------------------------------------

    def start(
        self,
        agent: str,
        *,
        ends: str = "completed",
        thread_id: str | None = None,
        enqueue: bool = False,
        wakeup: bool = True,
    ) -> str:
        """Start a run, whose message is its own id; without its wake-up, as if the client had died before that."""
        run_id, thread_id = new_run_id(), thread_id or new_thread_id()
        self._expected[run_id] = ends
        if wakeup:
            when_busy = "enqueue" if enqueue else "refuse"
            self.lane.client.start(agent, run_id, run_id=run_id, thread_id=thread_id, when_busy=when_busy)  # type: ignore[arg-type]
        else:
            runs.start(
                self.lane.db,
                run_id=run_id,
                thread_id=thread_id,
                agent=agent,
                text=run_id,
                limits=Limits(),
                enqueue=False,
            )
        return run_id

    def retry(self, run_id: str) -> None:
        """Let a failed run go on. Its wake-up is given again as soon as the policy of the trial says."""
        with Client(self._settings) as client:
            client.retry(run_id)

    def expect(self, *, ends: str = "completed") -> str:
        """The id of a run that a client under trial is going to start."""
        run_id = new_run_id()
        self._expected[run_id] = ends
        return run_id

    def client(self, method: str, *, done: Callable[[], bool] = lambda: False, **args: Any) -> None:
        """Have a client of its own process do something, and do it again if that process was killed.

        Not if that is `done`: some things are refused when they are done again. Raises `StalledError` if it ends
        in any other way: that it would do again and again.
        """
        plan = self._plan
        while True:
            request = {**self._args, "plan": plan.model_dump(mode="json"), "method": method, "args": args}
            process: ForkedProcess = self._server.start("client", request)
            self.until(partial(_has_ended, process), f"the end of a client's {method}")
            if process.returncode == 0:
                return
            if process.returncode != -signal.SIGKILL:
                raise StalledError(f"a client's {method}, which ended with {process.returncode}")
            self._interruptions += 1
            if done():
                return
            plan = self._healer[0]

    def submit_by_client(self, action_id: str) -> None:
        """Have a client of its own process answer. It ends well only if it was told that it is the answer."""
        value = {"value": f"{action_id} by a client"}
        self.client("submit", action_id=action_id, data=value, answer_id="first")
        self._told.append(Sent(action_id, "first", "submit", value, (Receipt(status="accepted"),)))

    def answer(
        self,
        action_id: str,
        kind: AnswerKind = "submit",
        *,
        value: Any = None,
        answer_id: str = "first",
        wanted: bool = True,
    ) -> None:
        """Publish an answer and wait for its receipt. `wanted` is false of one that has to be refused."""
        letter = self.send(action_id, kind, value=value, answer_id=answer_id)
        self._refused += not wanted
        self.receipts(letter)
        if not wanted and any(receipt.ok for receipt in letter.receipts):
            self.faults.append(f"an answer of {action_id} had to be refused, and was not")

    def send(
        self, action_id: str, kind: AnswerKind = "submit", *, value: Any = None, answer_id: str = "first"
    ) -> Letter:
        """Publish an answer, and wait for nothing."""
        letter = Letter(action_id, answer_id, kind, value or {"value": f"{action_id} {answer_id}"})
        self.lane.publisher.publish(letter)
        return letter

    def receipts(self, letter: Letter) -> list[Receipt]:
        """Wait for the receipt of an answer, and publish it again if a crash has lost that."""
        while not letter.receipts:
            self.until(lambda: letter.receipts or self._unheard(letter), "a receipt")
            if not letter.receipts:
                if not self._arrived(letter):
                    self.faults.append(f"an answer left the queue and was never judged (action {letter.action_id})")
                self.republished += 1
                self.lane.publisher.publish(letter)
        return letter.receipts

    def refused(self, count: int) -> None:
        """Expect so many more answers to be refused."""
        self._refused += count

    def keep(
        self,
        action_id: str,
        *,
        value: Any = None,
        answer_id: str = "first",
        awaited: bool = False,
        notify: bool = True,
        wanted: bool = True,
    ) -> None:
        """Send an answer by a process without the app, which keeps it for a worker, and look for no receipt.

        `awaited` has the receipt kept. Without `notify` it is as if the process had died before it told the readers.
        """
        value = value or {"value": f"{action_id} {answer_id}"}
        answer = Answer(action_id=action_id, answer_id=answer_id, data=value)
        receipt = receive_answer(self.lane.door(notify=notify), answer, channel="crash", wait=awaited)
        if receipt.status not in ("kept", "accepted"):
            self.faults.append(f"an answer of {action_id} had to be kept, and is {receipt.status}")
        if wanted:
            self._told.append(Sent(action_id, answer_id, "submit", value, (Receipt(status="accepted"),)))
        self._refused += not wanted

    def _unheard(self, letter: Letter) -> bool:
        """For a while now nobody has had this answer any more, and no receipt came."""
        if self.lane.answers() or not self._hears(JUDGED):
            letter.heard_at = time.monotonic()
        # It may have been judged while a new worker was waited for, and nobody looked for receipts.
        self.lane.publisher.collect()
        return not letter.receipts and time.monotonic() > letter.heard_at + RECEIPT_SECONDS

    def _arrived(self, letter: Letter) -> bool:
        try:
            state = actions.get(self.lane.db, letter.action_id)
        except DamagedRecordError:
            return True  # it was refused for that, and leaves no trace at its action
        if state is not None and state.action.status != "pending":
            return True
        return self.lane.kept() > 0

    # --- steps: looking ------------------------------------------------------------------------

    def parked(self, run_id: str, waits: int = 1) -> list[PendingAction]:
        """Wait until the run has parked on so many actions and nobody does anything; return them."""
        self.until(
            lambda: self.run(run_id).status == "parked" and len(self.pending(run_id)) == waits,
            f"the run to park on {waits} waits",
        )
        self.settled()
        return self.pending(run_id)

    def paused(self, run_id: str) -> bool:
        """Wait until a model of the run is left alone and nobody does anything, or the run has ended; whether it is.

        It has ended where a worker died and so much time went by that the pause was over.
        """
        self.until(
            lambda: self.lane.is_paused(run_id) or self.run(run_id).ended,
            "a pause after a model that could not be asked",
        )
        self.settled()
        return not self.run(run_id).ended

    def children(self, run_id: str, count: int = 1, *, ends: str = "completed") -> list[str]:
        """Wait until so many runs were started by this one; return their ids, by their messages."""
        found = self.until(
            lambda: found if len(found := self.lane.children(run_id)) == count else [], f"{count} children"
        )
        self._expected.update(dict.fromkeys(found, ends))
        return found

    def asking(self, run_id: str) -> PendingAction:
        """Wait until the run has asked something, parked or not, and everybody may know."""
        (action,) = self.until(lambda: self.pending(run_id), "an open action")
        self.until(lambda: self.lane.is_indexed(action.id) or self._workers[-1].sweeps, "its parking record")
        return action

    def reserved(self, run_id: str) -> str:
        """Wait until a tool has handed out the id of its next wait; return it."""
        values = self.until(
            lambda: [row.value for row in self.rows() if (row.run_id, row.kind) == (run_id, "reserved")],
            "an id that is handed out",
        )
        return str(values[0])

    def ended_or_asking(self, run_id: str) -> bool:
        """Wait until the run has ended or asks something; whether it asks."""
        self.until(lambda: self.run(run_id).ended or self.pending(run_id), "an end or a question")
        return not self.run(run_id).ended

    def working(self, run_id: str, tool: str) -> None:
        """Wait until the body of a tool has begun."""
        self.until(
            lambda: any((row.run_id, row.kind, row.name) == (run_id, "body", tool) for row in self.rows()),
            f"the body of {tool}",
        )

    def ended(self, *run_ids: str) -> None:
        for run_id in run_ids:
            self.until(partial(self._has_ended, run_id), "the end of the run")

    def passed(self, what: str) -> None:
        """Wait until the worker under trial has come by this point, or there is no such worker any more."""
        self.until(lambda: what in self._trace() or self._workers[-1].sweeps, f"point {what}")

    def replaced(self) -> None:
        """Wait until the worker under trial has ended and another one is there."""
        self.until(lambda: self._workers[-1].sweeps, "the end of the worker")

    def settled(self) -> None:
        """Wait until every message is taken and settled, and the worker does nothing."""
        self.until(
            lambda: not self.lane.waiting() and not self.lane.unsettled() and self._hears(QUIET),
            "the queues to be empty",
        )

    # --- steps: what happens to the deployment --------------------------------------------------

    def signal(self, run_id: str) -> None:
        """Let the waiting tool of a run go on."""
        ledger.signal(self.lane.sql, run_id)

    def sweep(self) -> None:
        """Have the worker sweep once, unless it does so by itself."""
        self._sweep_once(self._workers[-1])
        self.settled()

    def terminate(self) -> None:
        """Ask the worker to stop, as a deployment does."""
        self._workers[-1].process.terminate()

    # --- the end -------------------------------------------------------------------------------

    def finish(self) -> Facts:
        """Wait until everything has ended, let a frozen worker go on, and gather the facts."""
        self.ended(*self._expected)
        self.settled()
        # Whoever was at an early answer may have died after it was judged and before it was let go of.
        self.until(lambda: not self.lane.kept(), "a sweep that lets go of early answers")
        self.until(lambda: not self.lane.untold(), "a sweep that notifies the parents and children of runs that ended")
        before = self._recorded()
        for worker in self._frozen:
            worker.process.send_signal(signal.SIGCONT)
            count = worker.said(QUIET)
            worker.say(QUIET)
            self._await_word(worker, QUIET, count + 1)
        if self._frozen:
            self.settled()
            if self._recorded() != before:
                self.faults.append("a worker that was continued after its lease changed what is recorded")
        return self.facts()

    def facts(self, stalled: str = "") -> Facts:
        """What is known now."""
        self.lane.publisher.collect()
        left = {**self.lane.waiting(), **self.lane.unsettled(), "early answers": self.lane.kept()}
        left["dead letters"] = self.lane.refused() - self._refused
        return Facts(
            runs=self._recorded(),
            ledger=tuple(self.rows()),
            sent=tuple(
                Sent(letter.action_id, letter.answer_id, letter.kind, letter.value, tuple(letter.receipts))
                for letter in self.lane.publisher.letters
            )
            + tuple(self._told),
            expected=dict(self._expected),
            interruptions=self._interruptions + self._struck_elsewhere(),
            stalled=stalled,
            frozen=bool(self._frozen),
            left={what: count for what, count in left.items() if count > 0},
        )

    def _recorded(self) -> tuple[RunFacts, ...]:
        return tuple(self._facts_of(run_id) for run_id in self._expected if runs.get(self.lane.db, run_id))

    def _facts_of(self, run_id: str) -> RunFacts:
        items = runs.items(self.lane.db, run_id)
        opened = [item.body.action_id for item in items if isinstance(item.body, SuspensionItem)]
        states = (actions.get(self.lane.db, action_id) for action_id in dict.fromkeys(opened))
        return RunFacts(self.run(run_id), items, tuple(state for state in states if state is not None))

    def _has_ended(self, run_id: str) -> bool:
        return self.run(run_id).ended

    def run(self, run_id: str) -> Run:
        run = runs.get(self.lane.db, run_id)
        assert run is not None, f"run {run_id} is not there"
        return run

    def pending(self, run_id: str) -> list[PendingAction]:
        return actions.pending(self.lane.db, run_id=run_id)

    def rows(self) -> list[ledger.Row]:
        return ledger.read(self.lane.sql)

    def _trace(self) -> str:
        return self._plan.trace.read_text() if self._plan.trace.exists() else ""


def _has_ended(process: ForkedProcess) -> bool:
    return process.poll() is not None


LATE: Final = 2 * 24 * AN_HOUR
"""Past every deadline of the scenarios."""
