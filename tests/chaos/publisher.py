"""The publisher of answers: at least once, as the documents tell other programs to do it.

Each answer has an id of its own, and is published again and again, unchanged, until its receipt comes. The
queue, the receipts and the connection may be lost at any moment.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kombu import Exchange, Queue

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import AnswerKind, Receipt
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import Settings
from tests.crash.checker import HAPPENED
from tests.crash.publisher import Letter

AGAIN_SECONDS: Final = 3.0
"""Without a receipt for so long, an answer is published again."""
IDLE_SECONDS: Final = 0.02
ROUND: Final = 50
TWICE: Final = 0.15
"""The share of answers that are published twice from the start."""
CHAIN: Final = "chain"
"""The tool that waits several times."""
_KINDS: Final[tuple[AnswerKind, ...]] = ("submit", "cancel", "fail")
_KIND_WEIGHTS: Final = (8, 1, 1)
_BAD_VALUES: Final[tuple[Any, ...]] = ({}, {"value": 7}, {"value": "x", "extra": 1}, None, "yes", [])


@dataclass
class Junk(Letter):
    """A message that is no answer at all."""

    @property
    def body(self) -> bytes:
        return super().body[:-7] + b"\x00"


def letters_for(action: PendingAction, dice: Random) -> list[Letter]:
    """What is sent for one action: its answer, and now and then something bad, or a rival, before or after it."""
    action_id = action.id
    # The checker takes the end of each wait for the outcome of its call, which is so where a call waits once.
    kinds = _KINDS[:1] if action.origin.tool == CHAIN else _KINDS

    def good(answer_id: str) -> Letter:
        (kind,) = dice.choices(kinds, _KIND_WEIGHTS[: len(kinds)])
        return Letter(action_id, answer_id, kind, {"value": f"{action_id} {answer_id}"})

    letters = [good("first")]
    if dice.random() < 0.1:
        letters.append(Letter(action_id, "bad", "submit", dice.choice(_BAD_VALUES)))
    if dice.random() < 0.03:
        letters.append(Junk(action_id, "junk", "submit", None))
    if dice.random() < 0.05:
        letters.append(good("rival"))
    dice.shuffle(letters)
    return letters


class Publisher(threading.Thread):
    """Publishes in a thread of its own, until stopped; nothing that happens to the broker ends it."""

    def __init__(self, settings: Settings, dice: Random) -> None:
        super().__init__(name="publisher", daemon=True)
        self.letters: list[Letter] = []
        self.receipts: Counter[str] = Counter()
        """By what they say. A letter may get several."""
        self.published = 0
        self.reconnects = -1
        self._settings = settings
        self._dice = dice
        self._new: deque[PendingAction] = deque()
        self._by_key: dict[str, Letter] = {}
        self._open: dict[str, Letter] = {}
        self._taken: set[str] = set()
        self._receipts = f"adjourn.receipts.{secrets.token_hex(8)}"
        self._stop_asked = threading.Event()

    def answer(self, action: PendingAction) -> None:
        """Have an action answered. From any thread."""
        self._new.append(action)

    @property
    def accepted(self) -> int:
        """Answers whose publisher was told that they are taken."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        """Letters that nothing has been heard of."""
        return len(self._open) + len(self._new)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def run(self) -> None:
        broker = wakeup_broker(self._settings)
        while not self._stop_asked.is_set():
            # Whatever kombu makes of a broker that is gone: begin again.
            with suppress(Exception), broker.connection() as connection:
                channel: Any = connection.channel()
                for name in (self._receipts, RESUME_QUEUE):
                    Queue(name, Exchange(""), name)(channel).declare()
                self.reconnects += 1
                while not self._stop_asked.wait(IDLE_SECONDS):
                    self._send(connection.Producer(channel))
                    self._collect(channel)
            self._stop_asked.wait(IDLE_SECONDS * 10)

    def _send(self, producer: Any) -> None:
        while self._new:
            letters = letters_for(self._new.popleft(), self._dice)
            self.letters += letters
            self._by_key |= {letter.key: letter for letter in letters}
            self._open |= {letter.key: letter for letter in letters}
        now = time.monotonic()
        due = [letter for letter in self._open.values() if now >= letter.heard_at + AGAIN_SECONDS]
        for letter in due[:ROUND]:
            letter.heard_at = now
            for _ in range(2 if not letter.published and self._dice.random() < TWICE else 1):
                self._publish(producer, letter)

    def _publish(self, producer: Any, letter: Letter) -> None:
        letter.published += 1
        self.published += 1
        producer.publish(
            letter.body,
            routing_key=RESUME_QUEUE,
            content_type="application/json",
            content_encoding="utf-8",
            reply_to=self._receipts,
            correlation_id=letter.key,
            retry=False,
        )

    def _collect(self, channel: Any) -> None:
        while (message := channel.basic_get(self._receipts, no_ack=True)) is not None:
            receipt = Receipt.model_validate_json(message.body)
            self.receipts[receipt.status] += 1
            key = message.properties.get("correlation_id")
            self._open.pop(key, None)
            self._by_key[key].receipts.append(receipt)
            if receipt.status in HAPPENED:
                self._taken.add(key)
