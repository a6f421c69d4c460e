"""Rules that blocks rest on, each taken away, to see that the two runs of a tree then differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from adjourn.tasks.context.facade import Context, PassRecord
from adjourn.tasks.engine import activities, calls, conversation
from adjourn.tasks.engine.history import STEP
from adjourn.tasks.execution import drive, own_process
from tests.simulation.mutations import tools_before_write

Mutation = Callable[[], AbstractContextManager[Any]]


def memos_forgotten() -> AbstractContextManager[Any]:
    """A pass knows nothing of what `run_once` kept in the passes before it."""

    def context_for(ready: calls.Ready, view: Any, recorder: Any, record: PassRecord) -> Context:
        return calls.context_for(replace(ready, call=replace(ready.call, memos={})), view, recorder, record)

    return patch.object(own_process, "context_for", context_for)


def steps_by_name_alone() -> AbstractContextManager[Any]:
    """What a step has done is kept under its name, whoever called its sequence."""
    return patch.object(activities, "step_id", lambda call_id, name: f"root{STEP}{name}")


def answers_in_the_order_of_coming() -> AbstractContextManager[Any]:
    """Asks take the answers to their call one after the other."""

    def at(ctx: Any, wait: str, key: str | None, ordinal: int) -> Any:
        came = sorted(ctx._actions, key=lambda state: state.resolution.resolved_at)
        place = sum(ctx._asked.values()) - 1
        return came[place : place + 1]

    def same_question(ctx: Any, earlier: Any, wait: Any, data: Any) -> Any:
        return earlier[0] if earlier else None

    return patch.multiple(Context, _at=at, _same_question=same_question)


def one_conversation() -> AbstractContextManager[Any]:
    """Every agent of a run hears all that any of them has said."""
    real = conversation.conversation

    def heard(items: Any, call_id: str, told: str) -> Any:
        renamed = [
            each._replace(body=each.body.model_copy(update={"call_id": call_id}))
            if each.body.kind == "response"
            else each
            for each in items
        ]
        return real(renamed, call_id, told)

    return patch.object(drive, "conversation", heard)


MUTATIONS: Final[dict[str, Mutation]] = {
    each.__name__: each
    for each in (
        memos_forgotten,
        steps_by_name_alone,
        answers_in_the_order_of_coming,
        one_conversation,
        tools_before_write,
    )
}
