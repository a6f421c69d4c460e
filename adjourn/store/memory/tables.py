"""The tables in memory, the one clock, and the one way to run a statement on them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import ActionState, ActionStatus, NewAction, Resolution
from adjourn.schemas.records.items import ITEM, Item, ItemBody, RunFailure, stored
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import Usage
from adjourn.schemas.records.runs import ENDED, Due, Run, RunStatus, WakeUp
from adjourn.store.results import DeadLetter

T = TypeVar("T")

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
TICK: Final = timedelta(microseconds=1)
"""No two statements of a real server have the same time."""


@dataclass(slots=True)
class RunRow:
    """A row of `runs`."""

    id: str
    thread_id: str
    ordinal: int
    agent: str
    status: RunStatus
    due: Due | None
    due_at: datetime
    wakeup_at: datetime
    limits: Limits | None
    state_version: int
    created_at: datetime
    updated_at: datetime
    seq: int = 0
    wakeups: int = 0
    token: str | None = None
    lease_until: datetime | None = None
    claimed_at: datetime | None = None
    revision: int = 0
    deaths: int = 0
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0
    output: Any = None
    error: RunFailure | None = None
    parent_run_id: str | None = None
    depth: int = 0
    root_thread_id: str | None = None
    path: tuple[str, ...] = ()
    unpropagated: bool = False
    retry_at: datetime | None = None
    newer_than: int | None = None
    items: list[Item] = field(default_factory=list)
    bytes: int = 0
    """Of the bodies of `items`."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def message(self) -> str:
        """What it was begun with."""
        body = self.items[0].body
        assert body.kind == "message"
        return body.text

    @property
    def active(self) -> bool:
        """Whether its thread is busy with it (`records.ACTIVE`)."""
        return not self.ended and self.due is not None

    def paused(self, now: datetime) -> bool:
        """Whether its models that could not be asked are left alone."""
        return self.retry_at is not None and self.retry_at > now

    def rests(self, now: datetime) -> bool:
        """Whether nothing comes of it until something happens (`records.RESTS`)."""
        return self.status == "parked" or (self.status == "queued" and self.retry_at is not None and self.due_at > now)

    @property
    def behind(self) -> bool:
        """Whether it waits behind another run of its thread (`records.BEHIND`)."""
        return self.status == "queued" and self.due is None

    @property
    def wakeup(self) -> WakeUp:
        """What is published of a run that is due."""
        assert self.due is not None
        return WakeUp(run_id=self.id, due=self.due)

    def record(self, status: RunStatus | None = None) -> Run:
        """As `records.run_of`."""
        return Run(
            id=self.id,
            thread_id=self.thread_id,
            agent=self.agent,
            status=status or self.status,
            usage=self.usage,
            turns=self.turns,
            tool_calls=self.tool_calls,
            seconds=self.seconds,
            limits=self.limits,
            output=self.output,
            error=self.error,
            deaths=self.deaths,
            created_at=self.created_at,
            updated_at=self.updated_at,
            parent_run_id=self.parent_run_id,
            depth=self.depth,
            root_thread_id=self.root_thread_id,
            path=self.path,
        )

    def running_for(self, now: datetime) -> float:
        """As `records.RUNNING_FOR`."""
        if self.claimed_at is None or self.lease_until is None:
            return 0.0
        return max(0.0, (min(now, self.lease_until) - self.claimed_at).total_seconds())

    def give_back(self, now: datetime) -> None:
        """As `records.GIVEN_BACK`."""
        self.seconds += self.running_for(now)
        self.token = self.lease_until = self.claimed_at = None

    def append(self, body: ItemBody | str, at: datetime) -> None:
        """Add an item, given as a body or as its text, as it is read back."""
        text = body if isinstance(body, str) else stored(body)
        self.seq += 1
        self.items.append(Item(run_id=self.id, seq=self.seq, at=at, body=ITEM.validate_json(text)))
        self.bytes += len(text.encode())


