"""What the driver does when something goes wrong that is neither the run's fault nor its tools'."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text

from adjourn import tool
from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.faulty import Act
from adjourn.tasks.execution import drive as driving
from adjourn.tasks.models.scripted import call, say
from tests.waiting import wait_until
from tests.world import Counters, scripted, world


@tool
def count(n: int) -> int:
    """Count."""
    return n


def test_a_fault_of_the_driver_ends_the_run_and_says_so(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by us")

    monkeypatch.setattr(driving, "plan", broken)
    with world(database_url, redis_url, count, model=scripted(call("count", n=1), say("ok"))) as w:
        run = w.run(w.start())
        assert run.status == "failed"
        assert run.error is not None
        assert (run.error.type, run.error.data["problem"]) == ("DriverFaultError", "ZeroDivisionError: by us")


def test_a_run_of_a_newer_version_is_left_to_newer_workers(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, count, model=scripted(say("ok"))) as w:
        run_id = w.enqueue().run_id
        w.db.execute(text("update adjourn.runs set state_version = state_version + 1"), {})
        w.settle()
        assert (w.run(run_id).status, w.run(run_id).deaths) == ("queued", 0)
        w.db.execute(text("update adjourn.runs set state_version = state_version - 1"), {})
        w.advance(w.tuning.wakeup_retry_seconds + 1)
        w.sweep()
        assert w.run(run_id).status == "completed"


def test_a_run_behind_one_of_a_newer_version_is_left_to_newer_workers(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, count, model=scripted(say("ok"))) as w:
        first = w.start(thread_id="thr_both")
        newer = text("update adjourn.runs set state_version = state_version + :by where id = :id")
        w.db.execute(newer, {"by": 1, "id": first})
        run_id = w.start(thread_id="thr_both")
        assert (w.run(run_id).status, w.run(run_id).deaths) == ("queued", 0)
        w.db.execute(newer, {"by": -1, "id": first})
        w.advance(w.tuning.wakeup_retry_seconds + 1)
        w.sweep()
        assert w.run(run_id).status == "completed"


def test_an_outage_of_postgres_is_no_death_of_a_worker(database_url: str, redis_url: str) -> None:
    outages = iter([True])

    def failing(act: Act) -> None:
        if act.name == "claims.write" and next(outages, False):
            raise StoreUnavailableError("PostgreSQL", "is away")

    tuning = Tuning(lease_seconds=0.3)
    with world(database_url, redis_url, count, model=scripted(say("ok")), tuning=tuning) as w:
        w.store.before = failing
        run_id = w.enqueue().run_id
        with pytest.raises(StoreUnavailableError):
            w.settle()
        wait_until(lambda: w.run(run_id).status == "queued", what="the claim is given back")
        assert w.run(run_id).deaths == 0
        w.sweep()
        assert w.run(run_id).status == "completed"


REFUSE = """
create or replace function adjourn.refuse() returns trigger language plpgsql as
$$ begin raise exception 'too much for this index' using errcode = 'program_limit_exceeded'; end $$
"""
REFUSING = "create trigger refuse before"
REFUSED = "execute function adjourn.refuse()"


def test_a_run_whose_statements_postgres_always_refuses_fails_in_the_end_and_hurts_no_other(
    database_url: str, redis_url: str
) -> None:
    with world(database_url, redis_url, count, model=scripted(call("count", n=1), say("done"))) as w:
        run_id = w.enqueue(thread_id="thread-1").run_id
        behind = w.enqueue(thread_id="thread-1", enqueue=True).run_id
        w.db.execute(text(REFUSE), {})
        unstorable = f"new.kind = 'output' and new.run_id = '{run_id}'"
        w.db.execute(text(f"{REFUSING} insert on adjourn.items for each row when ({unstorable}) {REFUSED}"), {})
        for times in range(1, w.tuning.suspect_deaths + 1):
            w.settle()
            w.sweep()
            assert (w.run(run_id).status, w.run(run_id).deaths) == ("queued", times), "it waits for its next try"
            w.advance(w.tuning.wakeup_retry_seconds * 2 ** (times - 1))
            w.sweep()
        run = w.run(run_id)
        assert run.status == "failed"
        assert run.error is not None
        assert (run.error.type, run.error.data["times"]) == ("StatementRefusedError", w.tuning.suspect_deaths + 1)
        assert "too much for this index" in run.error.message
        assert w.run(behind).status == "completed"


def test_an_outage_of_postgres_that_answers_is_counted_against_no_run(database_url: str, redis_url: str) -> None:
    tuning = Tuning(lease_seconds=0.3)

    @tool
    def full() -> int:
        """From here on the disk is full."""
        w.db.execute(text(f"{REFUSING} update on adjourn.runs for each statement {REFUSED}"), {})
        return 1

    with world(database_url, redis_url, full, model=scripted(call("full"), say("ok")), tuning=tuning) as w:
        w.db.execute(text(REFUSE), {})
        run_id = w.enqueue().run_id
        with pytest.raises(StoreUnavailableError):
            w.settle()
        assert (w.run(run_id).status, w.run(run_id).deaths) == ("running", 0)
        w.db.execute(text("drop trigger refuse on adjourn.runs"), {})
        wait_until(lambda: w.run(run_id).status == "queued", what="the claim is given back")
        assert w.run(run_id).deaths == 0


def test_a_model_that_asks_for_a_thousand_calls_does_not_get_a_thousand_threads(
    database_url: str, redis_url: str
) -> None:
    seen = Counters()
    free = threading.Semaphore(driving._SIDE_BY_SIDE)

    @tool
    def many(n: int) -> int:
        """One of many."""
        assert free.acquire(blocking=False), "more at once than is allowed"
        try:
            return seen.bump("ran")
        finally:
            free.release()

    calls = [call("many", n=n) for n in range(200)]
    with world(database_url, redis_url, many, model=scripted(calls, say("ok"))) as w:
        run_id = w.start()
        assert w.run(run_id).status == "completed"
        assert seen["ran"] == len(w.outputs(run_id)) == 200
        assert {output.outcome for output in w.outputs(run_id)} == {"success"}
