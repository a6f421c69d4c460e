"""Ten thousand answers through the resume queue: a tenth bad in every way, a tenth sent twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice

import pytest
from sqlalchemy import text

from adjourn.schemas.records.ids import new_action_id
from adjourn.store.postgres.answers import dead_letters
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.redis.connection import connect
from adjourn.store.redis.parking import Parking
from tests.conftest import ProcessFactory
from tests.flow.answering import BAD, GOOD, ROOT, WORKER, Bad, park, publisher, push_raw, settings_for

pytestmark = pytest.mark.timeout(900)

READY = "reading answers"
RECEIPTS_SECONDS = 600.0
RUNS, PER_RUN = 80, 100
TWICE = 1_000
BAD_ANSWERS = 900
HUGE = 3
"""10 MB each: enough to see that they do no harm."""
FOREIGN = [b"\x80\x04]\x94K\x01a.", b"not a message", b'{"a": 1}', b"[" * 10_000]
FOREIGN_ENTRIES = 60
ENDED = 20
"""Of each way for an action to have ended already."""

RESOLVED = text("""
select a.id, a.status, count(i.*) as resolutions
from adjourn.actions a left join adjourn.items i
    on i.run_id = a.run_id and i.kind = 'resolution' and i.body like '%' || a.id || '%'
where a.id = any(:ids)
group by a.id, a.status
""")


def bad_kinds() -> Iterator[Bad]:
    huge = [bad for bad in BAD if bad.status == "too_large"]
    yield from islice(cycle(huge), HUGE)
    yield from cycle([bad for bad in BAD if bad.status != "too_large"])


def test_each_good_answer_resolves_its_action_once_and_each_bad_one_is_refused(
    database_url: str, redis_url: str, process: ProcessFactory
) -> None:
    settings = settings_for(database_url, redis_url, roles="resume")
    db = Database(database_url)
    parked = [action for _ in range(RUNS) for action in park(db, PER_RUN)]
    good = [action.id for action in parked]
    Parking(connect(redis_url), db.signing_key).put(parked)
    still_open = [action.id for action in park(db, PER_RUN)]
    expired = [action.id for action in park(db, ENDED, timeout_seconds=0)]
    cancelled = park(db, ENDED)
    runs.cancel(db, cancelled[0].origin.run_id, reason=None, by=None)
    early = [new_action_id(db.signing_key()) for _ in range(ENDED)]

    messages: list[tuple[str, bytes]] = []
    messages += [("accepted or duplicate", answer(id)) for id in good + good[:TWICE]]
    messages += [
        (bad.status, bad.body(random.Random(n).choice(still_open)))
        for n, bad in enumerate(islice(bad_kinds(), BAD_ANSWERS))
    ]
    messages += [("late", answer(id)) for id in expired + [action.id for action in cancelled]]
    messages += [("early", answer(id)) for id in early]
    random.Random(1).shuffle(messages)

    with publisher(settings) as publishing:
        reader = process(WORKER, env=settings.as_environment(), cwd=ROOT)
        expected = {}
        for number, (status, body) in enumerate(messages):
            expected[publishing.publish(body)] = status
            if number % (len(messages) // FOREIGN_ENTRIES) == 0:
                push_raw(settings, FOREIGN[number % len(FOREIGN)])
        publishing.wait_for(lambda: len(publishing.receipts) == len(expected), RECEIPTS_SECONDS, "every receipt")
        receipts = publishing.receipts

    told = Counter((expected[id], receipt.status) for id, (receipt,) in receipts.items())
    accepted = Counter(receipt.action_id for (receipt,) in receipts.values() if receipt.status == "accepted")
    assert accepted == Counter(good)
    assert told.pop(("accepted or duplicate", "accepted")) == len(good)
    assert told.pop(("accepted or duplicate", "duplicate")) == TWICE
    assert all(status == said for status, said in told), told
    rows = db.execute(RESOLVED, {"ids": good})
    assert {(row.status, row.resolutions) for row in rows} == {("submitted", 1)}
    assert {row.status for row in db.execute(RESOLVED, {"ids": still_open})} == {"pending"}
    refused = BAD_ANSWERS + 2 * ENDED
    letters = dead_letters.list(db, limit=refused * 2)
    assert refused + FOREIGN_ENTRIES <= len(letters) <= refused + FOREIGN_ENTRIES + 1
    assert reader.exit_code is None
    assert reader.log.count(READY) == settings.resume_threads, "a reader had to begin again"
    db.dispose()


def answer(action_id: str) -> bytes:
    return json.dumps({"action_id": action_id, "data": GOOD}).encode()
