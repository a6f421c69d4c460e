"""What a call of a sub-agent comes to: a run that is started for it, one that was, or how that one ended.

Decides and builds records; the writer starts the run, with the wait for it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from adjourn.schemas.actions import ActionState, Child, NewAction
from adjourn.schemas.errors import ChildFailedError
from adjourn.schemas.ids import new_run_id, new_thread_id
from adjourn.schemas.items import MessageItem
from adjourn.schemas.limits import Limits
from adjourn.schemas.policy import Policy
from adjourn.schemas.strict_json import digest, dumps
from adjourn.tasks.activities import OpenCall
from adjourn.tasks.body import Output, Suspended
from adjourn.tasks.calls import Delegate, fingerprint_of, origin_of
from adjourn.tasks.context import Recorder
from adjourn.tasks.engine import View, Work, decide
from adjourn.tasks.sub_agents import TASK, SubAgent

_NO_SCHEMA: Final[dict[str, Any]] = {"not": {}}
"""Nothing fits: a run is all that may answer."""


def delegated(
    delegate: Delegate, view: View, share: Limits | None, recorder: Recorder, policy: Policy
) -> Output | Suspended | None:
    """What becomes of the call; None if it has to wait for the run of another call.

    `share` is what a child may use that has no budget of its own; None if there is nothing left for it.

    Raises `ChildFailedError` if the child has not completed and its sub-agent says that this ends the parent.
    """
    block, call = delegate.block, delegate.call
    own = [state for state in call.actions if state.child is not None]
    if own:
        return _outcome(block, own[-1])
    task, key = block.task_of(call.input), block.key_of(call.call.id, call.input)
    twin = view.log.tasks.get((block.agent.name, key))
    if twin is not None and twin.child is not None:
        if twin.child.digest != digest(task):
            problem = f"the task key {key!r} names another task of {block.agent.name}; use another key"
            return Output("error", problem)
        return None if twin.resolution is None else _outcome(block, twin)
    problem = _over_limits(view, policy) or ""
    limits = block.limits or share
    if problem or limits is None:
        return Output("error", problem or "what this run may use is used up: no sub-agent is started any more")
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


def _over_limits(view: View, policy: Policy) -> str | None:
    """The limit of the tree that keeps the run from starting another child."""
    void = view.log.void
    started = sum(state.child is not None and state.action.id not in void for state in view.actions)
    if started >= policy.max_children:
        return f"this run has started {started} runs, which is as many as it may (max_children)"
    if view.run.depth >= policy.max_child_depth:
        return f"this run is {view.run.depth} levels below the first, which is as deep as it may be (max_child_depth)"
    return None


def _new_wait(block: SubAgent, call: OpenCall, limits: Limits, view: View, recorder: Recorder) -> NewAction:
    run, task = view.run, block.task_of(call.input)
    said = MessageItem.of_text(task) if isinstance(task, str) else MessageItem(text=dumps(task), data=task)
    child = Child(
        run_id=new_run_id(),
        thread_id=new_thread_id(),
        agent=block.agent.name,
        key=block.key_of(call.call.id, call.input),
        digest=digest(task),
        text=said.text,
        data=said.data,
        limits=limits,
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
        child=child,
    )


# --- budgets --------------------------------------------------------------------------------------


def share_of(view: View) -> Limits | None:
    """Each child's share of what its parent may still use; None if nothing is left to share.

    What is left after what children that still run have reserved, divided by the calls that have none
    yet. Time is not divided: children run side by side, each by its own clock.
    """
    run, limits = view.run, view.limits
    reserved = [state.child.limits for state in view.actions if state.child is not None and state.resolution is None]
    waiting = _unstarted(view)

    def whole(limit: int | None, used: int, kept: list[int | None]) -> int | None:
        return None if limit is None else (limit - used - sum(each or 0 for each in kept)) // waiting

    # The turn of the parent that reads what its children came to is its own.
    turns = None if limits.turns is None else limits.turns - 1
    shares: dict[str, int | float | None] = {
        "turns": whole(turns, run.turns, [each.turns for each in reserved]),
        "tool_calls": whole(limits.tool_calls, run.tool_calls, [each.tool_calls for each in reserved]),
        "tokens": whole(limits.tokens, run.usage.total_tokens, [each.tokens for each in reserved]),
        "seconds": None if limits.seconds is None else limits.seconds - run.seconds,
    }
    if limits.cost is not None:
        kept = sum(Decimal(str(each.cost or 0)) for each in reserved)
        shares["cost"] = float((Decimal(str(limits.cost)) - run.usage.cost - kept) / waiting)
    if any(share is not None and share <= 0 for share in shares.values()):
        return None
    return Limits.model_validate(shares)


def _unstarted(view: View) -> int:
    """How many calls of sub-agents have no run yet, the one at hand among them."""
    step = decide(view)
    open_calls = step.activities if isinstance(step, Work) else ()
    waiting = [each for each in open_calls if isinstance(each, OpenCall) and isinstance(each.block, SubAgent)]
    return max(1, sum(all(state.child is None for state in each.actions) for each in waiting))
