"""What a replay of a run's log against the code found."""

from __future__ import annotations

from pydantic import computed_field

from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import RunStatus


class Check(Record):
    """Whether the log of a run fits the code that it was replayed against."""

    run_id: str
    thread_id: str
    agent: str
    status: RunStatus
    error: RunFailure | None = None
    """What this code would fail the run with, or how it comes to another end; None if it fits."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fits(self) -> bool:
        return self.error is None
