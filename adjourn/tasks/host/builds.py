"""The build that a process belongs to: how it says that it is there, and what its code may not decide."""

from __future__ import annotations

import logging

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import builds

log = logging.getLogger(__name__)


class Build:
    """A registered build. Usable from any thread. Raises `StoreUnavailableError` if it cannot be registered."""

    def __init__(self, db: Database, build_id: str, tuning: Tuning) -> None:
        self.id = build_id
        self._db = db
        self._seconds = tuning.build_seconds
        self._wakeup_retry_seconds = tuning.wakeup_retry_seconds
        self.place = builds.register(db, build_id, self._seconds)
        """Where it stands among the builds: a higher one is newer."""
        log.info("build registered", extra={"build": build_id, "place": self.place})

    def renew(self) -> None:
        """Say that it is still there."""
        self.place = builds.renew(self._db, self.id, self.place, self._seconds)

    def leave(self, run_id: str, token: str) -> WakeUp | None:
        """Leave a claimed run to newer builds. Returns the wake-up to publish; `None` if it is ours to decide."""
        return builds.leave(self._db, run_id, token, self.place, self._wakeup_retry_seconds)

    def is_outdated(self) -> bool:
        """Whether a newer build is live."""
        return builds.is_outdated(self._db, self.place)
