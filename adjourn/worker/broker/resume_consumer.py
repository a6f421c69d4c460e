"""Reads the resume queue: takes each message as bytes, has it judged, and sends the receipt.

A message is acknowledged after what came of it has committed, never before. Nothing that arrives
can stop the reader; a store that is away makes it wait, with the broker's heartbeat kept.
Decides nothing about answers (`adjourn.tasks.answers.answering` does) and decodes nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from kombu import Connection, Producer
from kombu.mixins import ConsumerMixin

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.records.answers import Receipt
from adjourn.tasks.answers.answering import receive, receive_kept
from adjourn.tasks.host.services import Door
from adjourn.tasks.host.wakeups import QUEUES, RESUME_QUEUE, read_notice
from adjourn.worker.broker.brokers import resume_broker
from adjourn.worker.config.settings import Settings

log = structlog.get_logger(__name__)

CHANNEL: Final = "resume"
MAX_REPLY_TO_LENGTH: Final = 255
"""AMQP's own limit of a queue name."""
RECEIPT_SECONDS: Final = 24 * 3600
"""How long a receipt waits to be read. Its publisher may never come back, and Redis keeps what nobody takes."""
_HEARTBEAT_SECONDS: Final = 30
_RETRY_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Between looks at a store that is away; the last one for as long as it takes."""
_RECONNECT_SECONDS: Final = 5
_RESTART_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 5.0
_LOOKS_PER_VISIBILITY: Final = 6
"""What a dead reader had taken comes back a visibility timeout after the first look that saw it taken."""


class ResumeConsumer(ConsumerMixin):
    """One reader of the resume queue, in a thread of its own."""

    def __init__(self, settings: Settings, door: Callable[[], Door]) -> None:
        self._broker = resume_broker(settings)
        self._prefetch = settings.resume_prefetch
        self._restore_every = settings.resume_visibility_seconds / _LOOKS_PER_VISIBILITY
        self._door = door
        self.connection = Connection(
            self._broker.url,
            transport=self._broker.transport,
            transport_options=self._broker.options,
            ssl=self._broker.tls or False,
            heartbeat=_HEARTBEAT_SECONDS,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="adjourn-resume", daemon=True)
        self._waiting: deque[Any] = deque()
        self._not_before = 0.0
        self._failures = 0
        self._restored_at = 0.0
        self.restarts = -1
        """How often it had to begin again; connections that came back included."""

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        """Take no more; what was taken and not judged goes back to the queue."""
        self.should_stop = True
        self._stop.set()

    def stop(self) -> None:
        self.request_stop()
        self._thread.join(_JOIN_SECONDS)

    # --- consuming ---------------------------------------------------------------------------

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
        queue = self._broker.queue(RESUME_QUEUE)
        return [Consumer([queue], on_message=self._waiting.append, prefetch_count=self._prefetch)]

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        # Kombu would acknowledge it, and nobody would hear of it again.
        self._waiting.append(message)

    def on_connection_revived(self) -> None:
        # What was taken over the old connection cannot be acknowledged any more, and is delivered again.
        self._waiting.clear()
        self.restarts += 1

    def on_consume_ready(self, connection: Any, channel: Any, consumers: Any, **_: Any) -> None:
        self._channel = channel
        log.info("reading answers", queue=RESUME_QUEUE)

    def on_iteration(self) -> None:
        """Judge what has arrived, in order. Between two of these the broker's heartbeat is served."""
        while self._waiting and not self.should_stop and time.monotonic() >= self._not_before:
            try:
                self._acknowledge(self._waiting[0])
            except StoreUnavailableError as error:
                self._back_off(error)
                break
            self._failures = 0
            self._waiting.popleft()
        self._restore_abandoned()

    def on_connection_error(self, exc: Any, interval: float) -> None:
        log.warning("broker not reached", error=str(exc), again_in=interval)

    @contextmanager
    def establish_connection(self) -> Iterator[Any]:  # type: ignore[override]
        with self.create_connection() as connection:
            connection.ensure_connection(
                self.on_connection_error, interval_max=_RECONNECT_SECONDS, callback=self._give_up_when_stopped
            )
            yield connection

    # --- one message ---------------------------------------------------------------------------

    def _acknowledge(self, message: Any) -> None:
        """Judge one message and acknowledge it. Raises `StoreUnavailableError` with nothing done."""
        try:
            receipt = self._receipt_for(_raw(message.body))
        except StoreUnavailableError:
            raise
        except BaseException:  # of a validator, a library: no message may end the reader
            # It could not even be kept as a dead letter. Delivered again it would do the same, for ever.
            log.exception("a message is given up")
            message.reject()
            return
        if not message.acknowledged:
            # A crash before this line: the message comes again, and is found to be a duplicate.
            message.ack()
        if receipt is not None:
            self._reply(message, receipt)

    def _receipt_for(self, body: bytes) -> Receipt | None:
        """What became of an answer; `None` for a notice, after which kept answers are judged."""
        action_id = read_notice(body)
        if action_id is None:
            return receive(self._door(), body, channel=CHANNEL)
        receive_kept(self._door(), action_id)
        return None

    def _reply(self, message: Any, receipt: Receipt) -> None:
        """Send the receipt where the publisher asked for it. Best effort: the answer itself is settled."""
        reply_to = message.properties.get("reply_to")
        if not isinstance(reply_to, str) or not 0 < len(reply_to) <= MAX_REPLY_TO_LENGTH:
            return
        if reply_to == RESUME_QUEUE or reply_to in QUEUES.values():
            log.warning("no receipt is sent to a queue of our own", reply_to=reply_to)
            return
        try:
            Producer(self._channel).publish(
                receipt.model_dump_json(exclude_none=True),
                routing_key=reply_to,
                content_type="application/json",
                content_encoding="utf-8",
                correlation_id=message.properties.get("correlation_id"),
                expiration=RECEIPT_SECONDS,
                retry=False,
            )
        except Exception as error:
            log.warning("receipt not sent", reply_to=reply_to, error=str(error))

    def _back_off(self, error: StoreUnavailableError) -> None:
        wait = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._not_before = time.monotonic() + wait
        log.warning("answers wait for the store", error=str(error), waiting=len(self._waiting))

    def _restore_abandoned(self) -> None:
        """Redis only: what a dead reader had taken. Kombu looks when it is idle, which may be never."""
        now = time.monotonic()
        restore = getattr(getattr(self._channel, "qos", None), "restore_visible", None)
        if restore is None or now - self._restored_at < self._restore_every:
            return
        self._restored_at = now
        restore()

    # --- going on whatever happens -------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._stop.is_set():
            try:
                self.run()
            except BaseException:
                log.exception("reader of the resume queue begins again")
                self._stop.wait(_RESTART_SECONDS)

    def _give_up_when_stopped(self) -> None:
        if self.should_stop:
            raise ConnectionAbortedError("stopped while connecting")


def _raw(body: Any) -> bytes:
    """The bytes as they came; kombu decodes text where the publisher named an encoding."""
    return body.encode(errors="surrogatepass") if isinstance(body, str) else bytes(body or b"")
