"""A deploy: the next version migrates the database while workers of this one are up, and come up again.

The migration is made up here, of what a migration may do: it adds columns, an index and a table. The workers are
real processes of this version, which know nothing of it.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from alembic.config import Config

from adjourn.store import migrations
from tests.cases.tools import YES
from tests.conftest import Deploy
from tests.deployment import Deployment

NEXT = "next"
MIGRATION = f"""
from alembic import op

revision, down_revision = "{NEXT}", "{migrations.head()}"


def upgrade():
    op.execute("alter table adjourn.runs add column priority integer not null default 0")
    op.execute("alter table adjourn.actions add column note text")
    op.execute("alter table adjourn.items add column note text")
    op.execute("create index runs_priority on adjourn.runs (priority) where status = 'queued'")
    op.execute("create table adjourn.schedules (id text primary key)")
"""


def migrate_to_next(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next version's `adjourn migrate` does."""
    history = folder / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, history, ignore=shutil.ignore_patterns("__pycache__"))
    (history / "versions" / f"{NEXT}.py").write_text(MIGRATION)
    with monkeypatch.context() as patched:
        config = Config()
        config.set_main_option("script_location", str(history))
        patched.setattr(migrations, "_config", lambda: config)
        migrations.upgrade(url)
        assert migrations.head() == NEXT


def answer_all(d: Deployment, run_id: str) -> None:
    for action in d.client.pending(run_id=run_id):
        assert d.client.submit(action.id, YES).status == "accepted"


def test_workers_of_the_version_before_go_on_and_come_up_again(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        parked = [d.parked("asker") for _ in range(2)]
        held = d.client.start("steps", "go")
        d.noted("second")
        migrate_to_next(d.settings.database, tmp_path, monkeypatch)

        # Up all along: what waits is answered, what is at work ends, what is new begins.
        answer_all(d, parked[0].id)
        d.effects.release("second")
        begun = d.parked("asker")
        answer_all(d, begun.id)
        assert [d.ended(run).status for run in (parked[0], held, begun)] == ["completed"] * 3
        assert worker.exit_code is None

        # Restarted in the middle of the deploy, with the migration that its start script runs.
        worker.send(signal.SIGTERM)
        worker.wait()
        migrations.upgrade(d.settings.database)
        assert migrations.current(d.db) == NEXT
        d.ready_worker()
        answer_all(d, parked[1].id)
        assert d.ended(parked[1]).status == "completed"
