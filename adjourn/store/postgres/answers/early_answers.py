"""Answers that cannot be judged where they came in: kept until they can.

Those that came before their action was open are judged when it opens, those that only the live model can judge by a
worker that has it. Owns `early_answers`. A kept answer is read, applied, and only then dropped: a crash in between
applies it twice, and the second time is a duplicate; dropped first it would be lost. Where its sender waits, what
came of it takes its place until the sender has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from adjourn.store.postgres.database import Database
from adjourn.store.results import EarlyAnswer
from adjourn.store.rules import EARLY_RECEIPT_SECONDS

# A crash before the commit: the answer is still with its sender. After: it is kept. Sent again it
# is kept twice, and the second is a duplicate of the first when they are applied.
# The bounds are read from the snapshot, so answers that come at the very same time may exceed them
# by as many as there are of them.
KEEP = sa.text("""
insert into adjourn.early_answers (action_id, body, answered_by, received_at, channel, awaited)
select :action_id, :body, :answered_by, adjourn.adjourn_now(), :channel, :awaited
where (select count(*) from adjourn.early_answers where action_id = :action_id and receipt is null) < :per_action
    and (select count(*) from adjourn.early_answers) < :total
returning id
""")

# Reads only.
OF_ACTION = sa.text("""
select id, action_id, body, answered_by, channel, awaited, received_at from adjourn.early_answers
where action_id = :action_id and receipt is null
order by id
""")

# Reads only. Of an action that exists, open or ended by now: what was kept for it can be judged.
FOR_OPEN_ACTIONS = sa.text("""
select e.id, e.action_id, e.body, e.answered_by, e.channel, e.awaited, e.received_at
from adjourn.early_answers e join adjourn.actions a on a.id = e.action_id
where e.receipt is null and e.id > :after
order by e.id
limit :limit
""")

# A crash before the commit: they are applied again, as duplicates. After: they are gone, and applied.
DROP = sa.text("delete from adjourn.early_answers where id = any(cast(:ids as bigint[]))")

# A crash before the commit: it is judged again, as a duplicate. After: its sender reads the receipt.
CONCLUDE = sa.text("""
update adjourn.early_answers set receipt = :receipt where id = :id and receipt is null
""")

# Reads only.
RECEIPT = sa.text("select receipt from adjourn.early_answers where id = :id and receipt is not null")

# A crash before the commit: the next sweep prunes.
PRUNE = sa.text("""
delete from adjourn.early_answers
where received_at < adjourn.adjourn_now() - make_interval(secs => :seconds)
    and not exists (select from adjourn.actions a where a.id = action_id)
    or receipt is not null and received_at < adjourn.adjourn_now() - make_interval(secs => :receipt_seconds)
returning id
""")

_SECONDS_PER_DAY: Final = 86_400


def keep(
    db: Database,
    *,
    action_id: str,
    body: str,
    answered_by: str | None,
    channel: str | None = None,
    awaited: bool = False,
) -> int | None:
    params = {
        "action_id": action_id,
        "body": body,
        "answered_by": answered_by,
        "channel": channel,
        "awaited": awaited,
        "per_action": db.tuning.early_answers_per_action,
        "total": db.tuning.early_answers_kept,
    }
    row = db.one(KEEP, params)
    return None if row is None else int(row.id)


def of_action(db: Database, action_id: str) -> tuple[EarlyAnswer, ...]:
    return _read(db, OF_ACTION, {"action_id": action_id})


def for_open_actions(db: Database, limit: int, after: int = 0) -> tuple[EarlyAnswer, ...]:
    return _read(db, FOR_OPEN_ACTIONS, {"limit": limit, "after": after})


def drop(db: Database, ids: Sequence[int]) -> None:
    db.execute(DROP, {"ids": [*ids]}, repeatable=True)


def conclude(db: Database, id: int, receipt: str) -> None:
    db.execute(CONCLUDE, {"id": id, "receipt": receipt}, repeatable=True)


def receipt(db: Database, id: int) -> str | None:
    row = db.one(RECEIPT, {"id": id}, repeatable=True)
    return None if row is None else str(row.receipt)


def prune(db: Database) -> int:
    params = {"seconds": db.tuning.early_answer_days * _SECONDS_PER_DAY, "receipt_seconds": EARLY_RECEIPT_SECONDS}
    return len(db.execute(PRUNE, params, repeatable=True))


def _read(db: Database, statement: sa.TextClause, params: dict[str, Any]) -> tuple[EarlyAnswer, ...]:
    rows = db.execute(statement, params, repeatable=True)
    return tuple(EarlyAnswer(*row) for row in rows)
