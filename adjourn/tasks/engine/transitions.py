"""Decides what comes next for a claimed run: something to do here, or the claim is given back.

It is given back with what the run becomes: parked, queued again, or ended. The driver does what is decided, the
writer writes it; neither decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from adjourn.schemas.errors import RunError
from adjourn.schemas.internal.state import End, Park, Requeue
from adjourn.schemas.records.actions import ActionState, NewAction
from adjourn.schemas.records.items import OutputItem
from adjourn.tasks.engine.activities import Activity, AskModel
from adjourn.tasks.engine.decisions import Finish, View, Wait


@dataclass(frozen=True)
class Do:
    """These can be done in this pass, side by side."""

    activities: tuple[Activity, ...]


@dataclass(frozen=True)
class Resolve:
    """Only waits are left, and code of this process may still answer one of them."""

    state: ActionState


@dataclass(frozen=True)
class GiveBack:
    """Nothing is left to do in this pass."""

    becomes: Park | Requeue | End


@dataclass(frozen=True)
class Fail:
    """The code of this process no longer fits what was recorded."""

    error: RunError


@dataclass(frozen=True)
class Next:
    """What comes next, and what can be recorded before it: outputs of blocks that have come to their end."""

    step: Do | Resolve | GiveBack | Fail
    closing: tuple[OutputItem, ...] = ()

    def becomes_after(self, opened: Sequence[NewAction]) -> Park | Requeue | End | None:
        """What the write of a step that opens these waits makes of the run at once; None if it stays claimed.

        An end closes the waits that it finds, so these have to be there before it. And children are started by a
        statement of their own, which most writes need not be as heavy as.
        """
        if not isinstance(self.step, GiveBack):
            return None
        becomes = self.step.becomes
        first = opened and (isinstance(becomes, End) or any(action.child for action in opened))
        return None if first else becomes


def next_step(view: View, asked: AbstractSet[str], open_wait: Callable[[View], ActionState | None]) -> Next:
    """What comes next in a pass that has asked the models of the agents in `asked`, each of which is asked once.

    `open_wait` finds a wait that code of this process may still answer, so that the run is not to park.
    """
    try:
        decision = view.decision
    except RunError as error:
        return Next(Fail(error))
    step, closing = decision.step, decision.closing
    if isinstance(step, Finish):
        return Next(GiveBack(step.end), closing)
    if isinstance(step, Wait):
        state = open_wait(view)
        return Next(GiveBack(Park()) if state is None else Resolve(state), closing)
    left = tuple(each for each in step.activities if not (isinstance(each, AskModel) and each.place.call_id in asked))
    if left:
        return Next(Do(left), closing)
    # All that is left are second turns, which are other tasks.
    turns = {each.place.call_id for each in step.activities}
    return Next(GiveBack(Requeue(after_pause=turns <= faulty_agents(view))), closing)


def faulty_agents(view: View) -> frozenset[str]:
    """Agents whose model could not be asked when it last was to be."""
    return frozenset(call_id for call_id, faults in view.log.faults.items() if faults)
