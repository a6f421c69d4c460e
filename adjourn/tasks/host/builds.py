"""The build that a process belongs to: how it says that it is there, and what its code may not decide."""

from __future__ import annotations

import logging

from adjourn.schemas.records.runs import WakeUp
from adjourn.store.protocol import Store

log = logging.getLogger(__name__)


class Build:
    """A registered build. Usable from any thread. Raises `StoreUnavailableError` if it cannot be registered."""

    def __init__(self, store: Store, build_id: str) -> None:
        self.id = build_id
        self._store = store
        self.place = store.builds.register(build_id)
        """Where it stands among the builds: a higher one is newer."""
        log.info("build registered", extra={"build": build_id, "place": self.place})

    def renew(self) -> None:
        """Say that it is still there."""
        self.place = self._store.builds.renew(self.id, self.place)

    def leave(self, run_id: str, token: str) -> WakeUp | None:
        """Leave a claimed run to newer builds. Returns the wake-up to publish; `None` if it is ours to decide."""
        return self._store.claims.leave(run_id, token, self.place)

    def is_outdated(self) -> bool:
        """Whether a newer build is live."""
        return self._store.builds.is_outdated(self.place)
