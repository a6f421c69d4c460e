"""Drives one claimed run: does what the engine decides, records it, and asks the engine again.

One `drive` is one Celery task: it makes at most one model call. Every durable step is one
statement (`store.runs.write`), and the step that leaves nothing to do here also gives the claim
back (park, requeue or end), so that no crash can fall between the two.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from adjourn.schemas.actions import ActionState, NewAction, PendingAction
from adjourn.schemas.errors import (
    AdjournError,
    DriverFaultError,
    HistoryTooLargeError,
    ModelRequestError,
    RunError,
    StaleClaimError,
    StoreUnavailableError,
)
from adjourn.schemas.ids import new_action_id, new_claim_token
from adjourn.schemas.items import ITEM, EndItem, FaultItem, ItemBody, MemoItem, OutputItem, StartItem, SuspensionItem
from adjourn.schemas.limits import Limits
from adjourn.schemas.messages import ModelRequest, ModelResponse, Usage
from adjourn.schemas.runs import Hint
from adjourn.schemas.state import Claim, End, Park, Requeue, Write, Written
from adjourn.schemas.strict_json import clean_text
from adjourn.store import runs
from adjourn.tasks.answer import apply_early, submit_answer
from adjourn.tasks.body import Came, Output, Suspended, fitting, oversize, run_body, told, verify
from adjourn.tasks.calls import Lost, Ready, ask_operator, context_for, plan
from adjourn.tasks.conversation import conversation
from adjourn.tasks.engine import AskModel, Finish, OpenCall, RunCalls, View, Wait, decide, failed, recorded
from adjourn.tasks.leases import Lease
from adjourn.tasks.resolver import ask
from adjourn.tasks.services import Services
from adjourn.tasks.tools import Tool

log = logging.getLogger(__name__)

_SIDE_BY_SIDE: Final = 32
"""Calls of one turn that run at once. A model may ask for thousands; the others take their turn."""
_PROBLEM_CHARACTERS: Final = 4_000
"""Of what a model's code raises that the run keeps."""


def drive(services: Services, hint: Hint) -> None:
    """Take a run one turn further, if it is due.

    A hint for a run that is not due does nothing. What goes wrong inside the run ends the run,
    not this call, and so in the end does a statement that Postgres refuses again and again. Raises
    `StoreUnavailableError`; then the claim is given back when the outage is over, or its lease runs
    out and the sweep finds the run.
    """
    token = new_claim_token()
    claim = runs.claim(
        services.db,
        hint.run_id,
        suspect=hint.due == "suspect",
        token=token,
        lease_seconds=services.policy.lease_seconds,
    )
    if claim is None:
        return
    with services.leases.hold(hint.run_id, token) as lease:
        try:
            _drive(_Driver(services, claim, lease), hint.run_id)
        except StoreUnavailableError as error:
            if not (error.refused and _counted(services, lease, error)):
                raise


def _drive(driver: _Driver, run_id: str) -> None:
    try:
        driver.run()
    except StaleClaimError as error:
        log.info("claim lost", extra={"run_id": error.run_id})
    except StoreUnavailableError:
        raise
    except Exception as error:
        # A fault of ours. Left to itself the run would end as one that killed its workers.
        log.exception("a run could not be driven", extra={"run_id": run_id})
        driver.give_up(DriverFaultError(run_id, told(error)))


def _counted(services: Services, lease: Lease, error: StoreUnavailableError) -> bool:
    """Count what Postgres refused against the run, whose next try has to wait, and which fails in the end.

    False if Postgres does not take this either: it is out of order, and no run is to blame.
    """
    log.warning("what a run had to store was refused", extra={"run_id": lease.run_id, "error": error.problem})
    policy = services.policy
    try:
        hints = runs.record_refusal(
            services.db,
            lease.run_id,
            lease.token,
            clean_text(error.problem),
            suspect_deaths=policy.suspect_deaths,
            rehint_seconds=policy.rehint_seconds,
        )
    except StoreUnavailableError:
        return False
    for hint in hints:
        services.hints.publish(hint)
    return True


