"""From rows to records: the columns that statements read, and how they become what schemas declare.

Owns the SQL fragments that load runs, items and actions, so that they are read alike everywhere.
Runs no statement.
"""

# ruff: noqa: S608 (statements are put together from constants of this room; values are always bound)

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import chain, starmap
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TypeVar, cast, get_args

import sqlalchemy as sa
from pydantic import Json, TypeAdapter, ValidationError

from adjourn.schemas.errors import DamagedRecordError
from adjourn.schemas.records.actions import ActionState, ActionStatus, NewAction, Resolution
from adjourn.schemas.records.items import ITEM, DamagedItem, EndStatus, Item, ItemBody, RunFailure, StoredItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import Cost, Usage
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.store.postgres.database import EARLIEST, LATEST
from adjourn.store.postgres.documents import document, line
from adjourn.store.rules import CLOSED_BY_ANSWER, CLOSED_BY_DEADLINE

T = TypeVar("T")

log = logging.getLogger(__name__)

ACTIVE: Final = "status in ('queued', 'running', 'parked') and due is not null"
"""A run that its thread is busy with. Exactly the predicate of the index `runs_active`, or it is not used."""
BEHIND: Final = "status = 'queued' and due is null"
"""A run that waits behind another of its thread. Exactly the predicate of the index `runs_behind`."""
ENDED: Final = "status in ({})".format(", ".join(f"'{status}'" for status in get_args(EndStatus)))
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
        "wakeup_at": f"{now} + make_interval(secs => :wakeup_retry_seconds)",
        "wakeups": "0",
    }
    return ", ".join(
        f"{column} = case when {when} then {value} else r.{column} end" for column, value in becomes.items()
    )


DECIDES: Final = "on_timeout in ('default', 'fail_run')"
"""The deadline of a wait decides for all waits of its `ask_any`. A deadline with `error` ends its own wait alone."""


def closed_by(ended: str, run_id: str) -> str:
    """The waits that are closed because one of their group was answered or decided, as the CTE `closed`.

    `ended` is the CTE of the waits that ended now, with `action_id`, `decided_group`, `fails` (True if its deadline
    fails the run) and `now`; `run_id` the run of one of them, `w`. A wait that ended meanwhile is no longer pending in
    the newest version of its row, and left alone.
    """
    return f"""closed as (
        update adjourn.actions as s
        set status = 'cancelled', resolved_at = w.now, closed_by = w.action_id,
            reason = case when w.fails then '{CLOSED_BY_DEADLINE}' else '{CLOSED_BY_ANSWER}' end
        from {ended} w
        where s.any_of = w.decided_group and s.run_id = {run_id} and s.id <> w.action_id and s.status = 'pending'
        returning s.id, s.call_id, s.run_id, w.now
    )"""


def kept_in_time(wait: str) -> str:
    """True if an answer that came before the deadline of `wait` is yet to be validated: it may be the one that counts.

    It is for this wait or for another one of the same `ask_any`. The subquery finds the ids first, so that each look
    is one by the index.
    """
    return f"""exists (
        select from (
            select {wait}.id
            union all
            select g.id from adjourn.actions g where g.any_of = {wait}.any_of and g.id <> {wait}.id
        ) as asked
        join adjourn.early_answers e on e.action_id = asked.id
        where e.receipt is null and e.received_at < {wait}.expires_at
    )"""


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
        'id', a.id, 'run_id', a.run_id, 'asked', a.asked, 'status', a.status,
        'opened_at', a.opened_at, 'expires_at', a.expires_at,
        'resolved_at', a.resolved_at, 'resume', a.resume, 'reason', a.reason, 'message', a.message,
        'answered_by', a.answered_by, 'answer_id', a.answer_id, 'channel', a.channel
    ) order by a.opened_at, a.id)::text, '[]')
"""
"""All actions `a` of a query as one JSON text, for `actions_of`."""

ACTION_ID: Final = """substring(i.body from '"action_id" ?: ?"([^"]+)"')"""
"""Which action the item `i` of a suspension or resolution is about. A damaged item does not fail the statement."""

RESOLUTIONS_JSON: Final = """
    coalesce(json_object_agg(a.id, json_build_object(
        'status', a.status, 'resolved_at', a.resolved_at, 'resume', a.resume, 'reason', a.reason,
        'message', a.message, 'answered_by', a.answered_by, 'answer_id', a.answer_id, 'channel', a.channel
    )) filter (where a.status <> 'pending' and a.child_run_id is null)::text, '{}')
"""
"""What was answered to the actions `a` of a query, for `items_with_answers`. A child's end is not an answer."""

RUNS_JSON: Final = (
    "coalesce(json_agg(json_build_object("
    + ", ".join(f"'{name}', r.{name}" for name in _RUN)
    + ") order by r.ordinal)::text, '[]')"
)
"""All runs `r` of a query as one JSON text, for `runs_of`."""


