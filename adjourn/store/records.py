"""From rows to records: the columns that statements read, and how they become what schemas declare.

Owns the SQL fragments that load runs, items and actions, so that they are read alike everywhere.
Runs no statement.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from itertools import chain, starmap
from typing import Any, Final, cast

from pydantic import Json, TypeAdapter

from adjourn.schemas.actions import ActionState, ActionStatus, NewAction, Resolution
from adjourn.schemas.items import Item, ItemBody, Placed, RunFailure
from adjourn.schemas.limits import Limits
from adjourn.schemas.messages import Usage
from adjourn.schemas.record import Record
from adjourn.schemas.runs import Run, RunStatus

ACTIVE: Final = "status in ('queued', 'running', 'parked') and due is not null"
"""A run that its thread is busy with. Exactly the predicate of the index `runs_active`, or it is not used."""
BEHIND: Final = "status = 'queued' and due is null"
"""A run that waits behind another of its thread. Exactly the predicate of the index `runs_behind`."""
ENDED: Final = "status in ('completed', 'failed', 'cancelled')"
RESTS: Final = """
    (r.status = 'parked' or (r.status = 'queued' and r.retry_at is not null and r.due_at > adjourn.adjourn_now()))
"""
"""Nothing comes of run `r` until something happens to it, or a pause after a model that could not be asked is over."""


def woken(now: str, when: str = RESTS) -> str:
    """Run `r`, if it rests, is due at once. To be read in the newest version of its row, that is, in an update."""
    becomes = {
        "status": "'queued'",
        "due": "'reentry'",
        "due_at": now,
        "hint_at": f"{now} + make_interval(secs => :rehint_seconds)",
        "hints": "0",
    }
    return ", ".join(
        f"{column} = case when {when} then {value} else r.{column} end" for column, value in becomes.items()
    )


_RUN: Final = (
    "id", "thread_id", "agent", "status", "input_tokens", "output_tokens", "requests", "cost", "turns", "tool_calls",
    "seconds", "limits", "output", "error", "deaths", "created_at", "updated_at",
    "parent_run_id", "depth", "root_thread_id", "path",
)  # fmt: skip
RUN_COLUMNS: Final = ", ".join(f"r.{name}" for name in _RUN)
"""What `run_of` reads, of the run `r`."""

RUNNING_FOR: Final = """
    greatest(0, cast(
        extract(epoch from least(adjourn.adjourn_now(), r.lease_until) - r.claimed_at) as double precision
    ))
"""
"""For how many seconds the claim on run `r` is held, or was until its lease ran out; 0 if it is not claimed."""
GIVEN_BACK: Final = f"token = null, lease_until = null, claimed_at = null, seconds = r.seconds + {RUNNING_FOR}"
"""The claim on run `r` has ended, and its time is counted."""

ACTIONS_JSON: Final = """
    coalesce(json_agg(json_build_object(
        'asked', a.asked, 'status', a.status, 'opened_at', a.opened_at, 'expires_at', a.expires_at,
        'resolved_at', a.resolved_at, 'resume', a.resume, 'reason', a.reason, 'message', a.message,
        'answered_by', a.answered_by, 'answer_id', a.answer_id
    ) order by a.opened_at, a.id)::text, '[]')
"""
"""All actions `a` of a query as one JSON text, for `actions_of`."""

RUNS_JSON: Final = (
    "coalesce(json_agg(json_build_object("
    + ", ".join(f"'{name}', r.{name}" for name in _RUN)
    + ") order by r.ordinal)::text, '[]')"
)
"""All runs `r` of a query as one JSON text, for `runs_of`."""


BODIES: Final = "string_agg(i.body, ',' order by i.seq)"
"""The items `i` of one run, for `placed_of` and in brackets: a document each, as it was written, and commas."""


def runs_under(which: str) -> str:
    """The ids of the runs for which `which` holds, and of those that were started under them, at any depth."""
    return f"""
        with recursive under as (
            select id from adjourn.runs where {which}
            union all
            select c.id from adjourn.runs c join under on c.parent_run_id = under.id
        )
        select id from under
    """


WAITED_FOR: Final = """
    recursive under as (
        select cast(:run_id as text) collate "C" as id
        union all
        select w.child_run_id from under cross join lateral (
            select * from adjourn.actions a where a.run_id = under.id offset 0
        ) w
        where w.status = 'pending' and w.child_run_id is not null
    )
"""
"""The ids of a run and of those that it waits for, at any depth: no more of its tree than goes on.