class _Driver:
    """One claim being driven. Its writes are made one at a time, from whichever thread a tool ends in."""

    def __init__(self, services: Services, claim: Claim, lease: Lease) -> None:
        self._services = services
        self._claim = claim
        self._lease = lease
        self._view = View.of(claim, Limits())
        self._history_bytes = claim.history_bytes
        self._lock = threading.RLock()
        self._asked = False
        self._running = 0
        self._broken: RunError | None = None
        self._tried: set[str] = set()
        self._released = False
        self._key = services.db.signing_key()

    def run(self) -> None:
        try:
            self._agent = self._services.app.agent(self._view.run.agent)
        except AdjournError as error:
            self._end(failed(error))
            return
        self._view = View.of(self._claim, self._agent.limits)
        while not self._released:
            step = decide(self._view)
            if isinstance(step, RunCalls):
                self._run_calls(step.calls)
            elif isinstance(step, AskModel) and not self._asked:
                self._ask_model()
            elif isinstance(step, Wait) and (action := self._resolvable(self._view)) is not None:
                self._resolve(action)
            else:
                self._commit()

    def give_up(self, error: RunError) -> None:
        """End the run, because it cannot be driven on."""
        try:
            self._end(failed(error))
        except StaleClaimError:
            log.info("claim lost", extra={"run_id": self._view.run.id})

    # --- the model -------------------------------------------------------------------------

    def _ask_model(self) -> None:
        self._asked = True
        limit = self._services.policy.max_history_bytes
        if self._history_bytes > limit:
            self._end(failed(HistoryTooLargeError(self._view.run.thread_id, self._history_bytes, limit)))
            return
        try:
            response = self._response()
        except ModelRequestError as error:
            self._try_later(error)
            return
        item = recorded(response)
        usage = response.usage.model_copy(update={"requests": 1})
        # Written before any tool runs. A crash before this commit: the model is asked again,
        # nothing was promised. A crash after it: the recorded calls run, the model is not asked.
        self._commit([item], usage=usage, turns=1, tool_calls=len(item.calls))

    def _try_later(self, error: ModelRequestError) -> None:
        """Queue the run again, for a while; a request that no later try can save fails the run at once."""
        policy, faults = self._services.policy, self._view.faults
        if not error.retryable or faults >= policy.model_retries:
            self._end(failed(error))
            return
        again = Requeue(delay_seconds=policy.model_retry_seconds * 2**faults)
        with self._lock:
            self._write([FaultItem(message=clean_text(str(error)))], (), again)

    def _response(self) -> ModelResponse:
        agent, view = self._agent, self._view
        model = self._services.app.model(agent)
        request = ModelRequest(
            instructions=agent.instructions,
            conversation=conversation(view.earlier + view.items),
            tools=tuple(tool.spec for tool in agent.tools),
            settings=agent.settings,
        )
        future: Future[ModelResponse] = self._services.loop.submit(model.request(request))
        with self._lease.interrupting(future.cancel):
            try:
                response = future.result()
                if not isinstance(response, ModelResponse):
                    raise TypeError(f"request() returns a ModelResponse, not {type(response).__name__}")
                return response
            except CancelledError:
                if self._lease.lost:
                    raise StaleClaimError(view.run.id) from None
                raise ModelRequestError(model.name, "the request was cancelled", retryable=True) from None
            except ModelRequestError:
                raise
            except BaseException as error:
                if not future.done():  # somebody wants to stop this thread: no word of the model's
                    raise
                raise ModelRequestError(model.name, told(error)[:_PROBLEM_CHARACTERS], retryable=False) from error

    # --- the tools -------------------------------------------------------------------------

    def _run_calls(self, calls: Sequence[OpenCall]) -> None:
        """Run calls side by side, those of exclusive tools one by one after the others."""
        together: list[Ready] = []
        alone: list[Ready] = []
        self._running = len(calls)
        for call in calls:
            try:
                planned = plan(call, self._agent, self._view)
            except RunError as error:
                self._break(error)
                continue
            if isinstance(planned, Output):
                self._close(call, planned)
            else:
                (alone if planned.tool.exclusive else together).append(planned)
        _side_by_side([partial(self._run_call, ready) for ready in together])
        for ready in alone:
            self._run_call(ready)
        if self._broken is not None and not self._released:
            self._end(failed(self._broken))

    def _run_call(self, ready: Ready) -> None:
        try:
            came = (self._recover(ready) if isinstance(ready, Lost) else None) or self._run_body(ready)
        except StaleClaimError:
            raise
        except RunError as error:
            self._break(error)
            return
        self._close(ready.call, came)

    def _run_body(self, ready: Ready) -> Came:
        if ready.tool.marks_start:
            # A crash before this commit: the body did not run. A crash between it and what the
            # body came to: nobody knows whether it did its work, and it does not just run again.
            with self._lock:
                self._write([StartItem(call_id=ready.call.call.id)], (), None)
        return run_body(
            ready.tool,
            lambda: context_for(ready, self._agent, self._view, self),
            loop=self._services.loop,
            lease=self._lease,
            timeout_seconds=self._timeout(ready.tool),
        )

    def _recover(self, lost: Lost) -> Came | None:
        """What became of a pass that died, or who is asked; None if the body may run again."""
        if lost.tool.verify is None:
            return ask_operator(lost, self._agent, self._view, self)
        ctx = context_for(lost, self._agent, self._view, self)
        timeout = self._timeout(lost.tool)
        return verify(lost.tool, ctx, loop=self._services.loop, lease=self._lease, timeout_seconds=timeout)

    def _timeout(self, tool: Tool[..., Any]) -> float | None:
        return tool.timeout.total_seconds() if tool.timeout else self._services.policy.tool_timeout_seconds

    def _close(self, call: OpenCall, came: Came) -> None:
        """Record what a call came to, at once."""
        tool = call.call.tool
        with self._lock:  # outputs that end together count against the history one after the other
            came = fitting(came, tool, self._services.policy, self._history_bytes)
            items: list[ItemBody] = []
            opened: tuple[NewAction, ...] = ()
            if isinstance(came, Suspended):
                opened = came.opened
                items += [SuspensionItem(call_id=call.call.id, action_id=a.id, name=a.name) for a in opened]
            else:
                items.append(OutputItem(call_id=call.call.id, tool=tool, outcome=came.outcome, content=came.content))
            # A crash before this commit: the body runs again. A crash after it: an output never
            # runs again, and a wait is open and can be answered, whatever its siblings do.
            self._commit(items, opened, finished_calls=1)

    def _break(self, error: RunError) -> None:
        """The run has to fail, once what runs beside has ended."""
        with self._lock:
            self._broken = self._broken or error
            self._running -= 1

    # --- resolvers ---------------------------------------------------------------------------

    def _resolvable(self, view: View) -> PendingAction | None:
        """An open wait that code of this process may answer and has not been asked about."""
        for state in view.actions:
            untried = state.resolution is None and state.action.id not in self._tried
            if untried and self._services.app.resolver(state.action.origin) is not None:
                return state.action
        return None

    def _resolve(self, action: PendingAction) -> None:
        """Ask the resolver. Its answer goes through the door; what it leaves open, others answer."""
        self._tried.add(action.id)
        resolver = self._services.app.resolver(action.origin)
        answer = ask(resolver, action, self._services.loop) if resolver else None
        if answer is not None:
            submit_answer(self._services, answer, channel="wait_for", answered_by="wait_for")
            with self._lock:
                self._reload()

    # --- Recorder, for contexts --------------------------------------------------------------

    def memo(self, call_id: str, key: str, value: Any) -> None:
        with self._lock:
            fault = oversize(f"the result of run_once({key!r})", value, self._services.policy, self._history_bytes)
            if fault is not None:
                raise fault
            self._write([MemoItem(call_id=call_id, key=key, value=value)], (), None)

    def new_action_id(self) -> str:
        return new_action_id(self._key)

    # --- writing -----------------------------------------------------------------------------

    def _end(self, end: End) -> None:
        with self._lock:
            self._write([], (), end)

    def _commit(
        self,
        items: Sequence[ItemBody] = (),
        opened: Sequence[NewAction] = (),
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
        finished_calls: int = 0,
    ) -> None:
        """Write a step, and give the claim back with it if it leaves nothing to do here."""
        with self._lock:
            self._running -= finished_calls
            becomes = None
            if self._running == 0 and self._broken is None:
                waits = _provisional(opened, self._view)
                after = self._view.with_(items, waits, usage=usage, turns=turns, tool_calls=tool_calls)
                becomes = self._becoming(after)
            self._write(items, opened, becomes, usage=usage, turns=turns, tool_calls=tool_calls)

    def _becoming(self, after: View) -> Park | Requeue | End | None:
        step = decide(after)
        if isinstance(step, Wait):
            return Park() if self._resolvable(after) is None else None
        if isinstance(step, Finish):
            return step.end
        return Requeue() if isinstance(step, AskModel) and self._asked else None

    def _write(
        self,
        items: Sequence[ItemBody],
        opened: Sequence[NewAction],
        becomes: Park | Requeue | End | None,
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
    ) -> None:
        if isinstance(becomes, End):
            items = [*items, EndItem(status=becomes.status, error=becomes.error)]
        write = Write(
            items=tuple(items),
            actions=tuple(opened),
            usage=usage,
            turns=turns,
            tool_calls=tool_calls,
            becomes=becomes,
        )
        run_id, services = self._view.run.id, self._services
        written = runs.write(
            services.db, run_id, self._claim.token, self._claim.wakes, write, services.policy.rehint_seconds
        )
        self._history_bytes += sum(len(ITEM.dump_json(item)) for item in items)
        states = [_state(action, written) for action in opened]
        self._view = self._view.with_(items, states, usage=usage, turns=turns, tool_calls=tool_calls)
        if isinstance(becomes, Park) and written.status == "running":
            # An answer, a cancel or a message came while this pass ran: see it before parking.
            self._reload()
        elif becomes is not None:
            self._released = True
        self._tell(written, states, becomes)
        for action in opened:
            if action.announced:
                apply_early(services, action.id)

    def _reload(self) -> None:
        self._claim = runs.reload(self._services.db, self._claim)
        self._view, self._history_bytes = View.of(self._claim, self._agent.limits), self._claim.history_bytes

    def _tell(self, written: Written, opened: Sequence[ActionState], becomes: Park | Requeue | End | None) -> None:
        """After the commit: the parking index, live events and hints. All of it can be lost and is made up for."""
        services, run = self._services, self._view.run
        if opened:
            services.parking.put([state.action for state in opened])
        services.parking.drop(written.closed_action_ids)
        events = [
            {"kind": "action", "run_id": run.id, "action_id": each.action.id, "status": "pending"} for each in opened
        ]
        if self._released:
            events.append({"kind": "run", "run_id": run.id, "status": written.status})
        services.events.publish(run.thread_id, *events)
        if isinstance(becomes, Requeue) and not becomes.delay_seconds:
            services.hints.publish(Hint(run_id=run.id, due=becomes.due))
        if written.next_run_id is not None:
            services.hints.publish(Hint(run_id=written.next_run_id, due="turn"))


