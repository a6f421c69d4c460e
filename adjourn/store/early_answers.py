"""Early answers: those that came before their action was open, kept until it is.

Owns `early_answers`. A kept answer is read, applied, and only then dropped: a crash in between
applies it twice, and the second time is a duplicate; dropped first it would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from adjourn.schemas.policy import Policy
from adjourn.store.database import Database

_POLICY: Final = Policy()

# A crash before the commit: the answer is still with its sender. After: it is kept. Sent again it
# is kept twice, and the second is a duplicate of the first when they are applied.
# The bounds are read from the snapshot, so answers that come at the very same time may exceed them
# by as many as there are of them.
KEEP = sa.text("""
insert into adjourn.early_answers (action_id, body, answered_by, received_at)
select :action_id, :body, :answered_by, adjourn.adjourn_now()
where (select count(*) from adjourn.early_answers where action_id = :action_id) < :per_action
    and (select count(*) from adjourn.early_answers) < :total
returning id
""")

# Reads only.
OF_ACTION = sa.text("""
select id, action_id, body, answered_by from adjourn.early_answers where action_id = :action_id order by id
""")

# Reads only. Of an action that exists, open or ended by now: what was kept for it can be judged.
FOR_OPEN_ACTIONS = sa.text("""
select e.id, e.action_id, e.body, e.answered_by
from adjourn.early_answers e join adjourn.actions a on a.id = e.action_id
order by e.id
limit :limit
""")

# A crash before the commit: they are applied again, as duplicates. After: they are gone, and applied.
DROP = sa.text("delete from adjourn.early_answers where id = any(cast(:ids as bigint[]))")

# A crash before the commit: the next sweep prunes.
PRUNE = sa.text("""
delete from adjourn.early_answers
where received_at < adjourn.adjourn_now() - make_interval(secs => :seconds)
    and not exists (select from adjourn.actions a where a.id = action_id)
returning id
""")

_SECONDS_PER_DAY: Final = 86_400


class EarlyAnswer(NamedTuple):
    """A kept answer."""

    id: int
    action_id: str
    body: str
    answered_by: str | None


def keep(
    db: Database,
    *,
    action_id: str,
    body: str,
    answered_by: str | None,
    per_action: int = _POLICY.early_answers_per_action,
    total: int = _POLICY.early_answers_kept,
) -> bool:
    """Keep an answer for an action that is not open yet. False: there are too many already.

    `body` is what the answer said, without its credential; `answered_by` who it was found to be from.
    """
    params = {
        "action_id": action_id,
        "body": body,
        "answered_by": answered_by,
        "per_action": per_action,
        "total": total,
    }
    return db.one(KEEP, params) is not None


def of_action(db: Database, action_id: str) -> tuple[EarlyAnswer, ...]:
    """What was kept for an action, in the order in which it came. `drop` each once it was applied."""
    return _read(db, OF_ACTION, {"action_id": action_id})


def for_open_actions(db: Database, limit: int) -> tuple[EarlyAnswer, ...]:
    """Kept answers whose action has opened since, but which nobody has applied: the sweep does."""
    return _read(db, FOR_OPEN_ACTIONS, {"limit": limit})


def drop(db: Database, ids: Sequence[int]) -> None:
    """Forget answers that were applied."""
    db.execute(DROP, {"ids": [*ids]}, repeatable=True)


def prune(db: Database, days: float = _POLICY.early_answer_days) -> int:
    """Forget answers whose action never opened. Returns how many."""
    return len(db.execute(PRUNE, {"seconds": days * _SECONDS_PER_DAY}, repeatable=True))


def _read(db: Database, statement: sa.TextClause, params: dict[str, Any]) -> tuple[EarlyAnswer, ...]:
    rows = db.execute(statement, params, repeatable=True)
    return tuple(EarlyAnswer(row.id, row.action_id, row.body, row.answered_by) for row in rows)
