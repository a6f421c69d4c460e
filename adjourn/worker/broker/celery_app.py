"""The Celery app: how wake-ups travel. Owns Celery's configuration, each line with its reason.

Builds apps; starts nothing and connects to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery

from adjourn.tasks.host.wakeups import QUEUES
from adjourn.worker.broker.brokers import wakeup_broker
from adjourn.worker.config.settings import Settings

log = structlog.get_logger(__name__)

Refuse = Callable[[bytes, str], None]


def _only_log(body: bytes, detail: str) -> None:
    log.warning("junk on a wake-up queue", detail=detail, size=len(body))


class WakeUpCelery(Celery):
    """A Celery app whose worker hands what is no wake-up to `refuse(body, detail)` and goes on."""

    refuse: Refuse = staticmethod(_only_log)


def make_celery(settings: Settings | Callable[[], Settings]) -> WakeUpCelery:
    """An app that publishes wake-ups, and can be worked on once tasks are registered.

    Given a function, it is asked when the configuration is first needed.
    """
    app = WakeUpCelery("adjourn", set_as_current=False)
    app.add_defaults(lambda: configuration(settings() if callable(settings) else settings))
    return app


def configuration(settings: Settings) -> dict[str, Any]:
    """Celery's settings for this deployment."""
    broker = wakeup_broker(settings)
    queues = [broker.queue(name) for name in QUEUES.values()]
    return {
        "broker_url": broker.url,
        "broker_transport": broker.transport,
        "broker_transport_options": broker.options,
        **({"broker_use_ssl": broker.tls} if broker.tls else {}),
        "broker_pool_limit": settings.publish_pool_size,
        # A broker that is down at start is reported once, before Celery starts; one that goes away is waited for.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # Queues are ours and known; on the default exchange nothing has to be bound or looked up.
        "task_queues": queues,
        "task_default_queue": QUEUES["turn"],
        "task_default_exchange": "",
        "task_create_missing_queues": False,
        # JSON, in and out. A pickle would run code on arrival.
        "accept_content": ["json"],
        "task_serializer": "json",
        # The store holds what came of a run; a second copy in a result backend could only disagree.
        "result_backend": None,
        "task_ignore_result": True,
        # Acknowledged when done, one per thread and none ahead, so that a busy worker hoards nothing.
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        # A lost worker is found by its lease, which counts its deaths; Celery would requeue poison for ever.
        "task_reject_on_worker_lost": False,
        # A turn mostly waits. Threads and one event loop cost a fraction of processes or of a loop per task.
        "worker_pool": "threads",
        "worker_concurrency": settings.concurrency,
        # A reconnect must not shrink what the worker takes: the turns in flight are not lost by it.
        "worker_enable_prefetch_count_reduction": False,
        "worker_consumer": "adjourn.worker.broker.wakeup_consumer:WakeUpConsumer",
        # Remote control would let whoever can publish stop the workers.
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_disable_rate_limits": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
    }
