"""Asks the resolvers of an app, in the worker, whether they answer a wait on the spot."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping

from adjourn.schemas.records.actions import ActionState, PendingAction
from adjourn.schemas.records.answers import Answer, ShortAnswer
from adjourn.tasks.blocks.app import App
from adjourn.tasks.blocks.resolver import Resolver
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.loop import ModelLoop, awaited, joined

log = logging.getLogger(__name__)


class Resolvers:
    """The code of this process that may answer waits of a run. Each wait is asked about once in a pass."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tried: set[str] = set()
        """Actions that were asked about."""

    def open(self, view: View) -> ActionState | None:
        """An open wait that can still be asked about."""
        for state in view.actions:
            untried = state.resolution is None and state.child is None and state.action.id not in self._tried
            if untried and self._app.resolver_of(state, view.cached.tools_at) is not None:
                return state
        return None

    def ask(self, state: ActionState, view: View, loop: ModelLoop, lease: Lease) -> Answer | None:
        """What the resolver of an open wait answers, if it does."""
        self._tried.add(state.action.id)
        resolver = self._app.resolver_of(state, view.cached.tools_at)
        return ask_resolver(resolver, state.action, loop, lease) if resolver else None


def ask_resolver(resolver: Resolver, action: PendingAction, loop: ModelLoop, lease: Lease) -> Answer | None:
    """What the resolver answers. One that raises, or returns what is no answer, has left the action to others."""
    try:
        said = resolver(action.model_copy(deep=True))  # questions are matched by it, and code may change what it gets
        if inspect.isawaitable(said):
            future = loop.submit(joined(awaited(said)))
            with lease.interrupting(future.cancel):  # a run that was cancelled waits for no resolver
                said = future.result()
        return None if said is None else _answer(said, action)
    except BaseException:  # of the user's code, as of a body
        log.exception("a resolver failed; others may answer", extra={"action_id": action.id})
        return None


def _answer(said: object, action: PendingAction) -> Answer:
    """The answer in its long form. Raises `TypeError`, and `ValueError` for a document that is not an answer."""
    if isinstance(said, Mapping):
        document = dict(said)
        if "action_id" in document or "kind" in document:
            said = Answer.model_validate({"action_id": action.id, **document}, strict=True)
        else:
            said = ShortAnswer.model_validate({"id": action.id, **document}, strict=True)
    if isinstance(said, ShortAnswer):
        said = said.to_answer()
    if not isinstance(said, Answer):
        raise TypeError(f"a resolver returns an Answer, the short form or None, not {type(said).__name__}")
    # Other open actions may have the same request id. This answer is for the one that the resolver was given.
    return said.model_copy(update={"action_id": action.id}) if said.action_id == action.request_id else said