_BODY: Final = "(/* item */ i.body)"
_QUOTED_BODY: Final = "to_json(i.body)::text"
BODIES: Final = f"string_agg({_BODY}, ',' order by i.seq)"
"""The items `i` of one run, for `stored_items` and in brackets: a document each, as it was written, and commas."""


@lru_cache(maxsize=64)
def quoted(statement: sa.TextClause) -> sa.TextClause:
    """The same statement, with every body of an item as a JSON string.

    Only for a statement whose result could not be parsed: a body that is not JSON hides all bodies beside it
    unless each of them stands in a string of its own.
    """
    return sa.text(statement.text.replace(_BODY, _QUOTED_BODY))


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
        f""" || ',"body":' || {_BODY} || '}}'"""
    )
    return f"coalesce('[' || string_agg({item}, ',' order by {order}) || ']', '[]')"


class _StoredResolution(Record):
    status: ActionStatus
    resolved_at: datetime | None
    resume: Json[Any] | None
    reason: str | None
    message: str | None
    answered_by: str | None
    answer_id: str | None
    channel: str | None = None


class _StoredAction(_StoredResolution):
    id: str
    run_id: str
    asked: Json[NewAction]
    opened_at: datetime
    expires_at: datetime | None


class _StoredRun(Record):
    id: str
    thread_id: str
    agent: str
    status: RunStatus
    input_tokens: int
    output_tokens: int
    requests: int
    cost: Cost
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
_PATH: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])
_RESOLUTIONS: TypeAdapter[dict[str, _StoredResolution]] = TypeAdapter(dict[str, _StoredResolution])
_RUNS: TypeAdapter[tuple[_StoredRun, ...]] = TypeAdapter(tuple[_StoredRun, ...])


_NEUTRAL: Final = {
    **dict.fromkeys(("input_tokens", "output_tokens", "requests", "turns", "tool_calls", "deaths", "depth"), 0),
    "cost": Decimal(0),
    "seconds": 0.0,
    **dict.fromkeys(("created_at", "updated_at"), datetime.fromtimestamp(0, UTC)),
}
"""What a column of a run reads as if it holds what no run has."""


def run_of(row: Any, status: RunStatus | None = None) -> Run:
    """A run from `RUN_COLUMNS`; `status` where the statement has just changed it.

    A damaged column reads as empty, and the `error` of the run then names the row: a listing shows such a run
    beside the sound ones, and a claim of it fails it.
    """
    try:
        return _run_of(row, status, [])
    except ValidationError:
        columns, problems = _mended({name: getattr(row, name) for name in _RUN})
        return _run_of(SimpleNamespace(**columns), status, problems)


