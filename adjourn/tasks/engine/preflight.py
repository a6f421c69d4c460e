"""Whether what is recorded of a run still fits the code. Pure: runs no body, asks no model, writes nothing.

The log is replayed by the same engine that drives the run (`adjourn.tasks.engine.decisions`), with the same
look at the tools that wait (`adjourn.tasks.engine.calls`). User code that it runs is what a replay always
runs: the selectors of routers, and the tools of agents that are functions of the run.

What only a body can say, as that it asks another question than it had, is not found out here.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjourn.schemas.errors import ActionExpiredError, LogMismatchError, RunError
from adjourn.schemas.internal.checks import Check
from adjourn.schemas.records.actions import ActionState, Resolution
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.runs import Run
from adjourn.store.results import RunHistory
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.calls import ensure_readable, ensure_unchanged
from adjourn.tasks.engine.decisions import Finish, Step, View, Wait, Work, decide


def check(log: RunHistory, blocks: Mapping[str, Block]) -> Check:
    """Replay the log of a run against `blocks`."""
    run = log.run
    ended = tuple(_ended(state, run) for state in log.actions)
    view = View(run, blocks, (), tuple(log.items), ended)
    try:
        error = RunFailure.of(log.damage) if log.damage is not None else _misfit(run, decide(view))
    except RunError as misfit:
        error = RunFailure.of(misfit)
    return Check(run_id=run.id, thread_id=run.thread_id, agent=run.agent, status=run.status, error=error)


def _ended(state: ActionState, run: Run) -> ActionState:
    """A wait as it will be one day: only then is its call looked at. How it ends makes no difference to that."""
    if state.resolution is not None:
        return state
    return state.model_copy(update={"resolution": Resolution(status="cancelled", resolved_at=run.updated_at)})


def _misfit(run: Run, step: Step) -> RunFailure | None:
    """Why what comes next is not what the log says. Raises `ToolChangedError` and `StoredValueError`."""
    if run.status == "completed":
        return _other_end(run, step)
    match step:
        case Work(activities):
            for each in activities:
                if isinstance(each, OpenCall):
                    ensure_unchanged(each)
                    ensure_readable(each)
        case Finish(end) if end.error is not None and not run.ended:
            # A deadline that has passed fails its run whatever the code is.
            return None if end.error.type == ActionExpiredError.__name__ else end.error
    return None


def _other_end(run: Run, step: Step) -> RunFailure | None:
    match step:
        case Finish(end) if end.status == "completed" and end.output == run.output:
            return None
        case Finish(end):
            problem = f"this code makes it end as {end.status}" + (f" ({end.error.message})" if end.error else "")
        case Work(activities):
            problem = f"this code would go on with {' / '.join(activities[0].place.path)}"
        case Wait():
            problem = "this code would wait"
    return RunFailure.of(LogMismatchError(run.id, problem))
