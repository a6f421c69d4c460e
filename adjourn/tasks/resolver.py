"""Resolvers: code that may answer a wait on the spot, in the worker, before anybody else is asked."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

from adjourn.schemas.actions import PendingAction
from adjourn.schemas.answers import Answer
from adjourn.tasks.leases import Lease
from adjourn.tasks.loop import ModelLoop, awaited, joined

log = logging.getLogger(__name__)

Said = Answer | None
Resolver = Callable[[PendingAction], Said | Awaitable[Said]]
"""Given an open action, its answer, or None to leave it to others. Sync or async.

The answer goes through the same door as every other: what does not fit is refused, and the action
waits. A resolver is asked again about the same action if its worker dies before the answer is recorded.
"""


def ask(resolver: Resolver, action: PendingAction, loop: ModelLoop, lease: Lease) -> Said:
    """What the resolver answers. One that raises, or returns what is no answer, has left the action to others."""
    try:
        said = resolver(action)
        if inspect.isawaitable(said):
            future = loop.submit(joined(awaited(said)))
            with lease.interrupting(future.cancel):  # a run that was cancelled waits for no resolver
                said = future.result()
        if said is not None and not isinstance(said, Answer):
            raise TypeError(f"a resolver returns an Answer or None, not {type(said).__name__}")
    except (Exception, SystemExit):  # of the user's code, as of a body
        log.exception("a resolver failed; others may answer", extra={"action_id": action.id})
        return None
    return said
