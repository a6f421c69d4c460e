"""Publishes answers onto the resume queue, as programs outside of Python do, and waits for the receipt.

Knows the broker and the wire, and nothing of the store: who publishes needs no way into Postgres.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

from kombu import Exchange, Queue
from kombu.exceptions import OperationalError
from pydantic_core import to_jsonable_python

from adjourn.schemas.errors import IllegalArgumentError, StoreUnavailableError, WaitTimeoutError
from adjourn.schemas.records.answers import Answer, Receipt
from adjourn.schemas.strict_json import dumps
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.worker.broker.brokers import Broker, wakeup_broker
from adjourn.worker.config.settings import Settings

LOOK_SECONDS: Final = 60.0
"""How long it waits at a time: pollers count milliseconds, and some have no room for a long time."""
RECEIPT_QUEUE: Final = "adjourn.receipts."
"""Of each publisher, with a random end: receipts are for who sent the answer."""


def publish(settings: Settings, answer: Answer | bytes, timeout: float = 30) -> Receipt:
    """Publish one answer and return what a worker made of it.

    Bytes are published as they are, whatever they are. Raises `WaitTimeoutError` if no receipt came
    in `timeout` seconds: the answer is on the queue, and will be judged. Raises
    `StoreUnavailableError` if the broker cannot be reached, and `IllegalArgumentError` for an answer without
    JSON form.
    """
    body = answer if isinstance(answer, bytes) else _body(answer)
    broker = wakeup_broker(settings)
    try:
        return _exchange(broker, body, timeout)
    except WaitTimeoutError:
        raise  # an OSError too
    except (OSError, OperationalError) as error:
        raise StoreUnavailableError("the broker", str(error) or type(error).__name__) from error


def _body(answer: Answer) -> bytes:
    try:
        # Not the model's own dump, which writes NaN as null: that would be another answer.
        said = {name: each for name, each in answer if name in answer.model_fields_set}
        return dumps(to_jsonable_python(said)).encode()
    except Exception as error:  # of pydantic, or of code of the data's own
        raise IllegalArgumentError("answer", answer, f"give what has a JSON form ({type(error).__name__})") from error


def _exchange(broker: Broker, body: bytes, timeout: float) -> Receipt:
    deadline = time.monotonic() + timeout
    receipts: list[Receipt] = []
    name = RECEIPT_QUEUE + secrets.token_hex(16)
    correlation_id = secrets.token_hex(8)

    def on_message(message: Any) -> None:
        if message.properties.get("correlation_id") == correlation_id:
            receipts.append(Receipt.model_validate_json(message.body))

    with broker.connection() as connection:
        channel = connection.channel()
        receipt_queue = Queue(
            name, exchange=Exchange(""), routing_key=name, durable=False, exclusive=True, auto_delete=True
        )(channel)
        with connection.Consumer([receipt_queue], channel=channel, on_message=on_message, no_ack=True):
            broker.queue(RESUME_QUEUE)(channel).declare()
            connection.Producer(channel=channel).publish(
                body,
                routing_key=RESUME_QUEUE,
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=Exchange.PERSISTENT_DELIVERY_MODE,
                reply_to=name,
                correlation_id=correlation_id,
            )
            while not receipts:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimeoutError("a receipt", timeout)
                try:
                    connection.drain_events(timeout=min(left, LOOK_SECONDS))
                except TimeoutError:
                    continue
        # Redis keeps what nobody deletes; RabbitMQ has deleted it already and does not mind.
        receipt_queue.delete()
    return receipts[0]
