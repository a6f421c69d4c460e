"""Statements and parameters of retries, for tests that meet them halfway."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from adjourn.store import rules
from adjourn.tasks.lifecycle.retry import FIXABLE

DONE = sa.text("""
with closed as (
    update adjourn.actions set status = 'cancelled', resolved_at = adjourn.adjourn_now() where run_id = :id
)
update adjourn.runs set status = 'completed', output = '"done"', unpropagated = true where id = :id returning id
""")

OUTCOME = sa.text(
    """update adjourn.runs set error = '{"type":"BlockFailedError","message":"no","data":{}}' where id = :id"""
)


def retry_params(run_id: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "types": sorted(FIXABLE),
        "types_anew": [],
        "orphaned": rules.PARENT_ENDED,
        "limits": None,
        "body": '{"kind":"retry"}',
        "wakeup_retry_seconds": 30.0,
    }
