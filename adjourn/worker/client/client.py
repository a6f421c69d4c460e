"""The Python client: starts runs, watches them, and answers what they wait for.

Owns no rule. Runs are started and cancelled by the store's own statements, answers go through the
one door of every channel (`adjourn.tasks.answers.answering`), and wake-ups are published only after the commit.
"""

from __future__ import annotations

from typing import overload

from adjourn.worker.client.handles import RunHandle, ThreadHandle, connected_handle, thread_handle
from adjourn.worker.client.runs import RunCalls


class Client(RunCalls):
    """A client of one deployment, usable from any thread.

    Without `settings` it reads `ADJOURN_*`, and where no database is set there it finds the
    embedded servers that run on this machine. With an `app` it knows the agents: an unknown one
    is refused at the start, and answers are held against the live model as
    well. `identity` is who answers through this client, for actions that say who may.

    Connects when first used; use it in `with`, or `close` it. Raises `ConfigurationError` if a
    URL is missing or wrong, or what is given is no settings or no app; every method raises
    `StoreUnavailableError` if Postgres cannot be reached, and `IllegalArgumentError` for what it does not take: a
    message without JSON form, a timeout that is no time.
    """

    def thread(self, thread_id: str | None = None) -> ThreadHandle:
        """Return the live thread of this id, by default of a new one. Asks no server: the thread may have no run.

        Raises `IllegalIdError` for an id that cannot be used everywhere.
        """
        return thread_handle(self, thread_id)

    @overload
    def handle(self, stored: RunHandle) -> RunHandle: ...
    @overload
    def handle(self, stored: ThreadHandle) -> ThreadHandle: ...
    @overload
    def handle(self, stored: str | bytes) -> RunHandle | ThreadHandle: ...
    def handle(self, stored: RunHandle | ThreadHandle | str | bytes) -> RunHandle | ThreadHandle:
        """Connect a handle that was stored: the JSON of `handle.model_dump_json()`, or a handle without a client.

        Raises `IllegalArgumentError` for anything else, and `IllegalIdError` for an id that no thread can have.
        """
        return connected_handle(self, stored)