def _provisional(opened: Sequence[NewAction], view: View) -> list[ActionState]:
    """Waits as they will be, for deciding; their times are not known before the write."""
    return [_pending(action, view.run.updated_at, None) for action in opened]


def _state(action: NewAction, written: Written) -> ActionState:
    expires = None if action.timeout_seconds is None else written.at + timedelta(seconds=action.timeout_seconds)
    return _pending(action, written.at, expires)


def _pending(action: NewAction, opened_at: datetime, expires_at: datetime | None) -> ActionState:
    return ActionState(
        action=PendingAction(
            id=action.id,
            request_id=action.request_id,
            name=action.name,
            kind=action.kind,
            prompt=action.prompt,
            input=action.input,
            resume_schema=action.resume_schema,
            status="pending",
            origin=action.origin,
            opened_at=opened_at,
            expires_at=expires_at,
            answerers=action.answerers,
            callback=action.callback,
        ),
        style=action.style,
        ordinal=action.ordinal,
        key=action.key,
        digest=action.digest,
        on_timeout=action.on_timeout,
        fingerprint=action.fingerprint,
    )


def _side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """Do all of `works`, each in a thread, some at a time; then raise the first error, if any."""
    if len(works) == 1:
        works[0]()
    elif works:
        with ThreadPoolExecutor(min(len(works), _SIDE_BY_SIDE), thread_name_prefix="adjourn-call") as threads:
            done = [threads.submit(work) for work in works]
        for each in done:
            each.result()
