"""What we run: everything with a main. May import every other room.

`app` is the Celery app, so that `celery -A adjourn.worker worker` works; it is loaded when it is
first asked for.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adjourn.worker.process.plain_celery import app

    return app
