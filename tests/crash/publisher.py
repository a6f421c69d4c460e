"""The publisher of answers: puts each on the resume queue once, and again only if its receipt was lost in a crash."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Final

from kombu import Connection, Exchange, Queue

from adjourn.schemas.records.answers import AnswerKind, Receipt
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.broker.brokers import Broker

PERSISTENT: Final = Exchange.PERSISTENT_DELIVERY_MODE


@dataclass
class Letter:
    """One answer, and what has been heard of it."""

    action_id: str
    answer_id: str
    kind: AnswerKind
    value: Any
    receipts: list[Receipt] = field(default_factory=list)
    published: int = 0
    heard_at: float = 0.0
    """When somebody last had it."""
    key: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def body(self) -> bytes:
        said = {"submit": {"data": self.value}, "cancel": {"reason": "no"}, "fail": {"message": "cannot"}}[self.kind]
        answer = {"v": 1, "action_id": self.action_id, "answer_id": self.answer_id, "kind": self.kind, **said}
        return json.dumps(answer).encode()


class Publisher:
    """Publishes over one connection, and collects the receipts."""

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self.letters: list[Letter] = []
        self._queue = broker.queue(RESUME_QUEUE)
        self._channel: Any = connection.channel()
        self._receipts = f"adjourn.receipts.{secrets.token_hex(8)}"
        Queue(self._receipts, Exchange(""), self._receipts, durable=False, exclusive=True)(self._channel).declare()
        self._producer = connection.Producer(self._channel)

    def begin(self) -> None:
        """Forget the letters of the trial before."""
        self.letters = []
        self._queue(self._channel).declare()

    def publish(self, letter: Letter) -> None:
        if not letter.published:
            self.letters.append(letter)
        letter.published += 1
        letter.heard_at = time.monotonic()
        self._producer.publish(
            letter.body,
            routing_key=RESUME_QUEUE,
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=PERSISTENT,
            reply_to=self._receipts,
            correlation_id=letter.key,
        )

    def collect(self) -> None:
        """Take the receipts that have come."""
        while (message := self._channel.basic_get(self._receipts, no_ack=True)) is not None:
            for letter in self.letters:
                if letter.key == message.properties.get("correlation_id"):
                    letter.receipts.append(Receipt.model_validate_json(message.body))
