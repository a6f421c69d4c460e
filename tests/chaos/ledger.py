"""What tools and models of the chaos did, written by themselves to a file that no fault reaches.

Each row names the claim that it was done under, and has the time of the machine's monotonic clock, which all
its processes share and which goes on right where a worker's wall clock is an hour off.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from adjourn import Context
from adjourn.tasks.engine.activities import AskModel
from adjourn.tasks.execution import drive
from adjourn.tasks.models.scripted import responses_so_far
from tests.crash import ledger as crash_ledger

FILE: Final = "CHAOS_LEDGER"
"""The variable that tells a worker process the file."""
WITHOUT: Final = "CHAOS_WITHOUT"
"""The variable that tells a worker process which safeguard to be without."""
Kind = crash_ledger.Kind


class Row(NamedTuple):
    """One thing that happened. `call_id` is the number of the turn for a model; `step` how many answers a pass
    of a body had when it began.
    """

    at: datetime
    kind: Kind
    run_id: str
    call_id: str
    name: str
    value: str | None
    token: str
    step: int

    def as_crash_row(self) -> crash_ledger.Row:
        return crash_ledger.Row(self.at, self.kind, self.run_id, self.call_id, self.name, self.value)


def note(ctx: Context, kind: Kind, name: str, value: str | None = None) -> None:
    """Say that a tool does something now."""
    _write(kind, ctx.run_id, ctx.call_id, name, value, _claim(ctx._recorder), len(ctx.suspend_history))


def note_models() -> None:
    """From now on say whenever this process asks a model, if it is a worker of the chaos.

    A model itself is not told under which claim it is asked.
    """
    if FILE not in os.environ:
        return  # somebody else only reads the app
    respond = drive._Driver._response

    def noted(driver: Any, ask: AskModel, told: str) -> Any:
        view = driver._writer.view
        turn = responses_so_far(drive._request(ask, told, view))
        _write("model", view.run.id, str(turn), ask.agent.name, None, _claim(driver._writer), 0)
        return respond(driver, ask, told)

    drive._Driver._response = noted  # type: ignore[method-assign]


def read(file: Path) -> list[Row]:
    """All rows, in order, with their times on the wall clock of this process."""
    offset = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    epoch = datetime.fromtimestamp(0, UTC)
    rows = []
    for line in file.read_text().splitlines():
        at, *rest = json.loads(line)
        rows.append(Row(epoch + timedelta(seconds=at + offset), *rest))
    return rows


def _claim(writer: Any) -> str:
    return str(writer._claim.token)


def _write(*fields: Any) -> None:
    row = json.dumps([time.clock_gettime(time.CLOCK_MONOTONIC), *fields]) + "\n"
    # One write to a file that is appended to is never torn, and what is written outlives its process.
    descriptor = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, row.encode())
    finally:
        os.close(descriptor)
