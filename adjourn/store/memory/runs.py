"""`adjourn.store.postgres.runs.starts` in memory, with what it offers from `claims`, `writes` and `endings`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from adjourn.schemas.errors import (
    DamagedRecordError,
    PoisonedRunError,
    RunError,
    RunIdClashError,
    StaleClaimError,
    StatementRefusedError,
    StoreUnavailableError,
    ThreadBusyError,
)
from adjourn.schemas.internal.start_requests import StartRequest
from adjourn.schemas.internal.state import Claim, End, Park, Requeue, Started, Write, Written
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.events import ThreadPosition
from adjourn.schemas.records.items import EndItem, Item, MessageItem, StoredItem, stored
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import Due, Run, RunStatus, WakeUp
from adjourn.store.memory.children import add_child
from adjourn.store.memory.tables import ActionRow, Memory, RunRow, first_behind, resolution
from adjourn.store.results import Cancelled
from adjourn.store.rules import CLOSED_BY_CANCEL, CLOSED_BY_FAILURE, cancelled, orphaned

_START_ATTEMPTS = 20

# --- starts ------------------------------------------------------------------------------------


def start(
    db: Memory,
    *,
    run_id: str,
    thread_id: str,
    agent: str,
    text: str,
    data: Any = None,
    limits: Limits | None,
    enqueue: bool,
    any_thread: bool = False,
) -> Started:
    def insert() -> RunRow | None:
        others = db.of_thread(thread_id)
        busy = any(row.active or row.behind for row in others)
        if run_id in db.runs or (busy and not enqueue):
            return None
        db.threads[thread_id] = db.threads.get(thread_id, 0) + 1
        row = RunRow(
            id=run_id,
            thread_id=thread_id,
            ordinal=db.threads[thread_id],
            agent=agent,
            status="queued",
            due=None if busy else "turn",
            due_at=db.now,
            wakeup_at=db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds),
            limits=limits,
            state_version=STATE_VERSION,
            created_at=db.now,
            updated_at=db.now,
        )
        row.append(MessageItem(text=text, data=data), db.now)
        db.runs[run_id] = row
        return row

    def in_the_way() -> list[RunRow]:
        others = db.of_thread(thread_id)
        behind = first_behind(others)
        return [row for row in others if row.active] + ([behind] if behind else [])

    for _ in range(_START_ATTEMPTS):
        row = db.statement("start", insert, repeatable=True)
        if row is not None:
            return Started(run_id=run_id, thread_id=thread_id, created=True, due=row.due is not None, at=row.created_at)
        same, others = db.statement("in_the_way", lambda: (db.runs.get(run_id), in_the_way()), repeatable=True)
        if same is not None:
            first = same.items[0].body
            assert first.kind == "message"
            before = StartRequest(same.agent, same.thread_id, first, same.limits)
            request = StartRequest(agent, None if any_thread else thread_id, MessageItem(text=text, data=data), limits)
            if differing := request.differing(before):
                raise RunIdClashError(run_id, differing)
            return Started(run_id=run_id, thread_id=same.thread_id, created=False, due=same.due is not None)
        if others and not enqueue:
            raise ThreadBusyError(thread_id, others[0].id, others[0].status)
    raise StoreUnavailableError("PostgreSQL", f"thread {thread_id} changed at every attempt to start a run on it")


def get(db: Memory, run_id: str) -> Run | None:
    row = db.statement("get", lambda: db.runs.get(run_id), repeatable=True)
    return None if row is None else row.record()


def items(db: Memory, run_id: str, after_seq: int = 0) -> tuple[Item, ...]:
    return db.statement("items", lambda: tuple(_items(db, run_id, after_seq)), repeatable=True)


def items_to_show(db: Memory, run_id: str) -> tuple[Item, ...]:
    def read() -> tuple[Item, ...]:
        return tuple(
            item.with_answer(db.actions[item.body.action_id].record().resolution)
            if item.body.kind == "resolution"
            else item
            for item in _items(db, run_id)
        )

    return db.statement("items_to_show", read, repeatable=True)


def list_runs(
    db: Memory, *, thread_id: str | None = None, status: RunStatus | None = None, limit: int = 100
) -> tuple[Run, ...]:
    def read() -> tuple[Run, ...]:
        if thread_id is None:
            newest = sorted(db.runs.values(), key=lambda row: (row.created_at, row.id), reverse=True)
        else:
            newest = db.of_thread(thread_id)[::-1]
        return tuple(row.record() for row in newest if status in (None, row.status))[:limit]

    return db.statement("list", read, repeatable=True)


def _items(db: Memory, run_id: str, after_seq: int = 0) -> Iterator[Item]:
    row = db.runs.get(run_id)
    return iter(()) if row is None else (item for item in row.items if item.seq > after_seq)


# --- claims ------------------------------------------------------------------------------------


def claim(db: Memory, run_id: str, *, suspect: bool, token: str, place: int | None = None) -> Claim | None:
    def take() -> Claim | None:
        row = db.runs.get(run_id)
        if row is None:
            return None
        before = (other for other in db.of_thread(row.thread_id) if other.ordinal < row.ordinal)
        if any(each.state_version > STATE_VERSION for each in (row, *before)):
            return None
        if not db.may_take(row, place):
            return None
        due = row.status == "queued" and row.due is not None and row.due_at <= db.now
        if row.token != token and not (due and (row.due == "suspect") == suspect):
            return None
        if row.token != token:
            row.claimed_at = None
        claimed = _load(db, row, token)
        row.claimed_at = row.claimed_at or db.now
        row.status, row.token, row.updated_at, row.state_version = "running", token, db.now, STATE_VERSION
        row.lease_until = db.now + timedelta(seconds=db.tuning.lease_seconds)
        return claimed

    return db.statement("claim", take, repeatable=True, run_id=run_id, token=token)


def reload(db: Memory, claim: Claim) -> Claim:
    def load() -> Claim:
        return _load(db, held(db, claim.run.id, claim.token), claim.token)

    return db.statement("reload", load, repeatable=True, run_id=claim.run.id, token=claim.token)


def renew(db: Memory, held: Sequence[tuple[str, str]]) -> set[str]:
    def extend() -> set[str]:
        rows = _still_held(db, held)
        for row in rows:
            row.lease_until = db.now + timedelta(seconds=db.tuning.lease_seconds)
        return {row.id for row in rows}

    return db.statement("renew", extend, repeatable=True)


def put_back(db: Memory, held: Sequence[tuple[str, str]]) -> list[WakeUp]:
    def give_back() -> list[WakeUp]:
        rows = _still_held(db, held)
        for row in rows:
            again(db, row, "suspect" if row.due == "suspect" else "reentry")
            row.wakeup_at = db.now
        return [row.wakeup for row in rows]

    return db.statement("put_back", give_back, repeatable=True)


def held(db: Memory, run_id: str, token: str) -> RunRow:
    """The run, if this token holds it. The fence behind which every write stands."""
    row = db.runs.get(run_id)
    if row is None or row.token != token:
        raise StaleClaimError(run_id)
    return row


def _still_held(db: Memory, claims: Sequence[tuple[str, str]]) -> list[RunRow]:
    return [db.runs[run_id] for run_id, token in claims if run_id in db.runs and db.runs[run_id].token == token]


def _load(db: Memory, row: RunRow, token: str) -> Claim:
    before = [other for other in db.of_thread(row.thread_id) if other.ordinal < row.ordinal and other.ended]
    run = row.record("running")
    return Claim(
        run=run.model_copy(update={"seconds": run.seconds + row.running_for(db.now)}),
        ordinal=row.ordinal,
        token=token,
        revision=row.revision,
        earlier=tuple(chain.from_iterable(map(_stored_items, before))),
        items=_stored_items(row),
        actions=tuple(action.record() for action in db.actions_of(row.id)),
        history_bytes=row.bytes + sum(other.bytes for other in before),
        paused=row.paused(db.now),
    )


def _stored_items(row: RunRow) -> tuple[StoredItem, ...]:
    return tuple(StoredItem(item.run_id, item.seq, item.body) for item in row.items)


# --- writes ------------------------------------------------------------------------------------


def write(db: Memory, run_id: str, token: str, seen_revision: int, write: Write) -> Written:
    if write.actions and not write.items:
        raise ValueError("a write that opens waits has to record their suspensions")
    if write.actions and isinstance(write.becomes, End):
        raise ValueError("a write that ends the run cannot open waits")

    def append() -> Written:
        row = held(db, run_id, token)
        if isinstance(write.becomes, End):
            return _end(db, row, write, write.becomes, "the run ended")
        _add(db, row, write)
        match write.becomes:
            case Park() if may_park(row, seen_revision):
                row.give_back(db.now)
                row.status, row.deaths = "parked", 0
            case Requeue(due=due, after_pause=after_pause):
                row.give_back(db.now)
                row.status, row.deaths = "queued", 0
                row.due, row.wakeups, row.due_at = due, 0, db.now
                row.wakeup_at = db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds)
                if after_pause and may_park(row, seen_revision) and row.paused(db.now):
                    row.due_at = row.wakeup_at = row.retry_at or db.now
        rests = row.status == "queued" and row.due_at > db.now
        seconds = row.seconds + row.running_for(db.now)
        return Written(
            status=row.status,
            rests=rests,
            revision=row.revision,
            seq=row.seq,
            at=db.now,
            bytes=_bytes(write),
            seconds=seconds,
        )

    name = type(write.becomes).__name__.lower() if write.becomes else "append"
    return db.statement(name, append, run_id=run_id, token=token)


def may_park(row: RunRow, seen_revision: int) -> bool:
    """Whether nothing has ended that the holder of the run has not seen."""
    return row.revision == seen_revision


def _bytes(write: Write) -> int:
    return sum(len(stored(body).encode()) for body in write.items)


def _add(db: Memory, row: RunRow, write: Write) -> None:
    for body in write.items:
        row.append(body, db.now)
    for asked in write.actions:
        expires = None if asked.timeout_seconds is None else db.now + timedelta(seconds=asked.timeout_seconds)
        asked = type(asked).model_validate_json(asked.model_dump_json())
        db.actions[asked.id] = ActionRow(asked, row.id, row.thread_id, db.now, expires)
        if asked.child is not None:
            add_child(db, row, asked.child)
    row.usage += write.usage
    row.turns += write.turns
    row.tool_calls += write.tool_calls
    if write.pause_seconds:
        until = db.now + timedelta(seconds=write.pause_seconds)
        row.retry_at = until if row.retry_at is None else max(row.retry_at, until)
    row.updated_at = db.now


# --- endings -----------------------------------------------------------------------------------


class Death(NamedTuple):
    """A run that was taken from a worker that died."""

    row: RunRow
    token: str | None
    deaths: int
    again: bool


def cancel(db: Memory, run_id: str, *, reason: str | None, by: str | None) -> Cancelled | None:
    return _end_live(db, run_id, cancelled(reason, by), None)


def close_orphan(db: Memory, run_id: str, revision: int) -> Cancelled | None:
    return _end_live(db, run_id, orphaned(), revision)


def fail_damaged(db: Memory, error: DamagedRecordError) -> Cancelled | None:
    return _end_live(db, error.run_id, End.failed(error), None, CLOSED_BY_FAILURE)


def _end_live(
    db: Memory, run_id: str, end: End, revision: int | None, closing_reason: str = CLOSED_BY_CANCEL
) -> Cancelled | None:
    def close() -> tuple[RunRow | None, Written | None]:
        row = db.runs.get(run_id)
        if row is None or row.ended or revision not in (None, row.revision):
            return row, None
        return row, _end(db, row, _end_write(end), end, closing_reason)

    row, written = db.statement("cancel", close)
    if row is None:
        return None
    if written is None:
        return db.statement("ended", partial(_ended, db, row), repeatable=True)
    place = ThreadPosition(row.ordinal, written.seq)
    return Cancelled(row.record(), True, place, written.closed_action_ids, written.next_run_id, written.unpropagated)


def _ended(db: Memory, row: RunRow) -> Cancelled:
    due = (other.id for other in db.of_thread(row.thread_id) if (other.status, other.due) == ("queued", "turn"))
    return Cancelled(row.record(), changed=False, next_run_id=next(due, None), unpropagated=row.unpropagated)


def record_death(db: Memory, run_id: str) -> Sequence[WakeUp]:
    def died() -> Death | None:
        row = db.runs.get(run_id)
        if row is None or row.status != "running" or row.due != "suspect":
            return None
        return take_from_dead(db, row)

    death = db.statement("died", died)
    if death is None:
        return ()
    if death.again:
        return (WakeUp(run_id=run_id, due="suspect"),)
    return poison(db, death, at_once=True)


def record_refusal(
    db: Memory,
    run_id: str,
    token: str,
    problem: str,
) -> Sequence[WakeUp]:
    def refused() -> Death | None:
        row = db.runs.get(run_id)
        if row is None or row.token != token:
            return None
        death = Death(row, row.token, row.deaths + 1, row.deaths < db.tuning.suspect_deaths)
        if death.again:
            again(db, row, "suspect" if row.due == "suspect" else "reentry")
            row.retry_at = None
            row.due_at = row.wakeup_at = db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds * 2**row.deaths)
            row.deaths += 1
        return death

    death = db.statement("refused", refused)
    if death is None or death.again:
        return ()
    error = StatementRefusedError(run_id, death.deaths, problem)
    return _fail(db, death, error, at_once=True)


def take_from_dead(db: Memory, row: RunRow) -> Death:
    """The run is due again, for a process of its own; not if it has died often enough."""
    death = Death(row, row.token, row.deaths + 1, row.deaths < db.tuning.suspect_deaths)
    if death.again:
        row.deaths += 1
        again(db, row, "suspect")
        row.wakeup_at = db.now + timedelta(seconds=db.tuning.wakeup_retry_seconds)
    return death


def poison(db: Memory, death: Death, *, at_once: bool) -> Sequence[WakeUp]:
    died = PoisonedRunError(death.row.id, death.deaths)
    return _fail(db, death, died, at_once=at_once)


def _fail(db: Memory, death: Death, why: RunError, *, at_once: bool) -> Sequence[WakeUp]:
    row, deaths = death.row, death.deaths
    end = End.failed(why)

    def close() -> Written | None:
        if row.token is None or row.token != death.token:
            return None
        if not (at_once or (row.lease_until is not None and row.lease_until <= db.now)):
            return None
        return _end(db, row, _end_write(end), end, CLOSED_BY_FAILURE, deaths)

    written = db.statement("poison", close)
    if written is None or written.next_run_id is None:
        return ()
    return (WakeUp(run_id=written.next_run_id, due="turn"),)


def again(db: Memory, row: RunRow, due: Due) -> None:
    row.give_back(db.now)
    row.status, row.due, row.wakeups = "queued", due, 0
    row.due_at, row.updated_at = db.now, db.now


def _end_write(end: End) -> Write:
    return Write(items=(EndItem(status=end.status, error=end.error),))


def _end(db: Memory, row: RunRow, write: Write, end: End, closing_reason: str, deaths: int = 0) -> Written:
    """The run ends, what is open closes, the next run of the thread is due."""
    assert not row.ended, f"{row.id} ended twice"
    was_active = row.active
    open_actions = [action for action in db.actions_of(row.id) if action.status == "pending"]
    for action in open_actions:
        action.status, action.resolved_at, action.reason = "cancelled", db.now, closing_reason
        row.append(resolution(action), db.now)
    _add(db, row, write)
    row.unpropagated = row.parent_run_id is not None or any(action.asked.child for action in open_actions)
    row.status, row.output, row.error, row.deaths = end.status, end.output, end.error, deaths
    row.give_back(db.now)
    row.revision += 1
    following = first_behind(db.of_thread(row.thread_id)) if was_active else None
    if following is not None:
        db.make_due(following)
    return Written(
        status=row.status,
        revision=row.revision,
        seq=row.seq,
        at=db.now,
        bytes=_bytes(write),
        seconds=row.seconds,
        next_run_id=None if following is None else following.id,
        closed_action_ids=tuple(action.id for action in open_actions),
        unpropagated=row.unpropagated,
    )
