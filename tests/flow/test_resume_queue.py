"""The resume queue end to end: a real reader process, on Redis and on RabbitMQ, and whatever people send it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from kombu import Exchange, Queue

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import ResolutionItem
from adjourn.store.postgres.answers import dead_letters
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.host.wakeups import QUEUES, RESUME_QUEUE
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.broker.resume_consumer import RECEIPT_SECONDS
from adjourn.worker.config.settings import Settings
from tests.conftest import ProcessFactory
from tests.flow.answering import (
    BAD,
    GOOD,
    ROOT,
    WORKER,
    Publisher,
    forged,
    park,
    publisher,
    push_raw,
    settings_for,
    status_of,
)
from tests.processes import ChildProcess
from tests.waiting import wait_until

READY = "reading answers"


@dataclass
class Deployment:
    """A database, a queue, and a way to start readers of it."""

    settings: Settings
    db: Database
    publishing: Publisher
    process: ProcessFactory

    def reader(self, *argv: str, **variables: str) -> ChildProcess:
        """A process that reads the resume queue and sweeps, and drives nothing."""
        env = {**self.settings.as_environment(), **variables}
        return self.process(list(argv) or WORKER, env=env, cwd=ROOT)

    def ready(self, *argv: str, **variables: str) -> ChildProcess:
        child = self.reader(*argv, **variables)
        child.wait_for_log(READY)
        return child

    def letters(self) -> list[tuple[str, bytes]]:
        return [(letter.status, letter.body) for letter in reversed(dead_letters.list(self.db))]

    def resolutions(self, action: PendingAction) -> list[ResolutionItem]:
        items = runs.items(self.db, action.origin.run_id)
        return [item.body for item in items if isinstance(item.body, ResolutionItem)]


@pytest.fixture
def deployment(database_url: str, redis_url: str, broker_url: str, process: ProcessFactory) -> Iterator[Deployment]:
    broker = None if broker_url == redis_url else broker_url
    tuning = {"sweep_seconds": 0.2, "wakeup_retry_seconds": 0.5}
    settings = settings_for(database_url, redis_url, broker, roles="resume,sweep", tuning=tuning, resume_threads=1)
    db = Database(database_url)
    with publisher(settings) as publishing:
        yield Deployment(settings, db, publishing, process)
    db.dispose()


def good(action: PendingAction, **fields: object) -> dict[str, object]:
    return {"action_id": action.id, "data": GOOD, **fields}


def test_every_bad_answer_gets_its_receipt_and_its_dead_letter(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    reader = deployment.ready()
    for bad in BAD:
        body = bad.body(action.id)
        receipt = deployment.publishing.ask(body)
        assert (bad.name, receipt.status) == (bad.name, bad.status)
        assert bad.says in receipt.detail + " ".join(issue.message + issue.path for issue in receipt.issues), bad
        status, kept = deployment.letters()[-1]
        assert (bad.name, status) == (bad.name, bad.status)
        assert len(kept) <= deployment.settings.tuning.dead_letter_bytes
        assert status_of(deployment.db, action) == "pending"
    assert len(deployment.letters()) == len(BAD)
    receipt = deployment.publishing.ask(good(action))
    assert (receipt.status, receipt.run_id) == ("accepted", action.origin.run_id)
    assert reader.exit_code is None
    assert reader.log.count(READY) == 1, "the reader had to begin again"
    assert not (ROOT / "pickle-was-loaded").exists()


def test_bytes_that_are_no_message_are_kept_and_the_next_answer_is_served(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    deployment.ready()
    foreign = [b"\x80\x04]\x94K\x01a.", b"not a message", b'{"a": 1}', b"[" * 10_000]
    for body in foreign:
        push_raw(deployment.settings, body)
    assert deployment.publishing.ask(good(action)).status == "accepted"
    assert deployment.letters() == [("malformed", body) for body in foreign]


def test_a_plain_answer_without_any_envelope_is_an_answer(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    deployment.ready()
    push_raw(deployment.settings, json.dumps(good(action)).encode())
    wait_until(lambda: status_of(deployment.db, action) == "submitted", what="the answer to be taken")


def test_a_message_that_says_it_is_compressed_is_not_inflated(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    deployment.ready()
    receipt = deployment.publishing.ask(b"\x1f\x8b junk", headers={"compression": "application/x-gzip"})
    assert receipt.status == "malformed"
    receipt = deployment.publishing.ask(good(action), headers={"compression": "application/x-gzip"})
    assert receipt.status == "accepted"


def test_the_first_answer_wins(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    deployment.ready()
    ask = deployment.publishing.ask
    assert ask(good(action, answer_id="a1")).status == "accepted"
    assert ask(good(action, answer_id="a1")).status == "duplicate"
    for late in (good(action, answer_id="a2"), {**good(action, answer_id="a1"), "data": {"approved": False}}):
        receipt = ask(late)
        assert (receipt.status, receipt.action_status) == ("late", "submitted")
    (resolution,) = deployment.resolutions(action)
    assert (resolution.status, resolution.answer_id) == ("submitted", "a1")


def test_an_answer_before_its_action_is_kept_and_applied_when_that_opens(deployment: Deployment) -> None:
    action_id = new_action_id(deployment.db.signing_key())
    deployment.ready()
    assert deployment.publishing.ask({"action_id": action_id, "data": {"approved": "yes"}}).status == "early"
    assert deployment.publishing.ask({"action_id": action_id, "data": GOOD}).status == "early"
    (action,) = park(deployment.db, action_id=action_id)
    wait_until(lambda: status_of(deployment.db, action) == "submitted", what="the kept answer to be applied")
    assert [status for status, _ in deployment.letters()] == ["invalid"]
    receipt = deployment.publishing.ask({"action_id": forged(action_id), "data": GOOD})
    assert receipt.status == "unknown"


def test_no_receipt_goes_to_our_own_queues_and_none_is_owed_to_nobody(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    reader = deployment.ready()
    for reply_to in (RESUME_QUEUE, *QUEUES.values(), "x" * 255, "", None):
        deployment.publishing.publish(b"junk", reply_to=reply_to)
    assert deployment.publishing.ask(good(action)).status == "accepted"
    assert [status for status, _ in deployment.letters()] == ["malformed"] * (len(QUEUES) + 4)
    assert reader.log.count(READY) == 1


def test_receipts_that_nobody_reads_are_not_kept_for_ever(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    deployment.ready()
    left_behind = f"receipts-{action.id}"
    with wakeup_broker(deployment.settings).connection() as connection:
        queue = Queue(left_behind, exchange=Exchange(""), routing_key=left_behind, durable=True)(connection)
        queue.declare()
        deployment.publishing.publish(b"junk", reply_to=left_behind)
        assert deployment.publishing.ask(good(action)).status == "accepted"
        if deployment.settings.broker_is_redis:
            with redis.Redis.from_url(deployment.settings.broker) as client:
                assert 0 < client.ttl(left_behind) <= RECEIPT_SECONDS
        else:
            receipt = queue.get(no_ack=True)
            assert receipt.properties["expiration"] == str(RECEIPT_SECONDS * 1000)


def test_answers_wait_for_a_database_that_is_away(deployment: Deployment) -> None:
    (action,) = park(deployment.db)
    reader = deployment.ready()
    url = deployment.settings.database.replace("+psycopg", "")
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as admin:
        admin.execute(f"alter database {name} allow_connections false")
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        correlation_id = deployment.publishing.publish(good(action))
        reader.wait_for_log("answers wait for the store")
        admin.execute(f"alter database {name} allow_connections true")
    publishing = deployment.publishing
    publishing.wait_for(lambda: correlation_id in publishing.receipts, what="the receipt")
    assert publishing.receipts[correlation_id][0].status == "accepted"
    assert reader.exit_code is None


KILLED = """
import os, signal, sys
from adjourn.store.postgres.answers import actions
from adjourn.worker.broker import resume_consumer

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

