"""Who claimed which run when, and who wrote what: a table that a trigger of the chaos fills beside Adjourn's own.

With it every repetition can be judged: one under a claim that was taken before the thing was recorded is the
work of a process that had lost its lease and did not know yet; under a later claim it breaks the promise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from adjourn.schemas.records.items import MemoItem, OutputItem, ResponseItem
from tests.chaos.ledger import Row
from tests.crash.checker import RunFacts

JOURNAL: Final = b"""
create schema chaos;
create table chaos.journal (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    run_id text not null, old_token text, new_token text, old_seq int not null, new_seq int not null
);
create function chaos.note() returns trigger language plpgsql as $$ begin
    insert into chaos.journal (run_id, old_token, new_token, old_seq, new_seq)
    values (new.id, old.token, new.token, old.seq, new.seq);
    return null;
end $$;
create trigger chaos after update on adjourn.runs for each row
when (old.token is distinct from new.token or old.seq <> new.seq) execute function chaos.note();
"""
FORGOTTEN_WITHIN: Final = timedelta(seconds=10)
"""A claim that a crash of PostgreSQL forgot was made shortly before it: it is the one commit that does not wait."""


@dataclass
class Journal:
    """The claims, by their tokens, and the writes of each run."""

    claimed_at: dict[str, datetime] = field(default_factory=dict)
    writes: defaultdict[str, list[tuple[int, int, str | None]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, connection: psycopg.Connection[Any]) -> Journal:
        journal = cls()
        rows = connection.execute(
            "select at, run_id, old_token, new_token, old_seq, new_seq from chaos.journal order by id"
        )
        for at, run_id, old_token, new_token, old_seq, new_seq in rows:
            if new_token is not None and new_token != old_token:
                journal.claimed_at[new_token] = at
            if new_seq > old_seq:
                journal.writes[run_id].append((old_seq, new_seq, old_token))
        return journal

    def writer(self, run_id: str, seq: int) -> str | None:
        """The token that an item was written under; none for what an answer or the sweep wrote."""
        return next((token for old, new, token in self.writes[run_id] if old < seq <= new), None)


def repetitions(run: RunFacts, rows: Sequence[Row], journal: Journal, crashes: Sequence[datetime]) -> Iterator[str]:
    """What of one run was done again after it was recorded, or twice under one claim."""
    recorded: dict[tuple[str, str], tuple[datetime, str | None]] = {}
    turn = 0
    for item in run.items:
        by = journal.writer(run.run.id, item.seq)
        if isinstance(item.body, ResponseItem):
            recorded["model", str(turn)] = item.at, by
            turn += 1
        elif isinstance(item.body, OutputItem):
            recorded["body", item.body.call_id] = item.at, by
        elif isinstance(item.body, MemoItem):
            recorded["once", item.body.call_id] = item.at, by
    passes: set[tuple[str, str, int, str]] = set()
    for row in rows:
        if row.kind not in ("model", "body", "once"):
            continue
        one = (row.kind, row.call_id, row.step, row.token)
        if one in passes:
            yield f"{row.kind} {row.name} ran twice under one claim"
        passes.add(one)
        if (row.kind, row.call_id) in recorded:
            at, by = recorded[row.kind, row.call_id]
            if row.at > at and (row.token == by or _claimed(row, journal, crashes) > at):
                yield f"{row.kind} {row.name} was recorded and ran again"


def _claimed(row: Row, journal: Journal, crashes: Sequence[datetime]) -> datetime:
    """When the claim of a row was taken."""
    known = journal.claimed_at.get(row.token)
    if known is not None:
        return known
    near = [at for at in crashes if abs(at - row.at) < FORGOTTEN_WITHIN]
    return min(near) - FORGOTTEN_WITHIN if near else row.at
