"""One run of a test: where it is, what it says, and the people who answer it.

Owns the assertions about a run, and that each says where the run really is. Drives nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.items import Item, OutputItem, RunFailure
from adjourn.schemas.records.runs import Run, RunStatus
from adjourn.tasks.blocks.app import App
from adjourn.tasks.models.protocol import Model
from adjourn.worker.client.actions import Action
from adjourn.worker.text.timeline import headline, timeline

if TYPE_CHECKING:
    from adjourn.testing.runner import Runner

Human = Mapping[str, Any] | Callable[[PendingAction], Answer | None]
"""Data by the names of actions, or a function like a tool's `resolver`."""

_MOST_ANSWERS: Final = 1_000
"""Of one `answer_all`. A script that asks this often asks for ever."""


class DrivenRun:
    """A run, driven as far as it goes: it waits, or has ended. Made by a `Runner`.

    What does not hold is an `AssertionError` that shows the timeline of the run.
    """

    def __init__(self, runner: Runner, record: Run) -> None:
        self.id = record.id
        self.thread_id = record.thread_id
        self._agent = record.agent
        self._runner = runner
        self._client = runner.client_of(self.id)

    def __repr__(self) -> str:
        return f"<{headline(self.record)}>"

    # --- where it is -----------------------------------------------------------------------

    @property
    def record(self) -> Run:
        """The run as clients see it."""
        return self._client.get_run(self.id)

    @property
    def status(self) -> RunStatus:
        return self.record.status

    @property
    def output(self) -> Any:
        """What the run came to. It has to be completed."""
        __tracebackhide__ = True
        record = self.record
        if record.status != "completed":
            self._wrong("the run is not completed")
        return record.output

    @property
    def error(self) -> RunFailure:
        """Why the run failed. It has to have failed."""
        __tracebackhide__ = True
        error = self.record.error
        if error is None:
            self._wrong("the run has not failed")
        return error

    @property
    def pending(self) -> list[Action]:
        """What it and its sub-agents wait for, oldest first: each with its `prompt`, `input` and `resume_schema`."""
        return self._client.pending(run_id=self.id)

    @property
    def items(self) -> tuple[Item, ...]:
        """Everything that happened, in order."""
        return self._client.items(self.id)

    @property
    def model_calls(self) -> int:
        """How many model turns are recorded."""
        return self.record.turns

    @property
    def timeline(self) -> str:
        """The run for people to read: a line about it, and one for each item and each open action."""
        return "\n".join([headline(self.record), *timeline(self.items, self.pending)])

    def results(self, tool: str) -> list[Any]:
        """What the calls of a tool came to, as JSON, in the order in which they ended."""
        bodies = (item.body for item in self.items)
        return [body.content for body in bodies if isinstance(body, OutputItem) and body.tool == tool]

    def waits_at(self, name: str) -> Action:
        """The one action that waits under this name (`tool.wait_point`). There has to be exactly one."""
        __tracebackhide__ = True
        found = [action for action in self.pending if action.name == name]
        if len(found) != 1:
            self._wrong(f"{len(found) or 'no'} actions wait at {name!r}, not one")
        return found[0]

    # --- people ----------------------------------------------------------------------------

    def answer(self, data: Any = None, *, at: str | Action | None = None) -> None:
        """Answer an action, and go on: the one that waits, or the one `at` a name.

        `data` is JSON or a model. Raises `AnswerRefusedError`, which names what does not fit; the action then
        still waits.
        """
        __tracebackhide__ = True
        self._one(at).submit(data)

    def cancel(self, reason: str | None = None, *, at: str | Action | None = None) -> None:
        """Decline an action, as `answer` answers it."""
        __tracebackhide__ = True
        self._one(at).cancel(reason)

    def fail(self, message: str, *, at: str | Action | None = None) -> None:
        """Say of an action that it cannot be answered, as `answer` answers it."""
        __tracebackhide__ = True
        self._one(at).fail(message)

    def answer_all(self, human: Human) -> None:
        """Let a scripted human answer, again and again, until nothing waits that they have an answer for.

        `human` is the data by the names of actions, all of which have to come, or a function that is given the
        action and returns an `Answer`, or `None` to leave it: the same as a `resolver` of a tool.
        """
        __tracebackhide__ = True
        decide = human if callable(human) else _by_name(human)
        answered: list[str] = []
        while found := next(((a, said) for a in self.pending if (said := decide(a)) is not None), None):
            action, said = found
            self._client.send_answer(said)
            answered.append(action.name)
            if len(answered) == _MOST_ANSWERS:
                self._wrong(f"answered {_MOST_ANSWERS} times, and still it asks")
        never = sorted(set(human) - set(answered)) if isinstance(human, Mapping) else []
        if never:
            self._wrong(f"never waited at {', '.join(map(repr, never))}")

    def _one(self, at: str | Action | None) -> Action:
        __tracebackhide__ = True
        if isinstance(at, Action):
            return at
        if at is not None:
            return self.waits_at(at)
        pending = self.pending
        if len(pending) != 1:
            self._wrong(f"{len(pending) or 'no'} actions wait, not one" + ("; say which: at=" if pending else ""))
        return pending[0]

    # --- what else can happen to it ----------------------------------------------------------

    def send(self, message: Any) -> DrivenRun:
        """Say something more on its thread, to the same agent, once it has ended: a new run, of the same build."""
        build = self._runner.build_of(self.id)
        return self._runner.start(build.app, self._agent, message, models=build.models, thread_id=self.thread_id)

    def cancel_run(self, reason: str | None = None) -> None:
        """Cancel the run, and all that it waits for."""
        self._client.cancel_run(self.id, reason)
        self._runner.settle()

    def deploy(self, app: App | str, *, models: Mapping[str, Model | str] | None = None) -> None:
        """Go on with another build of the app from here on, as after a deploy."""
        self._runner.use(self.id, app, models)
        self._client = self._runner.client_of(self.id)

    def _wrong(self, problem: str) -> NoReturn:
        __tracebackhide__ = True
        record = self.record
        why = f" ({record.error.message})" if record.error else ""
        raise AssertionError(f"{problem}; it is {record.status}{why}\n\n{self.timeline}")


def _by_name(human: Mapping[str, Any]) -> Callable[[PendingAction], Answer | None]:
    def decide(action: PendingAction) -> Answer | None:
        return Answer(action_id=action.id, data=human[action.name]) if action.name in human else None

    return decide
