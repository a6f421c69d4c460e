"""Threads that ended long ago go, whole; nothing that lives or may live again is touched."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text
from typer.testing import CliRunner

from adjourn.schemas.internal.tuning import Tuning
from adjourn.store.postgres.threads import retention
from adjourn.store.results import ArchivedThread
from adjourn.tasks.lifecycle.retention import prune
from adjourn.tasks.models.scripted import call, say
from adjourn.worker.cli.program import app as program
from tests.flow.report_tools import approval_inline
from tests.world import World, scripted, world

DAY = 86_400
SCRIPT = (call("request_approval", summary="?"), say("ok"))


def ended(w: World, **options: str) -> str:
    run_id = w.start(**options)  # type: ignore[arg-type]
    w.answer(w.the_action(run_id), {"approved": True})
    return run_id


def rows(w: World) -> dict[str, int]:
    tables = ("threads", "runs", "items", "actions")
    return {name: w.db.one(text(f"select count(*) as n from adjourn.{name}"), {}).n for name in tables}


def test_an_ended_thread_goes_when_its_time_has_come(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT)) as w:
        ended(w)
        w.advance(29 * DAY)
        assert prune(w.store, days=30) == 0
        w.advance(2 * DAY)
        assert prune(w.store, days=30) == 1
        assert rows(w) == {"threads": 0, "runs": 0, "items": 0, "actions": 0}


def test_a_parked_run_and_its_thread_stay_however_old(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT)) as w:
        first = ended(w)
        thread_id = w.run(first).thread_id
        parked = w.start(thread_id=thread_id)
        gone = ended(w)
        w.advance(400 * DAY)
        assert prune(w.store, days=30) == 1
        assert w.run(first).status == "completed"
        assert w.answer(w.the_action(parked), {"approved": True}).status == "accepted"
        assert w.run(parked).status == "completed"
        assert gone not in {run.id for run in w.snapshot(thread_id)[0]}


def test_a_run_that_starts_while_its_thread_is_let_go_keeps_it(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT)) as w:
        thread_id = w.run(ended(w)).thread_id
        w.advance(31 * DAY)
        read = retention.read(w.db, thread_id)
        assert read is not None
        again = w.start(thread_id=thread_id)
        assert not retention.delete(w.db, read)
        assert len(w.snapshot(thread_id)[0]) == 2
        assert w.run(again).status == "parked"


def test_the_archive_holds_all_that_was_recorded(database_url: str, redis_url: str, tmp_path: Path) -> None:
    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT)) as w:
        run_id = ended(w)
        run, items = w.run(run_id), w.items(run_id)
        w.advance(31 * DAY)
        file = tmp_path / "threads.jsonl"
        env = {"ADJOURN_DATABASE_URL": database_url, "ADJOURN_REDIS_URL": redis_url}
        said = CliRunner().invoke(program, ["prune", "--days", "30", "--archive", str(file)], env=env)
        assert (said.exit_code, said.stdout) == (0, "1 thread deleted\n")
        (line,) = file.read_text().splitlines()
        kept = ArchivedThread.model_validate_json(line)
        assert (kept.runs, kept.items) == ((run,), items)
        assert [state.action.status for state in kept.actions] == ["submitted"]


def test_the_sweep_keeps_to_the_policy(database_url: str, redis_url: str) -> None:
    tuning = Tuning(retention_days=30)
    with world(database_url, redis_url, approval_inline, model=scripted(*SCRIPT), tuning=tuning) as w:
        ended(w)
        assert w.sweep().forgotten == 0
        w.advance(31 * DAY)
        assert w.sweep().forgotten == 1
        assert w.sweep().forgotten == 0
