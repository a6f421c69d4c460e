"""Dead letters: messages that were refused, kept for somebody to read.

Owns `dead_letters`. They are never tried again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import sqlalchemy as sa

from adjourn.schemas.records.answers import Issue
from adjourn.store.postgres.database import Database
from adjourn.store.results import DeadLetter

log = logging.getLogger(__name__)


# A crash before the commit: the message is still in its queue. After: it is kept, and may be kept
# twice if the queue gives it again.
ADD = sa.text("""
insert into adjourn.dead_letters (at, channel, status, detail, action_id, body, issues)
values (adjourn.adjourn_now(), :channel, :status, :detail, :action_id, :body, :issues)
""")

# Reads only.
LIST = sa.text("""
select id, at, channel, status, detail, action_id, body, issues
from adjourn.dead_letters order by id desc limit :limit
""")

# A crash before the commit: the next sweep prunes. Ids have gaps, so a few fewer may be kept.
PRUNE = sa.text("""
delete from adjourn.dead_letters
where id <= (select max(id) from adjourn.dead_letters) - :keep
returning id
""")


def add(
    db: Database,
    *,
    channel: str,
    status: str,
    detail: str,
    body: bytes,
    action_id: str | None = None,
    issues: Sequence[Issue] = (),
) -> None:
    params = {
        "channel": channel,
        "status": status,
        "detail": _storable(detail),
        "action_id": None if action_id is None else _storable(action_id),
        "body": body[: db.tuning.dead_letter_bytes],
        # As ASCII with escapes: whatever was in the message, this can be stored.
        "issues": json.dumps([issue.model_dump() for issue in issues]),
    }
    db.execute(ADD, params)


def list(db: Database, limit: int = 100) -> tuple[DeadLetter, ...]:
    return tuple(
        DeadLetter(
            id=row.id,
            at=row.at,
            channel=row.channel,
            status=row.status,
            detail=row.detail,
            action_id=row.action_id,
            body=bytes(row.body),
            issues=_issues(row.issues),
        )
        for row in db.execute(LIST, {"limit": limit}, repeatable=True)
    )


def _issues(text: str) -> tuple[Issue, ...]:
    """The issues of a letter; none if that column of its row is damaged."""
    try:
        return tuple(Issue.model_validate(issue) for issue in json.loads(text))
    except (TypeError, ValueError, RecursionError):
        log.error("the issues of a dead letter cannot be read")
        return ()


def prune(db: Database) -> int:
    return len(db.execute(PRUNE, {"keep": db.tuning.dead_letters_kept}, repeatable=True))


def _storable(text: str) -> str:
    """What a refused message said may be what Postgres refuses in turn: NUL, half a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
