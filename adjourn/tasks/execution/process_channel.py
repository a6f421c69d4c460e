"""What a worker and the process of a tool send to each other: one JSON document a line. Nothing is pickled."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from adjourn.schemas import errors
from adjourn.schemas.errors import AdjournError
from adjourn.schemas.records.actions import ActionState, NewAction
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.messages import Outcome, ToolCall
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run


class Order(Record):
    """The call whose body the process runs. The worker sends it first."""

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


class Word(Record):
    """A message that consists of its kind.

    `can_begin`: the process has imported the app and found the tool. `begin`: the worker has recorded whatever it has
    to record before the body begins. `recorded`: a memo is durable. With `want_id` and `want_time` the process asks for
    the id of the next wait and for the time by the clock of the database.
    """

    kind: Literal["can_begin", "begin", "recorded", "want_id", "want_time"]


class Given(Record):
    """The reply to `want_id`, or to `want_time` in ISO form."""

    kind: Literal["given"] = "given"
    value: str


class Failed(Record):
    """An error. `not_recorded`: `run_once` raises it, because its memo was refused. `faulted`: the run has to fail."""

    kind: Literal["not_recorded", "faulted"]
    error: RunFailure
    went_on: bool = True
    """As in `body.Stopped`."""


class NotBegun(Record):
    """The process cannot run the body, and has not run any of it."""

    kind: Literal["not_begun"] = "not_begun"
    problem: str


class Remember(Record):
    """A memo that has to be durable before the body continues. The worker replies `recorded` or `not_recorded`."""

    kind: Literal["remember"] = "remember"
    key: str
    value: Any


class Ended(Record):
    """The body has returned (`closed`) or raised (`threw`). As the message below, it is the last of the process."""

    kind: Literal["closed", "threw"]
    outcome: Outcome
    content: Any
    may_retry: bool = False
    """As in `body.Raised`."""


class Waits(Record):
    """The body has suspended."""

    kind: Literal["waits"] = "waits"
    opened: tuple[NewAction, ...]


FromWorker = Order | Word | Given | Failed
Report = Word | Failed | NotBegun | Remember | Ended | Waits

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
    error.args = (failure.message,)  # an OSError takes none from __new__
    vars(error).update({name: tuple(v) if isinstance(v, list) else v for name, v in failure.data.items()})
    return error
