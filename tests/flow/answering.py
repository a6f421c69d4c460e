"""Parked actions without a model, a queue to answer them on, and every kind of bad answer."""

from __future__ import annotations

import json
import os
import pickle
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from kombu import Exchange, Queue

from adjourn.schemas.internal.state import Park, Write
from adjourn.schemas.records.actions import NewAction, Origin, PendingAction
from adjourn.schemas.records.answers import Receipt, ReceiptStatus
from adjourn.schemas.records.ids import new_action_id, new_call_id, new_claim_token, new_run_id, new_thread_id
from adjourn.schemas.records.items import SuspensionItem
from adjourn.schemas.records.limits import Limits
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import Settings
from tests.flow.worker_app import question
from tests.waiting import LIMIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
WORKER = [sys.executable, "-m", "adjourn", "worker"]
SCHEMA = question.resume.json_schema
GOOD = {"approved": True}


def settings_for(database_url: str, redis_url: str, broker_url: str | None = None, **more: Any) -> Settings:
    return Settings(
        database_url=database_url,
        redis_url=redis_url,
        broker_url=broker_url,
        app="tests.flow.worker_app:app",
        **more,
    )


# --- parked actions ------------------------------------------------------------------------------


def opened(run_id: str, thread_id: str, action_id: str, **fields: Any) -> NewAction:
    call_id = new_call_id()
    origin = Origin(
        tool="ask",
        wait_point="q",
        tool_call_id=call_id,
        message_id=f"{run_id}:2",
        run_id=run_id,
        thread_id=thread_id,
        block_path=("asker", "ask"),
    )
    made: dict[str, Any] = {
        "id": action_id,
        "name": "ask.q",
        "input": {"prompt": "May it be?"},
        "resume_schema": SCHEMA,
        "schema_decides": True,
        "origin": origin,
        "style": "inline",
        "ordinal": 0,
        "digest": "",
        "fingerprint": {},
    }
    return NewAction(**{**made, **fields})


def park(db: Database, count: int = 1, *, action_id: str | None = None, **fields: Any) -> list[PendingAction]:
    """A parked run with `count` open actions."""
    run_id, thread_id, token = new_run_id(), new_thread_id(), new_claim_token()
    runs.start(db, run_id=run_id, thread_id=thread_id, agent="asker", text="go", limits=Limits(), enqueue=False)
    claim = runs.claim(db, run_id, suspect=False, token=token)
    assert claim is not None
    key = db.signing_key()
    new = [opened(run_id, thread_id, action_id or new_action_id(key), **fields) for _ in range(count)]
    items = [SuspensionItem(call_id=each.origin.tool_call_id, action_id=each.id, name=each.name) for each in new]
    write = Write(items=tuple(items), actions=tuple(new), becomes=Park())
    written = runs.write(db, run_id, token, claim.revision, write)
    assert written.status == "parked"
    return actions.pending(db, run_id=run_id, limit=count)


def status_of(db: Database, action: PendingAction) -> str:
    state = actions.get(db, action.id)
    assert state is not None
    return state.action.status


# --- the queue -------------------------------------------------------------------------------------


class Publisher:
    """Publishes onto the resume queue, as another program would, and collects the receipts."""

    def __init__(self, settings: Settings) -> None:
        broker = wakeup_broker(settings)
        self._name = f"receipts-{uuid.uuid4().hex}"
        self._connection = broker.connection()
        self._channel = self._connection.channel()
        self._producer = self._connection.Producer(channel=self._channel)
        broker.queue(RESUME_QUEUE)(self._channel).declare()
        receipts = Queue(self._name, exchange=Exchange(""), routing_key=self._name, durable=True)
        self._consumer = self._connection.Consumer([receipts], on_message=self._on_receipt, no_ack=True)
        self._consumer.consume()
        self.receipts: dict[str, list[Receipt]] = {}

    def close(self) -> None:
        self._connection.release()

    def publish(self, body: bytes | Mapping[str, Any], **options: Any) -> str:
        """Returns the correlation id that the receipt will have."""
        correlation_id = uuid.uuid4().hex
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        message = {
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "reply_to": self._name,
            "correlation_id": correlation_id,
            **options,
        }
        self._producer.publish(raw, routing_key=RESUME_QUEUE, **message)
        return correlation_id

    def ask(self, body: bytes | Mapping[str, Any], **options: Any) -> Receipt:
        """Publish one message and wait for its receipt."""
        correlation_id = self.publish(body, **options)
        self.wait_for(lambda: correlation_id in self.receipts, what=f"a receipt for {str(body)[:200]}")
        return self.receipts[correlation_id][0]

    def wait_for(self, condition: Callable[[], bool], timeout: float = LIMIT_SECONDS, what: str = "") -> None:
        """Collect receipts until `condition` holds."""

        def look() -> bool:
            with suppress(TimeoutError):
                while not condition():
                    self._connection.drain_events(timeout=0.05)
            return condition()

        wait_until(look, timeout, what)

    def _on_receipt(self, message: Any) -> None:
        receipt = Receipt.model_validate_json(message.body)
        self.receipts.setdefault(message.properties["correlation_id"], []).append(receipt)


@contextmanager
def publisher(settings: Settings) -> Iterator[Publisher]:
    made = Publisher(settings)
    try:
        yield made
    finally:
        made.close()


