"""Worker processes as they are deployed: starting, serving, stopping, and what they make of junk."""

from __future__ import annotations

import json
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from adjourn import Client
from adjourn.schemas.records.runs import Run
from adjourn.store.postgres.answers import dead_letters
from adjourn.store.postgres.database import Database
from adjourn.tasks.host.wakeups import QUEUES
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import Settings
from tests.conftest import ProcessFactory
from tests.flow.answering import GOOD, ROOT, WORKER, publisher, settings_for
from tests.processes import ChildProcess
from tests.waiting import LIMIT_SECONDS, wait_until

PLAIN_CELERY = [sys.executable, "-m", "celery", "-A", "adjourn.worker", "worker"]
FROM_A_CHECKOUT = [sys.executable, "-m", "celery", "-A", "worker", "worker"]
PREFORKED = [*PLAIN_CELERY, "-P", "prefork", "-c", "2"]
READY = "worker ready"
THREAD_START = {
    "ADJOURN_DATABASE_URL": "postgresql://ann:s3cret@127.0.0.1:1/app",
    "ADJOURN_REDIS_URL": "redis://:s3cret@127.0.0.1:1/0",
    "ADJOURN_BROKER_URL": "amqp://ann:s3cret@127.0.0.1:1//",
}
TUNING = {"sweep_seconds": 0.2, "lease_seconds": 2, "wakeup_retry_seconds": 0.5}


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return settings_for(database_url, redis_url, tuning=TUNING, concurrency=4)


@pytest.fixture
def settings_of_broker(database_url: str, redis_url: str, broker_url: str) -> Settings:
    broker = None if broker_url == redis_url else broker_url
    return settings_for(database_url, redis_url, broker, tuning=TUNING, concurrency=4)


def start(process: ProcessFactory, settings: Settings, argv: list[str] = WORKER, **variables: str) -> ChildProcess:
    child = process(argv, env={**settings.as_environment(), **variables}, cwd=ROOT)
    child.wait_for_log(READY)
    return child


def answer_through_queue(settings: Settings, client: Client, run: Run) -> None:
    (action,) = client.pending(run_id=run.id)
    with publisher(settings) as publishing:
        assert publishing.ask({"action_id": action.id, "data": {**GOOD, "note": "fine"}}).status == "accepted"


# --- starting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [WORKER, PLAIN_CELERY], ids=["adjourn", "celery"])
@pytest.mark.parametrize("variable", list(THREAD_START))
def test_what_cannot_be_reached_is_one_line_that_names_its_setting(
    settings: Settings, process: ProcessFactory, argv: list[str], variable: str
) -> None:
    child = process(argv, env={**settings.as_environment(), variable: THREAD_START[variable]}, cwd=ROOT)
    assert child.wait() != 0
    told = [line for line in child.log.splitlines() if variable in line]
    assert len(told) == 1
    assert "cannot reach" in told[0]
    assert "Traceback" not in child.log
    assert "s3cret" not in child.log


BROKEN_MODULES = {
    "an error": ("\nnobody()", "NameError: name 'nobody' is not defined", 2),
    "no Python": ("x = 1\nx ==== 2", "SyntaxError: invalid syntax", 2),
    "a missing module": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", 1),
    "a definition": ("from adjourn import tool\n\ntool(lambda: 1)", "DefinitionError: tool '<lambda>'", 3),
    "an error inside a library": ("import json\njson.loads('{')", "JSONDecodeError: Expecting", 2),
    "an exit": ("\n\nraise SystemExit(0)", "SystemExit: 0", 3),
}


@pytest.mark.parametrize("argv", [WORKER, PLAIN_CELERY], ids=["adjourn", "celery"])
@pytest.mark.parametrize("broken", BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_an_app_that_cannot_be_imported_is_one_line_that_names_the_place(
    settings: Settings, process: ProcessFactory, tmp_path: Path, argv: list[str], broken: tuple[str, str, int]
) -> None:
    text, problem, line = broken
    module = tmp_path / "broken.py"
    module.write_text(text)
    env = {**settings.as_environment(), "ADJOURN_APP": "broken:app"}
    child = process(argv, env=env, cwd=tmp_path)
    assert child.wait() != 0
    (told,) = child.log.splitlines()
    assert f"'broken' cannot be imported: {problem}" in told
    assert f"({module}:{line})" in told


def test_the_traceback_of_an_app_that_cannot_be_imported_is_there_for_debugging(
    settings: Settings, process: ProcessFactory, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("nobody()")
    argv = [*WORKER, "--app", "broken:app", "--log-level", "debug"]
    child = process(argv, env=settings.as_environment(), cwd=tmp_path)
    assert child.wait() != 0
    assert "Traceback" in child.log


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ADJOURN_APP", ""),
        ("ADJOURN_APP", "no.such.module:app"),
        ("ADJOURN_APP", "tests.flow.worker_app:nothing"),
        ("ADJOURN_APP", "tests.flow.worker_app:question"),
        ("ADJOURN_CONCURRENCY", "many"),
    ],
)
def test_a_wrong_setting_is_one_line_too(
    settings: Settings, process: ProcessFactory, variable: str, value: str
) -> None:
    child = process(WORKER, env={**settings.as_environment(), variable: value}, cwd=ROOT)
    assert child.wait() != 0
    assert len([line for line in child.log.splitlines() if variable in line]) == 1
    assert "Traceback" not in child.log


