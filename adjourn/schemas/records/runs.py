"""Runs: one request on a thread, driven to an end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

from adjourn.schemas.records.items import EndStatus, RunFailure
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.record import Record, Version1

RunStatus = Literal["queued", "running", "parked", EndStatus]
ENDED: frozenset[RunStatus] = frozenset(get_args(EndStatus))
Due = Literal["turn", "reentry", "suspect"]
"""Which queue a run is due on: a model turn, a re-entry after an answer, a retry in a process of its own."""
WhenBusy = Literal["refuse", "enqueue", "supersede"]


class WakeUp(Record):
    """What a Celery message carries. It says only that a run is due; Postgres says the rest."""

    v: Version1 = 1
    run_id: str
    due: Due


class Run(Record):
    """A run as clients see it."""

    id: str
    thread_id: str
    agent: str
    status: RunStatus
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0
    """For which workers had it in hand, up to the last claim that was given back. Waiting never counts."""
    limits: Limits | None = None
    """Its own limits; without any, those of its agent apply."""
    output: Any = None
    error: RunFailure | None = None
    deaths: int = 0
    """Workers that died under it since it last moved."""
    parent_run_id: str | None = None
    """The run that started it, if one did."""
    depth: int = 0
    """How many runs are above it."""
    root_thread_id: str | None = None
    """Of a child: the thread of the run at the root of its tree."""
    path: tuple[str, ...] = ()
    """Of a child: names from the root block of the root run down to the call that started it."""
    created_at: datetime
    updated_at: datetime

    @property
    def ended(self) -> bool:
        return self.status in ENDED
