"""Drives one claimed run: does what the engine decides, has it written, and asks the engine again.

One `drive` is one Celery task: it makes at most one model call for each agent of the run. Runs the
user's code (bodies, models, selectors, resolvers) and writes nothing itself (`adjourn.tasks.execution.writer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any, Final

from adjourn.schemas.errors import (
    ConfigurationError,
    DamagedRecordError,
    DefinitionError,
    DriverFaultError,
    HistoryTooLargeError,
    ModelRequestError,
    NewerTurnError,
    ReplayMismatchError,
    RunError,
    StaleClaimError,
    StoredValueError,
    StoreUnavailableError,
)
from adjourn.schemas.internal.state import Claim
from adjourn.schemas.records.actions import ActionState, NewAction
from adjourn.schemas.records.ids import new_claim_token
from adjourn.schemas.records.items import (
    ROOT,
    FaultItem,
    ItemBody,
    OutputItem,
    ResponseItem,
    RouteItem,
    StartItem,
    SuspensionItem,
    stored,
)
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.schemas.records.runs import WakeUp
from adjourn.schemas.strict_json import clean_text
from adjourn.store.errors import ContradictedError
from adjourn.tasks.answers.answering import receive_answer
from adjourn.tasks.answers.ends import damaged, fail_damaged
from adjourn.tasks.blocks.policies import approvals_of
from adjourn.tasks.blocks.sub_agents import SubAgent
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.blocks.user_code import describe_briefly, is_interrupt
from adjourn.tasks.engine.activities import Activity, AskModel, Choose, OpenCall
from adjourn.tasks.engine.calls import Delegate, LetIn, Lost, Ready, ask_operator, context_for, plan, with_made_defaults
from adjourn.tasks.engine.conversation import conversation, recorded
from adjourn.tasks.engine.decisions import View, cache_key_of
from adjourn.tasks.engine.delegation import Shares, delegated
from adjourn.tasks.engine.results import CallResult, Output, Suspended
from adjourn.tasks.engine.transitions import Do, Fail, GiveBack, Resolve
from adjourn.tasks.execution.body import fitting, run_body, verify
from adjourn.tasks.execution.outdated import ensure_own_question, ensure_own_tool, is_outdated
from adjourn.tasks.execution.own_process import Attempts
from adjourn.tasks.execution.reopening import reopening
from adjourn.tasks.execution.resolving import Resolvers
from adjourn.tasks.execution.writer import Writer, provisional
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.services import Services
from adjourn.tasks.models.protocol import Model, StreamingModel
from adjourn.tasks.models.responses import asked, at_once, checked
from adjourn.tasks.streaming.deltas import Feed

log = logging.getLogger(__name__)

_SIDE_BY_SIDE: Final = 32
"""Calls of one turn that run at once. A model may ask for thousands; the others take their turn."""


def drive(services: Services, wakeup: WakeUp) -> None:
    """Take a run one turn further, if it is due.

    A wakeup for a run that is not due does nothing. What goes wrong inside the run ends the run,
    not this call, and so in the end does a statement that Postgres refuses again and again. Raises
    `StoreUnavailableError`; then the claim is given back when the outage is over, or its lease runs
    out and the sweep finds the run.
    """
    token = new_claim_token()
    try:
        claim = services.store.claims.claim(
            wakeup.run_id,
            suspect=wakeup.due == "suspect",
            token=token,
            place=None if services.build is None else services.build.place,
        )
    except DamagedRecordError as error:
        fail_damaged(services, error)
        return
    if claim is None:
        return
    with services.leases.hold(wakeup.run_id, token) as lease:
        try:
            _drive(_Driver(services, claim, lease), wakeup.run_id)
        except (ContradictedError, DamagedRecordError) as error:
            fail_damaged(services, damaged(wakeup.run_id, error))
        except StoreUnavailableError as error:
            if not (error.refused and _counted(services, lease, error)):
                raise


def _drive(driver: _Driver, run_id: str) -> None:
    try:
        driver.run()
    except StaleClaimError as error:
        log.info("claim lost", extra={"run_id": error.run_id})
    except (ContradictedError, DamagedRecordError, StoreUnavailableError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        # A fault of ours, or user code that nothing nearer has caught. Nothing may get past this: Celery would
        # keep the slot of what is not an `Exception` taken for ever, and the run would count as a killer of workers.
        log.exception("a run could not be driven", extra={"run_id": run_id})
        driver.give_up(DriverFaultError(run_id, describe_briefly(error)))


def _counted(services: Services, lease: Lease, error: StoreUnavailableError) -> bool:
    """Count what Postgres refused against the run, whose next try has to wait, and which fails in the end.

    False if Postgres does not take this either: it is out of order, and no run is to blame.
    """
    log.warning("what a run had to store was refused", extra={"run_id": lease.run_id, "error": error.problem})
    try:
        wakeups = services.store.runs.record_refusal(
            lease.run_id,
            lease.token,
            clean_text(error.problem),
        )
    except StoreUnavailableError:
        return False
    for wakeup in wakeups:
        services.wakeups.publish(wakeup)
    return True


class _Driver:
    """One pass over a claimed run: it does what is decided until the claim is given back."""

    def __init__(self, services: Services, claim: Claim, lease: Lease) -> None:
        self._services = services
        self._lease = lease
        self._resolvers = resolvers = Resolvers(services.app)
        # No method of ours: what a run has loaded would live on in a circle until Python looks for such.
        self._writer = Writer(services, claim, resolvers.open)

    def run(self) -> None:
        writer = self._writer
        while not writer.released:
            following = writer.next_step()
            match following.step:
                case Do(activities):
                    self._work(activities)
                case Resolve(state):
                    self._resolve(state)
                case GiveBack():
                    writer.give_back(following)
                case Fail(error):
                    writer.fail(error)

    def give_up(self, error: RunError) -> None:
        """End the run, because it cannot be driven on."""
        try:
            self._writer.fail(error)
        except StaleClaimError:
            log.info("claim lost", extra={"run_id": self._writer.view.run.id})

    def _work(self, activities: Sequence[Activity]) -> None:
        """Do these side by side, calls of exclusive tools one by one after the others, and of sub-agents at once."""
        alone = [each for each in activities if _is_exclusive(each)]
        tasks = [each for each in activities if isinstance(each, OpenCall) and isinstance(each.block, SubAgent)]
        apart = {id(each) for each in (*alone, *tasks)}
        works = [partial(self._do, each) for each in activities if id(each) not in apart]
        if tasks:
            works.append(partial(self._delegate, tasks, self._writer.view))
        self._writer.begin(len(activities))
        _side_by_side(works)
        for each in alone:
            self._do(each)
        self._writer.finish()

    def _do(self, activity: Activity) -> None:
        match activity:
            case AskModel():
                self._guarded(partial(self._ask_model, activity))
            case Choose():
                self._guarded(partial(self._choose, activity))
            case OpenCall():
                self._guarded(partial(self._run_call, activity))

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._writer.broken:
            return
        try:
            work()
        except (DamagedRecordError, StaleClaimError):
            raise
        except RunError as error:
            self._writer.break_off(error)

    # --- models and routers ------------------------------------------------------------------

    def _ask_model(self, ask: AskModel) -> None:
        writer, call_id = self._writer, ask.place.call_id
        writer.asked.add(call_id)
        limit = self._services.tuning.max_history_bytes
        if writer.history_bytes > limit:
            raise HistoryTooLargeError(writer.view.run.thread_id, writer.history_bytes, limit)
        prompt, is_first = self._prompt(ask)
        try:
            response = self._response(ask, prompt)
        except ModelRequestError as error:
            self._try_later(error, call_id)
            return
        item = with_made_defaults(recorded(response, call_id), ask.tools)
        item = ask.agent.recorded(item, prompt if is_first else None)
        usage = response.usage.model_copy(update={"requests": 1})
        items = [item, *ask.agent.output_items(item)]
        # Written before any tool runs. A crash before this commit: the model is asked again,
        # nothing was promised. A crash after it: the recorded calls run, the model is not asked.
        writer.commit(items, usage=usage, turns=1, tool_calls=len(item.calls))

    def _prompt(self, ask: AskModel) -> tuple[str, bool]:
        """What the agent is told first, and True if nothing of it is recorded yet.

        Recorded text is told again as it was: the agent's own function may say something else by now.
        """
        turns = self._writer.view.log.turns.get(ask.place.call_id, ())
        first = next((item for _, item in turns if isinstance(item, ResponseItem)), None)
        if first is not None and first.prompt is not None:
            return first.prompt, False
        return ask.agent.prompt_for(ask.value), first is None

    def _try_later(self, error: ModelRequestError, call_id: str) -> None:
        """Leave the model alone for a while; a request that no later try can save fails the run at once."""
        tuning, faults = self._services.tuning, self._writer.view.log.faults[call_id]
        if not error.retryable or faults >= tuning.model_retries or self._is_for_newer(error):
            raise error
        fault = FaultItem(call_id=call_id, message=clean_text(str(error)))
        # A crash before this commit: the model is asked again at once, once more. After: when the pause is over.
        self._writer.commit([fault], pause_seconds=tuning.model_retry_seconds * 2**faults)

    def _is_for_newer(self, error: ModelRequestError) -> bool:
        """Whether a newer build, which is live, may read the turns that this one cannot."""
        return isinstance(error, NewerTurnError) and is_outdated(self._services.build)

    def _response(self, ask: AskModel, prompt: str) -> ModelResponse:
        view, loop = self._writer.view, self._services.loop
        try:
            model = self._services.app.model(ask.agent)
        except (DefinitionError, ConfigurationError) as error:
            raise ModelRequestError(str(ask.agent.model), str(error), retryable=False) from error
        streams = ask.agent.stream and isinstance(model, StreamingModel)
        name, method, request = self._prepared(ask, prompt, model, "stream" if streams else "request")
        if not streams:
            asking = at_once(model, request) or loop.submit(asked(name, method, request))
            return self._awaited(name, asking)
        with Feed(self._services.events, view.run, ask.place.call_id, lambda: self._writer.place) as feed:
            return self._awaited(name, loop.submit(asked(name, method, request, feed)), feed)

    def _prepared(
        self, ask: AskModel, prompt: str, model: Model, method: str
    ) -> tuple[str, Callable[..., object], ModelRequest]:
        """The name of a model, its method, and what it is asked. All three may run code of the user's."""
        try:
            name = str(model.name)
            return name, getattr(model, method), _request(ask, prompt, self._writer.view)
        except RunError:
            raise
        except BaseException as error:
            problem = f"asking the model of agent {ask.agent.name!r} failed: {describe_briefly(error)}"
            raise ModelRequestError(type(model).__name__, problem, retryable=False) from error

    def _awaited(self, name: str, future: Future[ModelResponse], feed: Feed | None = None) -> ModelResponse:
        view = self._writer.view
        with self._lease.interrupting(future.cancel):
            try:
                if feed is not None:
                    feed.follow(future)
                return checked(name, future.result())
            except CancelledError:
                if self._lease.lost:
                    raise StaleClaimError(view.run.id) from None
                raise ModelRequestError(name, "the request was cancelled", retryable=True) from None
            except ModelRequestError:
                raise
            except BaseException as error:
                if not future.done():  # somebody wants to stop this thread: no word of the model's
                    raise
                raise ModelRequestError(name, describe_briefly(error), retryable=False) from error

    def _choose(self, choose: Choose) -> None:
        call_id = choose.place.call_id
        route = choose.router.choose(choose.value)
        self._writer.view.cached.chosen[call_id] = route
        # A crash before this commit: the selector is run again, nothing of a route has. A crash
        # after it: the route is taken, whatever the selector would say by then.
        self._writer.commit([RouteItem(call_id=call_id, route=route)])

    # --- calls -------------------------------------------------------------------------------

    def _run_call(self, call: OpenCall) -> None:
        ensure_own_tool(call, self._services.build)
        try:
            self._plan_and_close(call)
        except StoredValueError as error:
            item = reopening(call, error, self._writer.view, self._services.app)
            if item is None or is_outdated(self._services.build):
                raise
            # A crash before this commit: the answer is read again, and again in vain. After: the wait is open.
            self._writer.reopen(item)

    def _plan_and_close(self, call: OpenCall) -> None:
        planned = plan(call, self._writer.view, self._writer)
        if isinstance(planned, LetIn):
            # A crash before this commit: the call is judged again. After: it is walked into.
            self._writer.commit([StartItem(call_id=call.call.id)])
            return
        assert not isinstance(planned, Delegate), "calls of sub-agents are handed over together"
        came = planned if isinstance(planned, Output | Suspended) else self._pass(planned)
        self._close(call, came)

    def _pass(self, ready: Ready) -> CallResult:
        view = self._writer.view
        if (over := view.limits.overtime(view.run.seconds)) is not None:
            raise over  # it was not when this was decided, but what ran before it took its time
        return (self._recover(ready) if isinstance(ready, Lost) else None) or self._run_body(ready)

    def _run_body(self, ready: Ready) -> CallResult:
        timeout = self._timeout(ready.tool)
        attempts = Attempts(self._services, self._lease, self._writer, ready, timeout, self._recover)
        came = run_body(ready.tool, attempts.make)
        try:
            ensure_own_question(ready.call, came, self._services.build)
        except ReplayMismatchError:
            attempts.take_back()
            raise
        return came

    def _recover(self, lost: Lost) -> CallResult | None:
        """What became of a pass that died, or who is asked; None if the body may run again."""
        if lost.tool.options.verify is None:
            return ask_operator(lost, self._writer.view, self._writer)
        context = partial(context_for, lost, self._writer.view, self._writer)
        timeout = self._timeout(lost.tool)
        return verify(lost.tool, context, loop=self._services.loop, lease=self._lease, timeout_seconds=timeout)

    def _timeout(self, tool: Tool[..., Any]) -> float | None:
        timeout = tool.options.timeout
        return timeout.total_seconds() if timeout else self._services.tuning.tool_timeout_seconds

    def _close(self, call: OpenCall, came: CallResult) -> None:
        """Record what a call came to, at once."""
        writer = self._writer
        with writer.lock:  # outputs that end together count against the history one after the other
            items, opened = self._recorded(call, came)
            # A crash before this commit: the body runs again. A crash after it: an output never
            # runs again, and a wait is open and can be answered, whatever its siblings do.
            writer.commit(items, opened)

    def _recorded(
        self, call: OpenCall, came: CallResult, more_bytes: int = 0
    ) -> tuple[list[ItemBody], tuple[NewAction, ...]]:
        """What is recorded of what a call came to, where so much is recorded with it besides."""
        tool = call.place.path[-1]
        came = fitting(came, tool, self._services.tuning, self._writer.history_bytes + more_bytes)
        if isinstance(came, Output):
            closed = OutputItem(
                call_id=call.call.id,
                tool=tool,
                outcome=came.outcome,
                content=came.content,
                approvals=approvals_of(call.block, call.actions),
                cache_key=cache_key_of(call),
            )
            return [closed], ()
        waits = [SuspensionItem(call_id=call.call.id, action_id=a.id, name=a.name) for a in came.opened]
        return [*waits], came.opened

    # --- sub-agents --------------------------------------------------------------------------

    def _delegate(self, calls: Sequence[OpenCall], before: View) -> None:
        self._guarded(partial(self._hand_over, calls, before))

    def _hand_over(self, calls: Sequence[OpenCall], before: View) -> None:
        """Record what all of these calls come to, in one write: there may be a thousand of them.

        `before` is the view from before anything beside them began.
        """
        writer, tuning = self._writer, self._services.tuning
        plans = [(call, plan(call, writer.view, writer)) for call in calls]  # policies may take their time
        shares = Shares(before, [call for call, planned in plans if not isinstance(planned, Output)], tuning)
        with writer.lock:
            view = writer.view
            items: list[ItemBody] = []
            opened: list[NewAction] = []
            size = 0
            for call, planned in plans:
                came = delegated(planned, view, shares, writer, tuning) if isinstance(planned, Delegate) else planned
                if not isinstance(came, Output | Suspended):
                    continue  # it waits for the run of another call
                more, waits = self._recorded(call, came, size)
                size += sum(len(stored(item).encode()) for item in more)
                view = view.with_(more, provisional(waits, view))  # the next one may hand over the same task
                items += more
                opened += waits
            # A crash before this commit: nothing was started, and all is planned again. A crash after it: every
            # child is there, due, and waited for.
            writer.commit(items, opened, finished=len(calls))

    # --- resolvers ---------------------------------------------------------------------------

    def _resolve(self, state: ActionState) -> None:
        """Ask the resolver. Its answer goes through the door; what it leaves open, others answer."""
        answer = self._resolvers.ask(state, self._writer.view, self._services.loop, self._lease)
        if answer is not None:
            try:
                receive_answer(self._services, answer, channel="resolver", answered_by="resolver")
            except StoreUnavailableError:
                raise
            except BaseException as error:  # of an answer with a class or data of the user's own
                if is_interrupt(error):
                    raise
                log.exception(
                    "a resolver's answer was not taken; others may answer", extra={"action_id": answer.action_id}
                )
            self._writer.reload()


def _request(ask: AskModel, prompt: str, view: View) -> ModelRequest:
    """What the model of an agent is asked."""
    agent, call_id = ask.agent, ask.place.call_id
    items = view.earlier + view.items if call_id == ROOT else view.items
    # Not checked: all of it was, and another look at each turn takes as long as making it did.
    return ModelRequest.model_construct(
        instructions=agent.instructions,
        conversation=conversation(items, call_id, prompt),
        tools=agent.specs(ask.tools),
        settings=deepcopy(agent.model_settings),  # a model may change what is its own to read
    )


def _is_exclusive(activity: Activity) -> bool:
    return isinstance(activity, OpenCall) and isinstance(activity.block, Tool) and activity.block.options.exclusive


def _side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """Do all of `works`, each in a thread, some at a time; then raise the first error, if any."""
    if len(works) == 1:
        works[0]()
    elif works:
        with ThreadPoolExecutor(min(len(works), _SIDE_BY_SIDE), thread_name_prefix="adjourn-call") as threads:
            done = [threads.submit(work) for work in works]
        for each in done:
            each.result()