def _mended(columns: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The columns of a run, those that no run can have replaced, and what is wrong with these."""
    try:
        _StoredRun.model_validate(columns)
        return columns, []
    except ValidationError as error:
        wrong = {str(each["loc"][0]): f"{each['loc'][0]}: {each['msg']}" for each in error.errors(include_url=False)}
    return {**columns, **{name: _NEUTRAL.get(name) for name in wrong}}, list(wrong.values())


def _run_of(row: Any, status: RunStatus | None, problems: list[str]) -> Run:
    for column in ("created_at", "updated_at"):
        if getattr(row, column) in (EARLIEST, LATEST):
            problems.append(f"{column}: no time that a clock can show")

    def read(column: str, parse: Callable[[str], T]) -> T | None:
        text = getattr(row, column)
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            problems.append(f"{column}: {line(error)}")
            return None

    limits = read("limits", Limits.model_validate_json)
    output = read("output", document)
    error = read("error", RunFailure.model_validate_json)
    path = read("path", _PATH.validate_json)
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
        limits=limits,
        output=output,
        error=RunFailure.of(DamagedRecordError("runs", row.id, row.id, problems[0])) if problems else error,
        deaths=row.deaths,
        created_at=row.created_at,
        updated_at=row.updated_at,
        parent_run_id=row.parent_run_id,
        depth=row.depth,
        root_thread_id=row.root_thread_id,
        path=path or (),
    )


def output_of(row: Any) -> Any:
    """The output of a run, for a row that has no more of it than that; null if it is damaged."""
    try:
        return None if row.output is None else document(row.output)
    except ValueError as error:
        _note(DamagedRecordError("runs", row.id, row.id, f"output: {line(error)}"))
        return None


def runs_of(text: str) -> tuple[Run, ...]:
    """Runs from `RUNS_JSON`."""
    try:
        return tuple(run_of(row) for row in _RUNS.validate_json(text))
    except ValidationError:
        return tuple(run_of(SimpleNamespace(**row)) for row in json.loads(text, parse_float=Decimal))


def items_of(text: str) -> tuple[Item, ...]:
    """Items from `items_json`. A `DamagedItem` stands where a body cannot be read.

    Raises `ValueError` if a body hides those beside it: read the `quoted` statement then.
    """
    try:
        return _ITEMS.validate_json(text)
    except ValidationError:
        return tuple(map(_item, document(text)))


def stored_items(run_id: str, text: str) -> tuple[StoredItem, ...]:
    """All items of a run from `BODIES`: their places are known, for a run has no gaps.

    Damaged bodies as in `items_of`. Raises `ValueError` as it does.
    """
    try:
        return _stored_items(run_id, _BODIES.validate_json(text))
    except ValidationError:
        return _stored_items(run_id, tuple(map(_body, document(text))))


def stored_items_by_run(text: str) -> tuple[StoredItem, ...]:
    """All items of several runs, from an object with the `BODIES` of each under its id.

    A run with a damaged item is left out as a whole: half of a conversation is not one. Raises `ValueError` as
    `items_of` does.
    """
    try:
        return tuple(chain.from_iterable(starmap(_stored_items, _BODIES_BY_RUN.validate_json(text).items())))
    except ValidationError:
        runs = {run_id: tuple(map(_body, bodies)) for run_id, bodies in document(text).items()}
    sound = {run_id: bodies for run_id, bodies in runs.items() if not any(body.kind == "damaged" for body in bodies)}
    for run_id in runs.keys() - sound.keys():
        log.error("an earlier run of a thread is damaged and left out of its conversation", extra={"run_id": run_id})
    return tuple(chain.from_iterable(starmap(_stored_items, sound.items())))


def _stored_items(run_id: str, bodies: tuple[ItemBody, ...]) -> tuple[StoredItem, ...]:
    return tuple(StoredItem(run_id, seq, body) for seq, body in enumerate(bodies, 1))


def _item(given: dict[str, Any]) -> Item:
    try:
        return Item(**{**given, "body": _body(given["body"])})
    except ValidationError as error:
        return Item(**{**given, "at": EARLIEST, "body": DamagedItem(problem=line(error))})


def _body(given: Any) -> ItemBody:
    """One body, from a `quoted` statement or not."""
    try:
        return ITEM.validate_json(given) if isinstance(given, str) else ITEM.validate_python(given)
    except ValueError as error:
        return DamagedItem(problem=line(error))


def _note(error: DamagedRecordError) -> None:
    log.error("%s", error, extra={"run_id": error.run_id})


def refuse(error: DamagedRecordError) -> NoReturn:
    """Raise the error: for a reader that needs every action."""
    raise error


def actions_of(text: str, damaged: Callable[[DamagedRecordError], None] = _note) -> tuple[ActionState, ...]:
    """Actions from `ACTIONS_JSON`. Calls `damaged` for each that cannot be read, and leaves it out."""
    try:
        return tuple(_action_of(row) for row in _ACTIONS.validate_json(text))
    except ValueError:
        return tuple(state for row in json.loads(text) if (state := _sound_action(row, damaged)) is not None)


def _sound_action(row: dict[str, Any], damaged: Callable[[DamagedRecordError], None]) -> ActionState | None:
    try:
        return _action_of(_StoredAction.model_validate(row))
    except ValueError as error:
        damaged(DamagedRecordError("actions", row["id"], row["run_id"], line(error)))
        return None


def _action_of(row: _StoredAction) -> ActionState:
    return row.asked.opened(row.opened_at, row.expires_at, status=row.status, resolution=_resolution_of(row))


def items_with_answers(text: str, resolutions: str) -> tuple[Item, ...]:
    """Items from `items_json`, with what was answered from the `RESOLUTIONS_JSON` of their actions.

    The value of an answer can be large, and a worker needs it with the action. So the item does not repeat it.
    """
    ended = _resolutions_of(resolutions)
    return tuple(
        item.with_answer(ended.get(item.body.action_id)) if item.body.kind == "resolution" else item
        for item in items_of(text)
    )


def _resolutions_of(text: str) -> dict[str, Resolution | None]:
    try:
        return {id: _resolution_of(row) for id, row in _RESOLUTIONS.validate_json(text).items()}
    except ValidationError:
        # One is damaged: its item is shown without a value, and the others with theirs.
        sound = {}
        for id, columns in json.loads(text).items():
            with suppress(ValidationError):
                sound[id] = resolution_of(columns)
        return sound


def resolution_of(columns: dict[str, Any]) -> Resolution | None:
    """How an action ended, from the columns of its row; `None` for one that is pending."""
    return _resolution_of(_StoredResolution.model_validate(columns))


def _resolution_of(row: _StoredResolution) -> Resolution | None:
    if row.status == "pending":
        return None
    has_value = row.status in ("submitted", "expired")
    return Resolution(
        status=row.status,
        resolved_at=cast(datetime, row.resolved_at),
        resume=row.resume if has_value else None,
        data=None if has_value else row.resume,
        reason=row.reason,
        message=row.message,
        answered_by=row.answered_by,
        channel=row.channel,
        answer_id=row.answer_id,
    )