@dataclass(slots=True)
class ActionRow:
    """A row of `actions`."""

    asked: NewAction
    run_id: str
    thread_id: str
    opened_at: datetime
    expires_at: datetime | None
    status: ActionStatus = "pending"
    resolved_at: datetime | None = None
    resume: str | None = None
    reason: str | None = None
    message: str | None = None
    answered_by: str | None = None
    answer_id: str | None = None
    answer_digest: str | None = None
    channel: str | None = None
    closed_by: str | None = None

    @property
    def id(self) -> str:
        return self.asked.id

    @property
    def default_resume(self) -> str | None:
        return json.dumps(self.asked.default) if self.asked.on_timeout == "default" else None

    @property
    def order(self) -> tuple[datetime, str]:
        return self.opened_at, self.asked.id

    def overdue(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def decides(self) -> bool:
        """As `records.DECIDES`."""
        return self.asked.on_timeout in ("default", "fail_run")

    def record(self) -> ActionState:
        """As `records.actions_of`."""
        resolution = self._resolution()
        return self.asked.opened(self.opened_at, self.expires_at, status=self.status, resolution=resolution)

    def _resolution(self) -> Resolution | None:
        if self.status == "pending" or self.resolved_at is None:
            return None
        has_value = self.status in ("submitted", "expired")
        said = None if self.resume is None else json.loads(self.resume)
        return Resolution(
            status=self.status,
            resolved_at=self.resolved_at,
            resume=said if has_value else None,
            data=None if has_value else said,
            reason=self.reason,
            message=self.message,
            answered_by=self.answered_by,
            channel=self.channel,
            answer_id=self.answer_id,
        )


@dataclass(slots=True)
class EarlyRow:
    """A row of `early_answers`."""

    id: int
    action_id: str
    body: str
    answered_by: str | None
    received_at: datetime
    channel: str | None = None
    awaited: bool = False
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about to be run."""

    name: str
    work: Callable[[], Any]
    repeatable: bool
    """Whether the real one is sent again when the connection breaks under it."""
    run_id: str | None = None
    token: str | None = None
    """The claim that it is made under, if it is."""


class Memory:
    """A database. Stands where the core is given a `Database`, to hand it on to the store."""

    def __init__(self, tuning: Tuning | None = None, *, key: bytes = bytes(32)) -> None:
        self.tuning = tuning or Tuning()
        self.threads: dict[str, int] = {}
        """The last ordinal of each."""
        self.runs: dict[str, RunRow] = {}
        self.actions: dict[str, ActionRow] = {}
        self.early: dict[int, EarlyRow] = {}
        self.dead_letters: dict[int, DeadLetter] = {}
        self.groups: dict[tuple[str, str], int] = {}
        """How many children of a group are open, by run and name."""
        self.builds: dict[str, tuple[int, datetime]] = {}
        """The place of each, and until when it is live."""
        self.places = 0
        """The last that was given."""
        self.now = EPOCH
        self.tick = TICK
        self.around: Callable[[Statement], Any] = self.run
        """Called with every statement: runs it, or lets something happen before, instead or after."""
        self._key = key
        self._ids: Counter[str] = Counter()

    def clock(self) -> datetime:
        return self.now

    def signing_key(self) -> bytes:
        return self._key

    def ping(self) -> None:
        self.statement("ping", lambda: None, repeatable=True)

    def dispose(self) -> None:
        """Nothing is held open."""

    def statement(
        self,
        name: str,
        work: Callable[[], T],
        *,
        repeatable: bool = False,
        run_id: str | None = None,
        token: str | None = None,
    ) -> T:
        """Have a statement run by whoever stands around."""
        result: T = self.around(Statement(name, work, repeatable, run_id, token))
        return result

    def run(self, statement: Statement) -> Any:
        """Run it here and now."""
        self.now += self.tick
        return statement.work()

    def next_id(self, table: str) -> int:
        self._ids[table] += 1
        return self._ids[table]

    def is_outdated(self, place: int) -> bool:
        return any(other > place and until > self.now for other, until in self.builds.values())

    def may_take(self, row: RunRow, place: int | None) -> bool:
        """Whether a run is not left by the build at this place to newer ones."""
        return row.newer_than is None or place is None or row.newer_than < place or not self.is_outdated(place)

    def of_thread(self, thread_id: str) -> list[RunRow]:
        return sorted((row for row in self.runs.values() if row.thread_id == thread_id), key=lambda row: row.ordinal)

    def actions_of(self, run_id: str) -> list[ActionRow]:
        """By (opened_at, id)."""
        return sorted((row for row in self.actions.values() if row.run_id == run_id), key=lambda row: row.order)

    def make_due(self, row: RunRow) -> None:
        """The turn of a run that waited behind another. Fails where the index `runs_active` would refuse it."""
        assert not any(other.active for other in self.of_thread(row.thread_id)), f"{row.thread_id} has an active run"
        row.due, row.due_at, row.wakeups, row.updated_at = "turn", self.now, 0, self.now
        row.wakeup_at = self.now + timedelta(seconds=self.tuning.wakeup_retry_seconds)

    def wake(self, row: RunRow) -> bool:
        """What the end of an action does to its run. Whether that rested."""
        row.revision += 1
        row.updated_at = self.now
        if not row.rests(self.now):
            return False
        row.status, row.due, row.due_at, row.wakeups = "queued", "reentry", self.now, 0
        row.wakeup_at = self.now + timedelta(seconds=self.tuning.wakeup_retry_seconds)
        return True


def first_behind(rows: Iterable[RunRow]) -> RunRow | None:
    """The next run of a thread."""
    return min((row for row in rows if row.behind), key=lambda row: row.ordinal, default=None)


def resolution(action: ActionRow, **said: str | None) -> str:
    """The item of an action's end, as `json_build_object` writes it: with other spaces than pydantic does."""
    fields = {
        "kind": "resolution",
        "call_id": action.asked.origin.tool_call_id,
        "action_id": action.id,
        "status": action.status,
        **said,
    }
    pairs = (f"{json.dumps(key)} : {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items())
    return f"{{{', '.join(pairs)}}}"