def test_a_database_without_tables_says_to_migrate(
    empty_database_url: str, redis_url: str, process: ProcessFactory
) -> None:
    child = process(WORKER, env=settings_for(empty_database_url, redis_url).as_environment(), cwd=ROOT)
    assert child.wait() != 0
    assert "adjourn migrate" in child.log
    assert "Traceback" not in child.log


# --- serving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [PLAIN_CELERY, FROM_A_CHECKOUT, PREFORKED], ids=["celery", "checkout", "prefork"])
def test_plain_celery_runs_everything(settings: Settings, process: ProcessFactory, argv: list[str]) -> None:
    start(process, settings, argv)
    with Client(settings) as client:
        run = client.wait(client.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
        answer_through_queue(settings, client, run)
        assert client.wait(run.id, until=["completed"], timeout=LIMIT_SECONDS).output == "done"


def test_a_run_parked_by_one_worker_is_finished_by_another(
    settings_of_broker: Settings, process: ProcessFactory
) -> None:
    settings = settings_of_broker
    first = start(process, settings)
    with Client(settings) as client:
        run = client.wait(client.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
        first.kill()
        second = start(process, settings)
        answer_through_queue(settings, client, run)
        run = client.wait(run.id, until=["completed"], timeout=LIMIT_SECONDS)
        assert (run.output, run.turns, run.deaths) == ("done", 2, 0)
        assert "FAILURE" not in second.log
        assert "Traceback" not in second.log


def test_the_parts_can_run_apart(settings: Settings, process: ProcessFactory) -> None:
    start(process, settings, ADJOURN_ROLES="turns")
    for role in ("resume", "sweep"):
        # Who reads answers, or sweeps, need not have the code.
        start(process, settings, ADJOURN_ROLES=role, ADJOURN_APP="")
    with Client(settings) as client:
        run = client.wait(client.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
        answer_through_queue(settings, client, run)
        client.wait(run.id, until=["completed"], timeout=LIMIT_SECONDS)


# --- junk ------------------------------------------------------------------------------------------


def test_junk_on_the_wakeup_queues_stops_nobody(settings_of_broker: Settings, process: ProcessFactory) -> None:
    settings = settings_of_broker
    worker = start(process, settings)
    wakeup = {"v": 1, "run_id": "run_1", "due": "turn"}
    headers: dict[str, Any] = {"task": "adjourn.turn", "id": "1", "lang": "py"}
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    junk: list[tuple[bytes, dict[str, Any]]] = [
        (b"junk", {}),
        (b"junk", {"headers": headers, "content_type": "application/json"}),
        (pickle.dumps([[wakeup], {}, embed]), {"headers": headers, "content_type": "application/x-python-serialize"}),
        (json.dumps([[wakeup], {}, embed]).encode(), {"headers": {**headers, "task": "nobody.knows"}}),
        (json.dumps([[wakeup], {}, embed]).encode(), {"headers": {**headers, "task": []}}),
        (json.dumps([[wakeup], {}, embed]).encode(), {"headers": {**headers, "eta": "3000-01-01T00:00:00Z"}}),
        (json.dumps([[1, 2, 3], {}, embed]).encode(), {"headers": headers, "content_type": "application/json"}),
        (b'{"task": "adjourn.turn", "id": "1", "args": [], "kwargs": {}}', {"content_type": "application/json"}),
    ]
    sent = 0
    with raw_producer(settings) as publish:
        # More than there are slots: one that stayed taken for ever would be felt.
        for _ in range(2):
            for queue in QUEUES.values():
                for body, options in junk:
                    publish(queue, body, options)
                    sent += 1
    if settings.broker_is_redis:
        with redis.Redis.from_url(settings.broker) as client:
            for queue in QUEUES.values():
                client.lpush(queue, b"\x80\x04junk", b'{"body": 1}')
                sent += 2
    db = Database(settings.database)
    wait_until(lambda: len(dead_letters.list(db, limit=1000)) == sent, what="every piece of junk to be refused")
    with Client(settings) as runs:
        for _ in range(settings.concurrency):
            run = runs.wait(runs.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
            answer_through_queue(settings, runs, run)
            runs.wait(run.id, until=["completed"], timeout=LIMIT_SECONDS)
    assert len(dead_letters.list(db, limit=1000)) == sent, "junk was delivered again"
    assert worker.log.count(READY) == 1
    assert worker.exit_code is None
    db.dispose()


@contextmanager
def raw_producer(settings: Settings) -> Iterator[Any]:
    broker = wakeup_broker(settings)
    with broker.connection() as connection, connection.channel() as channel:
        producer = connection.Producer(channel=channel)

        def publish(queue: str, body: bytes, options: dict[str, Any]) -> None:
            defaults = {"content_type": "application/octet-stream", "content_encoding": "binary"}
            producer.publish(body, routing_key=queue, **{**defaults, **options})

        yield publish


# --- tools that take the worker along ----------------------------------------------------------------


def test_a_tool_that_leaves_leaves_its_worker_alone(settings: Settings, process: ProcessFactory) -> None:
    worker = start(process, settings, ADJOURN_CONCURRENCY="1")
    with Client(settings) as client:
        left = [client.start("leaver", "go").id for _ in range(3)]
        for run_id in left:
            assert client.wait(run_id, timeout=LIMIT_SECONDS).ended
        client.wait(client.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
    assert worker.exit_code is None


def test_a_run_that_kills_its_worker_fails_and_others_are_served(settings: Settings, process: ProcessFactory) -> None:
    first = start(process, settings)
    with Client(settings) as client:
        poison = client.start("killer", "go")
        assert first.wait() == 1
        second = start(process, settings)
        other = client.wait(client.start("asker", "go").id, until=["parked"], timeout=LIMIT_SECONDS)
        run = client.wait(poison.id, until=["failed"], timeout=LIMIT_SECONDS)
        assert run.error is not None
        assert run.error.type == "PoisonedRunError"
        assert run.deaths == settings.tuning.suspect_deaths + 1
        assert second.exit_code is None, "the run killed another worker"
        answer_through_queue(settings, client, other)
        client.wait(other.id, until=["completed"], timeout=LIMIT_SECONDS)


# --- stopping ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deadline", "second signal"])
@pytest.mark.parametrize("argv", [WORKER, PLAIN_CELERY], ids=["adjourn", "celery"])
def test_a_turn_that_outlasts_the_shutdown_is_given_back(
    settings: Settings, process: ProcessFactory, tmp_path: Path, argv: list[str], how: str
) -> None:
    seconds = "0.5" if how == "deadline" else "3600"
    variables = {
        "LINGER_IN": str(tmp_path),
        "ADJOURN_TUNING__SHUTDOWN_SECONDS": seconds,
        "ADJOURN_TUNING__LEASE_SECONDS": "3600",
    }
    worker = start(process, settings, argv, **variables)
    with Client(settings) as client:
        run = client.start("lingerer", "go")
        wait_until((tmp_path / "begun").exists, what="the tool to begin")
        worker.send(signal.SIGTERM)
        if how == "second signal":
            worker.wait_for_log("stopping")
            worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        # Not by its lease, which would take an hour, and not as a suspect.
        assert (client.get_run(run.id).status, client.get_run(run.id).deaths) == ("queued", 0)
        (tmp_path / "enough").touch()
        start(process, settings, **variables)
        assert client.wait(run.id, until=["completed"], timeout=LIMIT_SECONDS).deaths == 0


def test_a_turn_that_ends_in_time_is_finished(settings: Settings, process: ProcessFactory, tmp_path: Path) -> None:
    worker = start(process, settings, LINGER_IN=str(tmp_path))
    with Client(settings) as client:
        run = client.start("lingerer", "go")
        wait_until((tmp_path / "begun").exists, what="the tool to begin")
        worker.send(signal.SIGTERM)
        worker.wait_for_log("stopping")
        (tmp_path / "enough").touch()
        assert worker.wait() == 0
        items = [item.body.kind for item in client.items(run.id)]
        assert items[:3] == ["message", "response", "output"]
