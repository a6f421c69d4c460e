"""The first of several waits: what `ctx.ask_any` is asked and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, overload

from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.actions import ActionState, OnTimeout
from adjourn.schemas.records.wait_points import UNSET, Unset, WaitPoint
from adjourn.tasks.context.earlier_waits import answer_of, has_value, refusal_of
from adjourn.tasks.context.waits import Waiting, asked_again

S = TypeVar("S")
R = TypeVar("R")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Question(Generic[S, R]):
    """One of the questions of `ctx.ask_any`: a wait point, what it shows, and what `ctx.ask` takes besides.

    Two questions at one wait point need a `key` each.
    """

    point: WaitPoint[S, R]
    data: S
    key: str | None = None
    request_id: str | None = None
    prompt: str | None = None
    timeout: timedelta | None = None
    on_timeout: OnTimeout | Unset = UNSET
    default: R | Unset = UNSET
    answerers: Sequence[str] | None = None


@dataclass(frozen=True)
class FirstAnswer(Generic[R_co]):
    """The answer that came first."""

    question: Question[Any, Any]
    """The question that it answers, as it was given to `ctx.ask_any`."""
    answer: R_co
    """The answer, typed by the wait point of the question."""


def winner(states: Sequence[ActionState]) -> int | None:
    """The place of the wait that was answered; None if the deadlines of all have passed without an answer.

    The others were closed by the statement that took the answer, or had expired before it.
    """
    for place, state in enumerate(states):
        ended = state.resolution
        if ended is not None and (has_value(state) or ended.answer_id is not None):
            return place
    return None


class _Asked(NamedTuple):
    """A question at its place in the pass."""

    question: Question[Any, Any]
    wait: WaitPoint[Any, Any]
    """The wait point with the terms of the question."""
    key: str | None
    ordinal: int

    @property
    def data(self) -> Any:
        return self.question.data


class AskingAny(Waiting):
    """The part of a `Context` that stops at several waits at once."""

    @overload
    def ask_any(self, first: Question[Any, R], second: Question[Any, R2], /) -> FirstAnswer[R | R2]: ...
    @overload
    def ask_any(
        self, first: Question[Any, R], second: Question[Any, R2], third: Question[Any, R3], /
    ) -> FirstAnswer[R | R2 | R3]: ...
    @overload
    def ask_any(self, *questions: Question[Any, R]) -> FirstAnswer[R]: ...
    def ask_any(self, *questions: Question[Any, Any]) -> FirstAnswer[Any]:
        """Stop here at several waits at once (inline style), and return the first answer.

        The step that accepts the first answer closes the other waits, and their history says why: an answer to one of
        them is `late` from then on. A submit, a cancel, a fail and a default at a deadline are answers. A deadline
        with `error` ends its own wait alone; when all have ended like this, `Expired` is raised. What `ask` says of
        the question and of the next passes holds for the questions together.

        Raises what `ask` raises; for a first answer that is a cancel or a fail, `Declined` or `AnswerFailed`.
        """
        asked = self._questions(questions)
        for each in asked:
            self._asked[each.wait.name, each.key] += 1
        earlier = [self._at(each.wait.name, each.key, each.ordinal) for each in asked]
        known = self._same_group(asked, earlier)
        if known is None:
            self._open_group(asked, earlier)
        first = winner(known)
        if first is None:
            raise refusal_of(known[-1]) or AssertionError("all of its waits have expired")
        if (refused := refusal_of(known[first])) is not None:
            raise refused
        state = known[first]
        assert state.resolution is not None
        answer = self._load(asked[first].wait.resume, state.resolution.resume, answer_of(state), state)
        self._pass.answer_types.add(FirstAnswer.__name__)
        return FirstAnswer(questions[first], answer)

    def _questions(self, questions: Sequence[Question[Any, Any]]) -> list[_Asked]:
        where = f"tool {self._tool!r}"
        if not questions or not all(isinstance(each, Question) for each in questions):
            raise DefinitionError(where, "ask_any() takes questions", "give Question(point, data), one or more")
        asked = []
        for each in questions:
            wait = self._declared(each.point)
            self._ensure_outside_of_once(wait.name)
            own = wait.with_terms(self._where(wait), each.timeout, each.on_timeout, each.default, each.answerers)
            key = self._text_or_none("key", each.key)
            asked.append(_Asked(each, own, key, self._asked[wait.name, key]))
        return asked

    def _same_group(
        self, asked: Sequence[_Asked], earlier: Sequence[Sequence[ActionState]]
    ) -> list[ActionState] | None:
        """The waits of an earlier pass that asked these questions together, the newest such; None if there are none."""
        for newest in reversed(earlier[0]):
            states = [
                next(
                    (s for s in at if s.any_of == newest.any_of and self._same_question([s], each.wait, each.data)),
                    None,
                )
                for each, at in zip(asked, earlier, strict=True)
            ]
            found = [state for state in states if state is not None]
            together = [state for state in self._actions if state.any_of == newest.any_of]
            if newest.any_of is not None and len(found) == len(asked) == len(together):
                return found
        return None

    def _open_group(self, asked: Sequence[_Asked], earlier: Sequence[Sequence[ActionState]]) -> NoReturn:
        """Open the questions together, each with the note of what differed, if they were asked before."""
        notes = [self._note(at, each.wait, each.data, each.ordinal) for each, at in zip(asked, earlier, strict=True)]
        # One question may be the same as before, and is asked anew because another one is not: name that one's field.
        known = [(each, at[-1]) for each, at in zip(asked, earlier, strict=True) if at]
        fields = (self._differing(newest, each.wait, each.data) for each, newest in known)
        field = next(filter(None, fields), None)
        note = next(filter(None, notes), None) if field is None else asked_again(field)
        actions = [
            self._new_action(
                each.wait,
                each.question.data,
                style="inline",
                ordinal=each.ordinal,
                key=each.key,
                request_id=each.question.request_id,
                prompt=each.question.prompt,
                note=note,
            )
            for each in asked
        ]
        self._side_by_side([(each.wait.name, each.key) for each in asked])
        group = actions[0].id
        self._open([action.model_copy(update={"any_of": group}) for action in actions])
