"""Rules of the core and of the store, each taken away, to see that the simulation misses it.

A mutation is a context in which the rule does not hold. The store's rules are those of the store in
memory, which is what the simulation runs on; that they are the real one's is shown by the
conformance of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.records.actions import NewAction
from adjourn.schemas.records.items import ItemBody
from adjourn.store.memory import actions, runs
from adjourn.store.memory.tables import ActionRow, Memory, RunRow
from adjourn.tasks.answers import answering as answer
from adjourn.tasks.engine import calls
from adjourn.tasks.engine import history as log
from adjourn.tasks.execution import drive
from adjourn.tasks.execution.writer import Writer
from adjourn.tasks.lifecycle.sweep import SweepReport
from tests.simulation import world

Mutation = Callable[[], AbstractContextManager[Any]]


def no_token_check() -> AbstractContextManager[Any]:
    """Any token writes any run that has not ended."""

    def held(db: Memory, run_id: str, token: str) -> RunRow:
        row = db.runs[run_id]
        if row.ended:
            raise StaleClaimError(run_id)
        return row

    return patch.object(runs, "held", held)


def no_compare_and_set() -> AbstractContextManager[Any]:
    """An answer is set whatever the action is."""

    def may_answer(action: ActionRow) -> bool:
        return True

    return patch.object(actions, "may_answer", may_answer)


def no_park_counter() -> AbstractContextManager[Any]:
    """A run parks whatever has come meanwhile."""

    def may_park(row: RunRow, seen_revision: int) -> bool:
        return True

    return patch.object(runs, "may_park", may_park)


def tools_before_write() -> AbstractContextManager[Any]:
    """A response is written together with what its first tool came to."""
    real: Any = Writer._write

    def write(
        self: Any,
        items: Sequence[ItemBody],
        opened: Sequence[NewAction],
        becomes: Any,
        after: Any = None,
        **totals: Any,
    ) -> None:
        held_back = self.__dict__.pop("held_back", None)
        if held_back is not None:
            real(self, [*held_back[0], *items], opened, becomes, None, **{**totals, **held_back[1]})
        elif items and items[0].kind == "response" and becomes is None:
            self.held_back = (list(items), totals)
            self.view = after
        else:
            real(self, items, opened, becomes, after, **totals)

    return patch.object(Writer, "_write", write)


def no_sweep() -> AbstractContextManager[Any]:
    """Nobody looks for what was forgotten."""
    return patch.object(world, "sweep", lambda door: SweepReport())


def wakeup_without_wake() -> AbstractContextManager[Any]:
    """An answer leaves the run parked."""
    return patch.object(Memory, "wake", lambda db, row, wakeup_retry_seconds: False)


def early_answers_dropped_first() -> AbstractContextManager[Any]:
    """A kept answer is let go of before it is applied."""
    real = answer.receive_early

    def receive_early(door: Any, early: Any) -> None:
        door.store.early_answers.drop([early.id])
        real(door, early)

    return patch.object(answer, "receive_early", receive_early)


def no_question_about_deaths() -> AbstractContextManager[Any]:
    """A body that died just runs again, whatever its tool says of that."""

    def plan(open_call: Any, view: Any, recorder: Any) -> Any:
        came = calls.plan(open_call, view, recorder)
        return calls.Ready(came.tool, came.call, came.input) if isinstance(came, calls.Lost) else came

    return patch.object(drive, "plan", plan)


def waits_in_order_of_time() -> AbstractContextManager[Any]:
    """The waits of a call are sorted by their times."""
    return patch.object(log, "sorted", lambda states, key: states, create=True)


MUTATIONS: Final[dict[str, Mutation]] = {
    each.__name__: each
    for each in (
        no_token_check,
        no_compare_and_set,
        no_park_counter,
        tools_before_write,
        no_sweep,
        wakeup_without_wake,
        early_answers_dropped_first,
        no_question_about_deaths,
        waits_in_order_of_time,
    )
}

RARE: Final = frozenset({"early_answers_dropped_first", "waits_in_order_of_time"})
"""Missed once in some hundreds or thousands of seeds: for longer runs by hand."""
