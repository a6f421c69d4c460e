"""Leases: who holds which run in this process, kept alive from a thread of its own.

The thread is not the model loop and not a worker thread, so that a busy loop or a tool that
computes for minutes cannot cost a run its lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.protocol import Store
from adjourn.tasks.host.builds import Build

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE: Final = 3
"""Two renewals may fail before a lease runs out."""
_PROMPT_SECONDS: Final = 2.0
"""Between two renewals of leases that a process of a tool depends on: how late it is killed after a cancel."""


class Lease:
    """The right to write one run, until it is lost."""

    def __init__(self, run_id: str, token: str) -> None:
        self.run_id = run_id
        self.token = token
        self._lock = threading.Lock()
        self._lost = False
        self._cancels: list[Callable[[], object]] = []

    @property
    def lost(self) -> bool:
        return self._lost

    def lose(self) -> None:
        """Stop what is being done under this lease."""
        with self._lock:
            self._lost = True
            cancels = list(self._cancels)
        for cancel in cancels:
            try:
                cancel()
            except BaseException:  # of a callback of the user's: the other calls are cancelled all the same
                log.exception("a call could not be cancelled", extra={"run_id": self.run_id})

    @contextmanager
    def interrupting(self, cancel: Callable[[], object]) -> Iterator[None]:
        """While inside, losing the lease calls `cancel` (at once, if it is lost already).

        Calls that run side by side are all cancelled.
        """
        with self._lock:
            self._cancels.append(cancel)
            lost = self._lost
        if lost:
            cancel()
        try:
            yield
        finally:
            with self._lock:
                self._cancels.remove(cancel)


class LeaseKeeper:
    """Renews all leases of this process together, one statement a round, and says that its build is live, with one."""

    def __init__(self, store: Store, tuning: Tuning, build: Build | None = None) -> None:
        self._store = store
        self._build = build
        self._pause = tuning.lease_seconds if build is None else min(tuning.lease_seconds, tuning.build_seconds)
        self._held: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._left: list[Lease] = []
        """Claims that an outage of Postgres ended: given back when it is over."""
        self._closed = False
        self._stop = threading.Event()
        self._look = threading.Event()
        """Set when the thread must look at the clock again: it stops, or the first lease became prompt."""
        self._prompt: list[Lease] = []
        self._thread = threading.Thread(target=self._renew_for_ever, name="adjourn-leases", daemon=True)
        self._thread.start()

    @contextmanager
    def hold(self, run_id: str, token: str) -> Iterator[Lease]:
        """Keep the claim on a run alive while inside."""
        lease = Lease(run_id, token)
        with self._lock:
            self._held[token] = lease
            closed = self._closed
        if closed:
            # Claimed while everything was being given back: so is this, or it would cost a lease and count as a death.
            self.put_back_all()
        try:
            yield lease
        except StoreUnavailableError:
            # Its run is not to wait for the lease to end, and no death is to be counted for an outage.
            with self._lock:
                self._left.append(lease)
            raise
        finally:
            with self._lock:
                self._held.pop(token, None)

    @contextmanager
    def prompt(self, lease: Lease) -> Iterator[None]:
        """While inside, the loss of this lease is noticed within about two seconds, and not with the next renewal.

        One more statement every two seconds renews all such leases of this process.
        """
        with self._lock:
            self._prompt.append(lease)
        self._look.set()
        try:
            yield
        finally:
            with self._lock:
                self._prompt.remove(lease)

    def put_back_all(self) -> list[WakeUp]:
        """Give every claim back, at shutdown: the runs are due again at once, and nobody counts a death.

        Whatever still runs under them can write nothing any more.
        """
        with self._lock:
            self._closed = True
        leases = self._leases()
        wakeups = self._store.claims.put_back([(lease.run_id, lease.token) for lease in leases]) if leases else []
        for lease in leases:
            lease.lose()
        return wakeups

    @property
    def count(self) -> int:
        """How many runs this process holds."""
        return len(self._held)

    def stop(self) -> None:
        self._stop.set()
        self._look.set()
        self._thread.join()

    def _leases(self) -> list[Lease]:
        with self._lock:
            return list(self._held.values())

    def _give_back_left(self) -> None:
        with self._lock:
            left, self._left = self._left, []
        try:
            if left:
                self._store.claims.put_back([(lease.run_id, lease.token) for lease in left])
        except BaseException as error:
            with self._lock:
                self._left += left
            if not isinstance(error, StoreUnavailableError):
                raise

    def _renew_for_ever(self) -> None:
        period = self._pause / _RENEWALS_PER_LEASE
        renewed = prompted = time.monotonic()
        while True:
            due = min(renewed + period, prompted + _PROMPT_SECONDS) if self._prompt else renewed + period
            self._look.wait(max(0.0, due - time.monotonic()))
            self._look.clear()
            if self._stop.is_set():
                return
            now = time.monotonic()
            if now >= renewed + period:
                renewed = prompted = now
                self._try_to_renew(self._leases())
                self._try_to_renew_build()
            elif now >= prompted + _PROMPT_SECONDS:
                prompted = now
                self._try_to_renew(self._prompt_leases())

    def _prompt_leases(self) -> list[Lease]:
        with self._lock:
            return list(dict.fromkeys(self._prompt))

    def _try_to_renew(self, leases: Sequence[Lease]) -> None:
        try:
            self._give_back_left()
            self._renew(leases)
        except StoreUnavailableError as error:
            log.warning("leases not renewed", extra={"error": str(error), "held": self.count})
        except BaseException:
            # Whatever it is, this thread continues: without it every turn of this process would lose its run.
            log.exception("leases not renewed", extra={"held": self.count})

    def _try_to_renew_build(self) -> None:
        try:
            if self._build is not None:
                self._build.renew()
        except StoreUnavailableError as error:
            log.warning("build not renewed", extra={"error": str(error)})
        except BaseException:
            log.exception("build not renewed")

    def _renew(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        kept = self._store.claims.renew([(lease.run_id, lease.token) for lease in leases])
        for lease in leases:
            if lease.run_id not in kept:
                lease.lose()
