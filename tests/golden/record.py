"""Writes down the state of a database at this schema: `python -m tests.golden.record DATABASE_URL REDIS_URL`.

Run once per released schema, on an empty, migrated database; the file is committed and never changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import text

from adjourn.schemas.internal.state import Write
from adjourn.schemas.records.items import ResponseItem, StartItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.store.migrations import head
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from tests.golden.app_0001 import app
from tests.world import World

TABLES = ("threads", "runs", "items", "actions", "child_groups", "early_answers", "meta")
FOLDER = Path(__file__).with_name("state")


def fill(w: World) -> None:
    """Runs in every state in which a deploy may find them."""
    w.start(agent="inline", run_id="run_parked_first", thread_id="thr_inline")
    w.enqueue(agent="inline", run_id="run_behind", thread_id="thr_inline", enqueue=True)
    w.start(agent="inline", run_id="run_parked_second")
    w.answer(w.the_action("run_parked_second"), {"approved": True, "comment": "one"})
    w.start(agent="entry", run_id="run_entry_first")
    w.start(agent="entry", run_id="run_entry_second")
    w.answer(w.the_action("run_entry_second"), {"approved": False, "comment": "one"})
    w.start(agent="client", run_id="run_client")
    w.start(agent="entry", run_id="run_answered")
    w.answer(w.the_action("run_answered"), {"approved": True, "comment": "kept"}, settle=False)
    w.start(agent="entry", run_id="run_completed")
    for comment in ("one", "two"):
        w.answer(w.the_action("run_completed"), {"approved": True, "comment": comment})
    w.start(agent="client", run_id="run_cancelled")
    runs.cancel(w.db, "run_cancelled", reason="not wanted", by="me")
    w.wakeups.waiting.clear()
    w.start("a risk", agent="router", run_id="run_routed")
    w.start("text", agent="parallel", run_id="run_branched")
    left = next(each for each in w.pending("run_branched") if each.origin.block_path[-1] == "left")
    w.answer(left, {"approved": True, "comment": "one"})
    w.start(agent="guarded", run_id="run_guarded")
    w.start(agent="boss", run_id="run_boss")
    w.start(agent="host", run_id="run_host")
    w.start("text", agent="paused", run_id="run_paused")
    w.start(agent="first", run_id="run_first")
    w.start(agent="first", run_id="run_first_answered")
    w.answer(w.pending("run_first_answered")[0], {"approved": True, "comment": "kept"}, settle=False)
    w.wakeups.waiting.clear()
    w.start(agent="edited", run_id="run_edited")
    w.answer(w.the_action("run_edited"), {"approved": True, "args": {"amount": 4}}, settle=False)
    w.wakeups.waiting.clear()
    w.enqueue(agent="inline", run_id="run_queued")
    w.enqueue(agent="once", run_id="run_died")
    w.wakeups.waiting.clear()
    claim = runs.claim(w.db, "run_died", suspect=False, token="dead")
    assert claim is not None
    begun = (
        ResponseItem(text="", calls=(ToolCall(id="call_died", tool="once_only", args={}),)),
        StartItem(call_id="call_died"),
    )
    runs.write(w.db, "run_died", claim.token, claim.revision, Write(items=begun, turns=1))


def dump(db: Database) -> dict[str, list[Any]]:
    """Every row, as JSON."""
    select = "select to_jsonb(t)::text as row from adjourn.{} t"
    return {name: [json.loads(row.row) for row in db.execute(text(select.format(name)), {})] for name in TABLES}


def load(db: Database, state: dict[str, list[Any]]) -> None:
    """Put rows into an empty database of their schema."""
    db.execute(text("delete from adjourn.meta"), {})
    for name in state:
        db.execute(
            text(
                f"insert into adjourn.{name} overriding system value "
                f"select * from jsonb_populate_recordset(null::adjourn.{name}, cast(:rows as jsonb))"
            ),
            {"rows": json.dumps(state[name])},
        )


def main(database_url: str, redis_url: str) -> None:
    w = World(app, database_url, redis_url)
    try:
        fill(w)
        file = FOLDER / f"{head()}.json"
        file.write_text(json.dumps(dump(w.db), indent=1, sort_keys=True) + "\n")
    finally:
        w.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
