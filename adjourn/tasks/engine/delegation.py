"""What a call of a sub-agent comes to: a run that is started for it, one that was, or how that one ended.

Decides and builds records; the writer starts the run, with the wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from adjourn.schemas.errors import ChildFailedError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import ActionState, Child, NewAction
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import ROOT, MessageItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.strict_json import digest, dumps
from adjourn.tasks.blocks.sub_agents import TASK, SubAgent
from adjourn.tasks.context.facade import Recorder
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.budgets import Budget, Shortage
from adjourn.tasks.engine.calls import Delegate
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.origins import fingerprint_of, input_schema_of, origin_of
from adjourn.tasks.engine.results import Output, Suspended

_NO_SCHEMA: Final[dict[str, Any]] = {"not": {}}
"""Nothing fits: a run is all that may answer."""


def delegated(
    delegate: Delegate, view: View, shares: Shares, recorder: Recorder, tuning: Tuning
) -> Output | Suspended | None:
    """What becomes of the call; None if it has to wait for the run of another call.

    Raises `ChildFailedError` if the child has not completed and its sub-agent says that this ends the parent.
    """
    block, call = delegate.block, delegate.call
    own = [state for state in call.actions if state.child is not None]
    if own:
        return _outcome(block, own[-1])
    task, key = block.task_of(call.input), block.key_of(call.call.id, call.input)
    twin = view.log.tasks.get(_task_of(call))
    if twin is not None and twin.child is not None:
        if twin.child.digest != digest(task):
            problem = f"the task key {key!r} names another task of {block.agent.name}; use another key"
            return Output("error", problem)
        return None if twin.resolution is None else _outcome(block, twin)
    over = _over_limits(view, tuning)
    if over is not None:
        return Output("error", over)
    limits = block.limits or shares.of(call)
    if isinstance(limits, Shortage):
        return Output("error", f"no sub-agent is started: {limits}")
    return Suspended((_new_wait(block, call, limits, view, recorder),))


def _outcome(block: SubAgent, state: ActionState) -> Output:
    """How the child ended, as its parent's model reads it."""
    assert state.resolution is not None
    assert state.child is not None
    ended: dict[str, Any] = state.resolution.resume
    if ended["status"] == "completed":
        return Output("success", ended["output"])
    said = (ended["error"] or {}).get("message") or "no reason given"
    if block.on_failure == "end_parent":
        raise ChildFailedError(block.agent.name, state.child.run_id, ended["status"], said)
    return Output("error", f"sub-agent {block.agent.name!r} {ended['status']}: {said}")


def _over_limits(view: View, tuning: Tuning) -> str | None:
    """The limit of the tree that keeps the run from starting another child."""
    if view.run.depth >= tuning.max_child_depth:
        return f"this run is {view.run.depth} levels below the first, which is as deep as it may be (max_child_depth)"
    if not _room(view, tuning):
        return f"this run has started {tuning.max_children} runs, which is as many as it may (max_children)"
    return None


def _room(view: View, tuning: Tuning) -> int:
    """How many children the run may still start."""
    if view.run.depth >= tuning.max_child_depth:
        return 0
    replaced = view.log.replaced
    started = sum(state.child is not None and state.action.id not in replaced for state in view.actions)
    return max(0, tuning.max_children - started)


def _new_wait(block: SubAgent, call: OpenCall, limits: Limits, view: View, recorder: Recorder) -> NewAction:
    run, task = view.run, block.task_of(call.input)
    said = MessageItem.of_text(task) if isinstance(task, str) else MessageItem(text=dumps(task), data=task)
    child = Child(
        run_id=new_run_id(),
        thread_id=new_thread_id(),
        agent=block.agent.name,
        caller=call.place.caller,
        key=block.key_of(call.call.id, call.input),
        digest=digest(task),
        text=said.text,
        data=said.data,
        limits=limits,
        is_share=block.limits is None,
        path=call.place.path,
        root_thread_id=run.root_thread_id or run.thread_id,
        depth=run.depth + 1,
        group=call.place.message_id if call.agent else call.call.id,
        ends_parent=block.on_failure == "end_parent",
    )
    return NewAction(
        id=recorder.new_action_id(),
        name=f"{call.place.path[-1]}.{TASK}",
        kind=TASK,
        input=task,
        resume_schema=_NO_SCHEMA,
        origin=origin_of(call, view, TASK),
        answerers=(),
        style="task",
        ordinal=0,
        digest=digest(task),
        fingerprint=fingerprint_of(block),
        input_schema=input_schema_of(block),
        child=child,
    )


# --- budgets --------------------------------------------------------------------------------------


class Shares:
    """What children may use that are started together, of what is left before any of them begins.

    Of what the run may still use, and of what the agent may that calls them, if it is a part of the run: the
    tighter of both. What is left is divided by all that are to take of it: the children, those that wait for an
    approval, and the other agents within the run that have not come to their end.
    """

    def __init__(self, view: View, calls: Sequence[OpenCall], tuning: Tuning) -> None:
        """`calls` are those that may start a run each, if there is none yet for their task."""
        self._view = view
        # One that waits for an approval may start one later.
        waiting = [each for each in view.decision.pending_starts if each.waits]
        by_task = {_task_of(each): each for each in (*calls, *waiting)}
        starting = [each for task, each in by_task.items() if task not in view.log.tasks][: _room(view, tuning)]
        self._callers = [each.place.caller for each in starting if not _has_own_limits(each)]
        self._agents = len(view.decision.active_agents - {ROOT})
        self._known: dict[str, Limits | Shortage] = {}

    def of(self, call: OpenCall) -> Limits | Shortage:
        """Of the child that this call starts, as of any other of the same agent."""
        caller = call.place.caller
        if caller not in self._known:
            self._known[caller] = self._share(caller, call.place.limits)
        return self._known[caller]

    def _share(self, caller: str, limits: Limits | None) -> Limits | Shortage:
        view = self._view
        share = view.budget.share(len(self._callers) + self._agents)
        if isinstance(share, Shortage) or limits is None:
            return share
        own = Budget.of_agent(limits, caller, view.run, view.log).share(self._callers.count(caller))
        return own if isinstance(own, Shortage) else share.within(own)


def _has_own_limits(call: OpenCall) -> bool:
    return isinstance(call.block, SubAgent) and call.block.limits is not None


def _task_of(call: OpenCall) -> tuple[str, str, str]:
    """The task that a call of a sub-agent is about, as in `History.tasks`."""
    assert isinstance(call.block, SubAgent)
    return call.place.caller, call.block.agent.name, call.block.key_of(call.call.id, call.input)