def submit_and_die(*args, **options):
    submit(*args, **options)
    die()

submit = resume_consumer.receive
resume_consumer.receive = {"before": die, "after": submit_and_die}[sys.argv[1]]
from adjourn.worker.process.worker_process import run
from adjourn.worker.config.settings import load_settings
sys.exit(run(load_settings()))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_answer_survives_the_death_of_its_reader(deployment: Deployment, moment: str) -> None:
    """Killed before the commit, or after it and before the acknowledgement."""
    taken = park(deployment.db, 3)
    ids = [deployment.publishing.publish(good(action)) for action in taken]
    visibility = {"ADJOURN_RESUME_VISIBILITY_SECONDS": "1"}
    child = deployment.reader(sys.executable, "-c", KILLED, moment, **visibility)
    assert child.wait() == -signal.SIGKILL
    deployment.ready(**visibility)
    publishing = deployment.publishing
    publishing.wait_for(lambda: all(id in publishing.receipts for id in ids), what="every receipt")
    first = publishing.receipts[ids[0]][0].status
    assert first == ("accepted" if moment == "before" else "duplicate")
    assert {status_of(deployment.db, action) for action in taken} == {"submitted"}
    assert [len(deployment.resolutions(action)) for action in taken] == [3, 3, 3], "an answer took effect twice"
    assert deployment.letters() == []


def readers(client: redis.Redis) -> list[dict[str, str]]:
    """Connections of readers of answers in this test's database; other tests share the server."""
    number = str(client.connection_pool.connection_kwargs["db"])
    return [each for each in client.client_list() if each["db"] == number and each["cmd"] == "blmove"]


def test_dropped_connections_are_made_again(redis_url: str, database_url: str, process: ProcessFactory) -> None:
    """A reader goes on after its broker has hung up on it, again and again."""
    settings = settings_for(database_url, redis_url, roles="resume")
    db = Database(database_url)
    with publisher(settings) as publishing, redis.Redis.from_url(redis_url) as client:
        reader = process(WORKER, env=settings.as_environment(), cwd=ROOT)
        reader.wait_for_log(READY)
        for _ in range(3):
            # The reader is whoever moves entries aside; the receipts are read in another way.
            wait_until(lambda: readers(client), what="the reader to wait for an answer")
            for each in readers(client):
                client.client_kill_filter(_id=each["id"])
            (action,) = park(db)
            assert publishing.ask(good(action)).status == "accepted"
    db.dispose()


def test_stopping_leaves_what_was_not_judged_on_the_queue(deployment: Deployment) -> None:
    taken = park(deployment.db, 20)
    child = deployment.ready()
    ids = [deployment.publishing.publish(good(action)) for action in taken]
    child.send(signal.SIGTERM)
    assert child.wait() == 0
    deployment.ready()
    publishing = deployment.publishing
    publishing.wait_for(lambda: all(id in publishing.receipts for id in ids), what="every receipt")
    assert {status_of(deployment.db, action) for action in taken} == {"submitted"}
