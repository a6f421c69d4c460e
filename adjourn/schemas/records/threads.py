"""Threads: conversations, and what a client sees of one."""

from __future__ import annotations

from typing import Any, Literal

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.messages import Outcome, Turn, Usage
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run

ThreadStatus = Literal["idle", "queued", "running", "parked"]


class OpenCall(Record):
    """A call of a turn that has not closed."""

    id: str
    """Actions name it as `origin.tool_call_id`."""
    tool: str
    args: dict[str, Any] | None
    """What the model asked for. `None` for a step: no model asked for it."""
    status: Literal["finished", "waiting", "open"]
    """`waiting`: for an answer, or for a run that it started. `open`: it has not run yet, or runs now."""
    outcome: Outcome | None = None
    """Of a finished call."""
    output: Any = None
    """What a finished call returned: JSON that the model will read."""
    action_ids: tuple[str, ...] = ()
    """What it waits for, itself or in a block inside it. The ids of waits for child runs are among them."""


class OpenTurn(Record):
    """What was asked for in a turn that has not closed: by a model, or by the message that began a run."""

    id: str
    """Actions name it as `origin.message_id`."""
    run_id: str
    thread_id: str
    """Of that run. It is another thread for a run that was started below one of this thread."""
    call_id: str
    """The call of the agent whose turn it is; `root` for the block that the run executes."""
    text: str
    """What the model said beside its calls, or the message that began the run."""
    calls: tuple[OpenCall, ...]
    """In the order in which the model asked for them."""


class ThreadState(Record):
    """A snapshot of a thread, taken in one statement."""

    thread_id: str
    status: ThreadStatus
    messages: tuple[Turn, ...]
    """The conversation. A turn that is still open is left out: see `open_turns`."""
    open_turns: tuple[OpenTurn, ...] = ()
    """The turns that have not closed, those of runs below included; the thread's own come first."""
    pending: tuple[PendingAction, ...]
    runs: tuple[Run, ...]
    """Oldest first."""
    usage_total: Usage
    turns_total: int

    @property
    def open_turn(self) -> OpenTurn | None:
        """The first of the open turns: that of the run of this thread which waits. `None` if no turn is open."""
        return self.open_turns[0] if self.open_turns else None