def push_raw(settings: Settings, body: bytes) -> None:
    """Put bytes on the queue that are not even a message, as far as the broker lets us."""
    if settings.broker_is_redis:
        with redis.Redis.from_url(settings.broker) as client:
            client.lpush(RESUME_QUEUE, body)
        return
    with publisher(settings) as publishing:
        publishing.publish(body, content_type="application/octet-stream", content_encoding="binary", reply_to=None)


# --- bad answers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """One way for an answer to be bad, and what its receipt has to say."""

    name: str
    status: ReceiptStatus
    says: str
    body: Callable[[str], bytes]
    """Of an action id."""

    def __str__(self) -> str:
        return self.name


def _answer(data: Any, **fields: Any) -> Callable[[str], bytes]:
    return lambda action_id: json.dumps({"action_id": action_id, "data": data, **fields}).encode()


def _text(template: str) -> Callable[[str], bytes]:
    """A body that `json.dumps` would not write; `ID` stands for the action id."""
    return lambda action_id: template.replace("ID", action_id).encode("utf-8", "surrogatepass")


def forged(action_id: str) -> str:
    """The id with another signature."""
    return action_id[:-1] + ("a" if action_id[-1] != "a" else "b")


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pickle-was-loaded",)


def pickle_bomb(_: str) -> bytes:
    return pickle.dumps(_Bomb())


BAD = [
    Bad("wrong shape", "invalid", "approved", _answer({})),
    Bad("not an object", "invalid", "object", _answer([1])),
    Bad("wrong type", "invalid", "/approved", _answer({"approved": 1})),
    Bad("yes for a bool", "invalid", "/approved", _answer({"approved": "yes"})),
    Bad("number for a string", "invalid", "/note", _answer({"approved": True, "note": 5})),
    Bad("unknown key in the data", "invalid", "extra", _answer({"approved": True, "extra": 1})),
    Bad("null data", "invalid", "", _answer(None)),
    Bad("no data", "invalid", "missing", lambda id: json.dumps({"action_id": id}).encode()),
    Bad("another wait point's name", "invalid", "ask.q", _answer(GOOD, name="ask.other")),
    Bad("unknown key in the envelope", "malformed", "tool", _answer(GOOD, tool="delete_all")),
    Bad("unknown kind", "malformed", "kind", _answer(GOOD, kind="approve")),
    Bad("another version", "malformed", "v", _answer(GOOD, v=2)),
    Bad("a bool for the version", "malformed", "v", _answer(GOOD, v=True)),
    Bad("a float for the version", "malformed", "v", _answer(GOOD, v=1.0)),
    Bad("no action id", "malformed", "action_id", lambda _: b'{"data": {"approved": true}}'),
    Bad("text for ok", "malformed", "ok", lambda id: json.dumps({"id": id, "ok": "yes"}).encode()),
    Bad(
        "an escaped NUL",
        "malformed",
        "NUL",
        _text(r'{"action_id": "ID", "data": {"approved": true, "note": "a\u0000b"}}'),
    ),
    Bad("a NUL byte", "malformed", "", _text('{"action_id": "ID", "data": {"approved": true, "note": "a\x00b"}}')),
    Bad(
        "an escaped lone surrogate", "malformed", "surrogate", _text(r'{"action_id": "ID", "data": {"note": "\ud800"}}')
    ),
    Bad("a lone surrogate in UTF-8", "malformed", "UTF-8", _text('{"action_id": "ID", "data": {"note": "\ud800"}}')),
    Bad("NaN", "malformed", "NaN", _text('{"action_id": "ID", "data": {"approved": NaN}}')),
    Bad("infinity", "malformed", "Infinity", _text('{"action_id": "ID", "data": {"approved": -Infinity}}')),
    Bad("a number over all limits", "malformed", "large", _text('{"action_id": "ID", "data": {"approved": 1e999}}')),
    Bad(
        "duplicate keys",
        "malformed",
        "duplicate",
        _text('{"action_id": "ID", "data": {"approved": false, "approved": true}}'),
    ),
    Bad("10 MB", "too_large", "bytes", _text('{"action_id": "ID", "data": "' + "x" * 10_000_000 + '"}')),
    Bad(
        "10,000 levels", "malformed", "deep", _text('{"action_id": "ID", "data": ' + "[" * 10_000 + "]" * 10_000 + "}")
    ),
    Bad("cut off", "malformed", "", _text('{"action_id": "ID", "data": {"appr')),
    Bad("not JSON", "malformed", "", lambda _: b"approve it, please"),
    Bad("not UTF-8", "malformed", "UTF-8", lambda _: b"\xff\xfe\x00{"),
    Bad("nothing", "malformed", "", lambda _: b""),
    Bad("foreign JSON", "malformed", "", lambda _: b'{"order": 17, "lines": [1, 2]}'),
    Bad("foreign JSON, no object", "malformed", "object", lambda _: b"[1, 2, 3]"),
    Bad("a Celery task", "malformed", "object", lambda _: b'[[], {}, {"callbacks": null}]'),
    Bad("a pickle", "malformed", "", pickle_bomb),
    Bad("an unknown action", "unknown", "no action", lambda _: _answer(GOOD)("nobody-knows-this")),
    Bad("a forged signature", "unknown", "no action", lambda id: _answer(GOOD)(forged(id))),
]
