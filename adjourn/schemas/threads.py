"""Threads: conversations, and what a client sees of one."""

from __future__ import annotations

from typing import Literal

from adjourn.schemas.actions import PendingAction
from adjourn.schemas.messages import Turn, Usage
from adjourn.schemas.record import Record
from adjourn.schemas.runs import Run

ThreadStatus = Literal["idle", "queued", "running", "parked"]


class ThreadState(Record):
    """A snapshot of a thread, taken in one statement."""

    thread_id: str
    status: ThreadStatus
    messages: tuple[Turn, ...]
    """The conversation. A turn that is still open is left out."""
    pending: tuple[PendingAction, ...]
    runs: tuple[Run, ...]
    """Oldest first."""
    usage_total: Usage
    turns_total: int
