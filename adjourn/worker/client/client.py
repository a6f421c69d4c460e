"""The Python client: starts runs, watches them, and answers what they wait for.

Owns no rule. Runs are started and cancelled by the store's own statements, answers go through the
one door of every channel (`adjourn.tasks.answers.answering`), and wake-ups are published only after the commit.
"""

from __future__ import annotations

from adjourn.worker.client.runs import RunCalls
from adjourn.worker.client.threads import ThreadCalls


class Client(RunCalls, ThreadCalls):
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