The offset keeps the conditions apart: Postgres, which cannot know how few actions a run has, would look through all
that are pending for each run.
"""


def items_json(order: str) -> str:
    """All items `i` of a query as one JSON text, for `items_of`.

    A body is a JSON document as it was written. It is put into the array unread, and the array
    is parsed once, by pydantic: a thread of a thousand items takes milliseconds.
    """
    item = (
        """'{"run_id":' || to_json(i.run_id) || ',"seq":' || i.seq || ',"at":' || to_json(i.at)"""
        """ || ',"body":' || i.body || '}'"""
    )
    return f"coalesce('[' || string_agg({item}, ',' order by {order}) || ']', '[]')"


class _StoredAction(Record):
    asked: Json[NewAction]
    status: ActionStatus
    opened_at: datetime
    expires_at: datetime | None
    resolved_at: datetime | None
    resume: Json[Any] | None
    reason: str | None
    message: str | None
    answered_by: str | None
    answer_id: str | None


class _StoredRun(Record):
    id: str
    thread_id: str
    agent: str
    status: RunStatus
    input_tokens: int
    output_tokens: int
    requests: int
    cost: Decimal
    turns: int
    tool_calls: int
    seconds: float
    limits: str | None
    output: str | None
    error: str | None
    deaths: int
    created_at: datetime
    updated_at: datetime
    parent_run_id: str | None
    depth: int
    root_thread_id: str | None
    path: str | None


_ITEMS: TypeAdapter[tuple[Item, ...]] = TypeAdapter(tuple[Item, ...])
_BODIES: TypeAdapter[tuple[ItemBody, ...]] = TypeAdapter(tuple[ItemBody, ...])
_BODIES_BY_RUN: TypeAdapter[dict[str, tuple[ItemBody, ...]]] = TypeAdapter(dict[str, tuple[ItemBody, ...]])
_ACTIONS: TypeAdapter[tuple[_StoredAction, ...]] = TypeAdapter(tuple[_StoredAction, ...])
_RUNS: TypeAdapter[tuple[_StoredRun, ...]] = TypeAdapter(tuple[_StoredRun, ...])


def run_of(row: Any, status: RunStatus | None = None) -> Run:
    """A run from `RUN_COLUMNS`; `status` where the statement has just changed it."""
    return Run(
        id=row.id,
        thread_id=row.thread_id,
        agent=row.agent,
        status=status or row.status,
        usage=Usage(
            input_tokens=row.input_tokens, output_tokens=row.output_tokens, requests=row.requests, cost=row.cost
        ),
        turns=row.turns,
        tool_calls=row.tool_calls,
        seconds=row.seconds,
        limits=None if row.limits is None else Limits.model_validate_json(row.limits),
        output=None if row.output is None else json.loads(row.output),
        error=None if row.error is None else RunFailure.model_validate_json(row.error),
        deaths=row.deaths,
        created_at=row.created_at,
        updated_at=row.updated_at,
        parent_run_id=row.parent_run_id,
        depth=row.depth,
        root_thread_id=row.root_thread_id,
        path=() if row.path is None else tuple(json.loads(row.path)),
    )


def runs_of(text: str) -> tuple[Run, ...]:
    """Runs from `RUNS_JSON`."""
    return tuple(run_of(row) for row in _RUNS.validate_json(text))


def items_of(text: str) -> tuple[Item, ...]:
    """Items from `items_json`."""
    return _ITEMS.validate_json(text)


def placed_of(run_id: str, text: str) -> tuple[Placed, ...]:
    """All items of a run from `BODIES`: their places are known, for a run has no gaps."""
    return _placed(run_id, _BODIES.validate_json(text))


def placed_by_run(text: str) -> tuple[Placed, ...]:
    """All items of several runs, from an object with the `BODIES` of each under its id."""
    return tuple(chain.from_iterable(starmap(_placed, _BODIES_BY_RUN.validate_json(text).items())))


def _placed(run_id: str, bodies: tuple[ItemBody, ...]) -> tuple[Placed, ...]:
    return tuple(Placed(run_id, seq, body) for seq, body in enumerate(bodies, 1))


def actions_of(text: str) -> tuple[ActionState, ...]:
    """Actions from `ACTIONS_JSON`."""
    return tuple(_action_of(row) for row in _ACTIONS.validate_json(text))


def _action_of(row: _StoredAction) -> ActionState:
    return row.asked.opened(row.opened_at, row.expires_at, status=row.status, resolution=_resolution_of(row))


def _resolution_of(row: _StoredAction) -> Resolution | None:
    if row.status == "pending":
        return None
    return Resolution(
        status=row.status,
        resolved_at=cast(datetime, row.resolved_at),
        resume=row.resume,
        reason=row.reason,
        message=row.message,
        answered_by=row.answered_by,
        answer_id=row.answer_id,
    )
