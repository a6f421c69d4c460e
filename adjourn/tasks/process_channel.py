"""What a worker and the process of a tool send to each other: one JSON document a line. Nothing is pickled."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from adjourn.schemas import errors
from adjourn.schemas.actions import ActionState, NewAction
from adjourn.schemas.errors import AdjournError
from adjourn.schemas.items import RunFailure
from adjourn.schemas.messages import Outcome, ToolCall
from adjourn.schemas.record import Record
from adjourn.schemas.runs import Run

# --- from the worker ------------------------------------------------------------------------


class Order(Record):
    """The call whose body the process runs. The first thing that the worker sends."""

    kind: Literal["order"] = "order"
    run: Run
    call: ToolCall
    input: Any
    path: tuple[str, ...]
    """Names from the root block down to the tool."""
    message_id: str
    fingerprint: dict[str, str]
    """The contract of the tool as the worker has it."""
    actions: tuple[ActionState, ...]
    memos: dict[str, Any]


class Begin(Record):
    """The body is to begin: what says so in the log of the run, if anything has to, is durable."""

    kind: Literal["begin"] = "begin"


class Recorded(Record):
    """A memo is durable."""

    kind: Literal["recorded"] = "recorded"


class NotRecorded(Record):
    """A memo was refused, with the error that `run_once` raises."""

    kind: Literal["not_recorded"] = "not_recorded"
    error: RunFailure


class NewId(Record):
    """The id of the next wait."""

    kind: Literal["new_id"] = "new_id"
    id: str


class Time(Record):
    """The time by the clock of the database."""

    kind: Literal["time"] = "time"
    at: datetime


FromWorker = Order | Begin | Recorded | NotRecorded | NewId | Time

# --- from the process -----------------------------------------------------------------------


class NotBegun(Record):
    """The process cannot run the body, and has not run any of it."""

    kind: Literal["not_begun"] = "not_begun"
    problem: str


class CanBegin(Record):
    """The app is imported and the tool is found. Answered by `Begin`."""

    kind: Literal["can_begin"] = "can_begin"


class Remember(Record):
    """A memo that has to be durable before the body goes on. Answered by `Recorded` or `NotRecorded`."""

    kind: Literal["remember"] = "remember"
    key: str
    value: Any


class WantId(Record):
    """Asks for the id of the next wait."""

    kind: Literal["want_id"] = "want_id"


class WantTime(Record):
    """Asks for the time."""

    kind: Literal["want_time"] = "want_time"


class Closed(Record):
    """The body has ended. The last thing that the process sends, as the three below."""

    kind: Literal["closed"] = "closed"
    outcome: Outcome
    content: Any


class Waits(Record):
    """The body has suspended."""

    kind: Literal["waits"] = "waits"
    opened: tuple[NewAction, ...]


class Threw(Record):
    """The body has raised."""

    kind: Literal["threw"] = "threw"
    outcome: Outcome
    content: Any
    may_retry: bool


class Faulted(Record):
    """The run has to fail."""

    kind: Literal["faulted"] = "faulted"
    error: RunFailure


Report = NotBegun | CanBegin | Remember | WantId | WantTime | Closed | Waits | Threw | Faulted

_FROM_WORKER: Final[TypeAdapter[Any]] = TypeAdapter(Annotated[FromWorker, Field(discriminator="kind")])
_FROM_PROCESS: Final[TypeAdapter[Any]] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


def line_of(message: Record) -> bytes:
    """Return a message as one line. Raises `ValueError` for a value that JSON cannot hold."""
    # Escaped, so that no text of the user's can break the line or the encoding.
    return json.dumps(message.model_dump(mode="json"), ensure_ascii=True).encode("ascii") + b"\n"


def from_worker(line: bytes) -> FromWorker:
    """Read what the worker sent. Raises `ValueError`."""
    read: FromWorker = _FROM_WORKER.validate_python(json.loads(line))
    return read


def from_process(line: bytes) -> Report:
    """Read what the process sent. Raises `ValueError`."""
    read: Report = _FROM_PROCESS.validate_python(json.loads(line))
    return read


def rebuilt(failure: RunFailure) -> AdjournError:
    """Return the error that was sent: of the same class, with the same message and the same plain data."""
    known = getattr(errors, failure.type, None)
    of = known if isinstance(known, type) and issubclass(known, AdjournError) else AdjournError
    error = of.__new__(of, failure.message)  # not by `__init__`: each class takes other parts of its message
    vars(error).update({name: tuple(v) if isinstance(v, list) else v for name, v in failure.data.items()})
    return error
