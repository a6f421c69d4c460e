"""What a tool is given: its entry, its history, and the ways to stop and to remember.

A `Context` belongs to one pass of one call. It opens nothing itself: a suspend is raised, the context notes the wait
in the `PassRecord` of the pass, and the driver writes it down (`adjourn.tasks.execution.body`). `waits` says how a tool
stops, `remembered` what it keeps from one pass to the next.
"""

from __future__ import annotations

from typing import Any, TypeVar

from adjourn.schemas.records.entries import Entry, Initial, RequestAnswer, Resume, SuspendRecord
from adjourn.schemas.records.wait_points import WaitPoint
from adjourn.tasks.context.earlier_waits import entry_of, has_value, record_of, refusal_of
from adjourn.tasks.context.first_answers import AskingAny
from adjourn.tasks.context.pass_state import PassRecord, Recorder, Suspension
from adjourn.tasks.context.waits import REQUEST, wait_of

__all__ = ["REQUEST", "Context", "PassRecord", "Recorder", "Suspension", "has_value", "refusal_of", "wait_of"]

S = TypeVar("S")
R = TypeVar("R")


class Context(AskingAny):
    """One pass of a tool call.

    `input` is always what the model called the tool with, or what a person who approved the call made of it
    (`approvals`). `entry` says why the body runs.
    """

    @property
    def entry(self) -> Entry:
        """`Initial`, or why the body runs again: the wait that it asked last.

        Of waits side by side, all of which have ended by then, that is the same one in whichever order they did.
        """
        if self._entry is None:
            self._entry = entry_of(self._actions, self._resume_contract, self._load)
        if not isinstance(self._entry, Initial):
            self._read.add(self._entry.action.id)
        return self._entry

    @property
    def answer(self) -> RequestAnswer | None:
        """`entry` in short: `None` on the first pass, and then what became of the wait that was asked last."""
        entry = self.entry
        if isinstance(entry, Initial):
            return None
        id = entry.action.request_id or entry.action.id
        if isinstance(entry, Resume):
            return RequestAnswer(id=id, ok=True, data=entry.resume, reason=entry.reason)
        return RequestAnswer(id=id, ok=False, data=entry.data, reason=entry.reason or entry.message)

    @property
    def suspend_history(self) -> tuple[SuspendRecord[Any, Any], ...]:
        """Every earlier wait of this call, oldest first, typed by its wait point, or by what the ask gave."""
        self._read.update(state.action.id for state in self._actions)
        return tuple(record_of(state, self._wait_points, self._resume_contract, self._load) for state in self._actions)

    def resumed(self, point: WaitPoint[Any, R]) -> Resume[R] | None:
        """`entry`, typed, if the body runs again with an answer to a wait at `point`; else `None`.

        Raises `DefinitionError` for a wait point that is not one of the tool's own.
        """
        name, entry = self._declared(point).name, self.entry
        return entry if isinstance(entry, Resume) and entry.name == name else None

    def history(self, point: WaitPoint[S, R]) -> tuple[SuspendRecord[S, R], ...]:
        """The earlier waits of this call at `point`, typed, oldest first.

        Raises `DefinitionError` for a wait point that is not one of the tool's own.
        """
        name = self._declared(point).name
        return tuple(record for record in self.suspend_history if record.name == name)
