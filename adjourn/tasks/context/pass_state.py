"""What one pass of a tool call knows and collects, for the parts of `Context`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import (
    DefinitionError,
    ReplayMismatchError,
    RoundTripError,
    RunError,
    ToolError,
)
from adjourn.schemas.errors.base import shown
from adjourn.schemas.records.actions import ActionState, Approved, NewAction, Origin
from adjourn.schemas.records.entries import Entry
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.wait_points import WaitPoint
from adjourn.schemas.strict_json import clean_text
from adjourn.tasks.context.earlier_waits import unreadable


class Suspension(BaseException):
    """Control flow: the body stops here and its run parks.

    A `BaseException`, so that `except Exception` and retry policies let it pass.
    """

    def __init__(self, action_id: str) -> None:
        super().__init__(f"suspended at {action_id}")
        self.action_id = action_id


class Recorder(Protocol):
    """Where a pass writes what has to outlive it."""

    def memo(self, call_id: str, key: str, value: Any) -> None:
        """Make a memo durable. Raises `StaleClaimError` if the claim is lost, `TooLargeError` if it is too large."""

    def new_action_id(self) -> str:
        """A fresh signed id."""

    def now(self) -> datetime:
        """The time by the clock of the database. Raises `StoreUnavailableError`."""


@dataclass
class PassRecord:
    """What happened in one pass, for the driver. The context writes it; the body does not see it."""

    opened: list[NewAction] = field(default_factory=list)
    """Waits that this pass reached and that are not stored yet, in the order of the asking."""
    suspended: bool = False
    """True if this pass raised a `Suspension`."""
    fault: RunError | None = None
    """A mismatch, or a recorded value that cannot be read. It fails the run even if the body swallows it."""
    misuse: ToolError | None = None
    """A misuse closes the call, also if it was raised in a task that the body does not await."""
    answer_types: set[str] = field(default_factory=set)
    """The names of the types of the answers that this pass was given."""
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def end(self) -> None:
        """Note that the body has ended: a thread or task that it left cannot suspend any more."""
        with self.lock:
            self.ended = True


class PassState:
    """The fields that all parts of a `Context` share."""

    def __init__(
        self,
        *,
        call: ToolCall,
        input: Any,
        tool: str,
        wait_points: Mapping[str, WaitPoint[Any, Any]],
        fingerprint: dict[str, str],
        origin: Callable[[str], Origin],
        actions: Sequence[ActionState],
        memos: dict[str, Any],
        recorder: Recorder,
        record: PassRecord,
        approvals: tuple[Approved, ...] = (),
        input_schema: dict[str, Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.input: Any = input
        self.approvals = approvals
        """Who approved this call before it ran, what they said and what they changed, in their order."""
        self._pass = record
        self._call = call
        self._tool = tool
        self._wait_points = wait_points
        self._fingerprint = fingerprint
        self._input_schema = input_schema
        self._origin = origin
        self._actions = actions
        self._memos = memos
        self._recorder = recorder
        self._asked: Counter[tuple[str, str | None]] = Counter()
        self._entry: Entry | None = None
        self._read: set[str] = set()
        """The actions that the body has read by `entry` or `suspend_history`."""
        self._function = function
        """The body, in which the types of undeclared waits are looked for."""
        self._undeclared_types: dict[tuple[str, str | None, int], Contract[Any]] = {}
        """The types of the answers that undeclared asks of this pass have given, by wait, key and ordinal."""
        self._open_asks: list[tuple[str, str | None]] = []
        self._lock = record.lock
        self._steps = 0
        self._drawn: Counter[str] = Counter()
        """How many values of each kind this pass has taken so far."""
        self._once_keys: set[str] = set()
        """Of the `run_once` that are running now."""

    @property
    def call_id(self) -> str:
        """The id of this call; the same on every pass."""
        return self._call.id

    @property
    def run_id(self) -> str:
        return self._origin("").run_id

    @property
    def thread_id(self) -> str:
        return self._origin("").thread_id

    @property
    def idempotency_key(self) -> str:
        """The same for every pass of this call, and for no other: hand it to services that take one."""
        return f"{self.run_id}:{self._call.id}"

    def _load(self, contract: Contract[Any], data: Any, what: str, state: ActionState | None = None) -> Any:
        """Read a recorded value, of the wait `state` if it is an answer.

        Raises `StoredValueError`, which fails the run and keeps the value.
        """
        try:
            return contract.load(data)
        except RoundTripError as error:
            self._pass.fault = unreadable(f"{self._tool} ({self._call.id})", what, contract, error.issues, state)
        raise self._pass.fault

    def _text(self, what: str, given: object) -> str:
        """An argument that has to be text, without NUL and lone surrogates. Raises `DefinitionError`."""
        if not isinstance(given, str):
            raise DefinitionError(f"tool {self._tool!r}", f"{what} is {shown(given)}, which is not text", "give text")
        return clean_text(given)

    def _text_or_none(self, what: str, given: object) -> str | None:
        return None if given is None else self._text(what, given)

    def _mismatch(self, place: str, problem: str) -> ReplayMismatchError:
        fault = self._pass.fault = ReplayMismatchError(f"{self._tool} ({self._call.id})", place, problem)
        return fault
