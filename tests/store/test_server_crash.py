"""Postgres is killed with SIGKILL: what was answered stays answered, and a forgotten claim does no harm."""

from __future__ import annotations

from collections.abc import Callable

import psutil  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa

from adjourn.schemas.errors import StaleClaimError, StoreUnavailableError
from adjourn.schemas.internal.state import Park
from adjourn.store.migrations import upgrade
from adjourn.store.postgres.database import Database
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.store.steps import Steps, output, response
from tests.waiting import wait_until


def test_what_was_committed_survives_the_kill_of_its_server(own_servers: Callable[..., EmbeddedServers]) -> None:
    servers = own_servers(durable=True)
    upgrade(servers.database_url)
    db = Database(servers.database_url)
    # So that only what waits for the disk gets there before the kill.
    db.execute(sa.text("alter system set wal_writer_delay = '10s'"), {})
    db.execute(sa.text("alter system set autovacuum = off"), {})
    db.execute(sa.text("select pg_reload_conf()"), {})
    steps = Steps(db)
    answered, (action_id,) = steps.parked()
    driven = steps.claimed()
    steps.write(driven, response("call_1"))
    steps.open(driven, becomes=Park())
    steps.answer(action_id)
    forgotten = steps.claim(answered)
    _kill(db)
    with pytest.raises(StoreUnavailableError):
        db.ping()
    servers.stop()
    servers.start()
    db = Database(servers.database_url)
    steps = Steps(db)
    assert steps.action(action_id).action.status == "submitted"
    assert steps.kinds(answered) == ["message", "suspension", "resolution"]
    assert steps.run(driven.run.id).status == "parked"
    assert steps.run(answered).status == "queued", "the claim had not been waited for"
    with pytest.raises(StaleClaimError):
        steps.write(forgotten, output())
    again = steps.claim(answered)
    assert [state.action.status for state in again.actions] == ["submitted"]
    db.dispose()


def _kill(db: Database) -> None:
    """SIGKILL to the server and all its children, the server last, so that it cannot tidy up."""
    backend = db.one(sa.text("select pg_backend_pid() as pid"), {}).pid
    server = psutil.Process(backend).parent()
    assert server is not None
    family = [server, *server.children(recursive=True)]
    server.suspend()
    for process in reversed(family):
        process.kill()
    wait_until(lambda: not any(_alive(process) for process in family), what="the end of the server")


def _alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
