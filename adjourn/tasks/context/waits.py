"""How a tool stops at a wait: `suspend`, `request`, `ask` and `action_id`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NoReturn, TypedDict, TypeVar, Unpack, overload

from adjourn.schemas.contracts.compatible import incompatibilities
from adjourn.schemas.contracts.differences import difference
from adjourn.schemas.contracts.suspend_schema import compact
from adjourn.schemas.contracts.unset import Path
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import (
    AskKeyMissingError,
    DefinitionError,
    DetachedSuspendError,
    SuspendPayloadError,
    ToolChangedError,
)
from adjourn.schemas.errors.base import shown
from adjourn.schemas.records.actions import ActionState, NewAction, OnTimeout, Style
from adjourn.schemas.records.wait_points import UNSET, Unset, WaitPoint
from adjourn.schemas.strict_json import digest
from adjourn.tasks.context.earlier_waits import answer_of, refusal_of
from adjourn.tasks.context.pass_state import Suspension
from adjourn.tasks.context.questions import as_recorded, same_question
from adjourn.tasks.context.remembered import Remembering
from adjourn.tasks.context.request_ids import chosen_id
from adjourn.tasks.context.undeclared_types import reference_to, referenced

S = TypeVar("S")
R = TypeVar("R")

_OBJECT: Final[Any] = dict[str, Any] | None
_ANYTHING: Final[Contract[Any]] = Contract.of(Any)
_TIMES_ASKED: Final = 2
"""How often the same ask may be put with another question: once, and once anew."""
_TOGETHER: Final = "the set of questions that are asked together"
REQUEST: Final = "request"
"""The name of the wait that `ctx.request` stops at."""


class Terms(TypedDict, Generic[R], total=False):
    """What every way to stop takes by keyword. The methods say what each of them means."""

    request_id: str | None
    prompt: str | None
    timeout: timedelta | None
    on_timeout: OnTimeout | Unset
    default: R | Unset
    answerers: Sequence[str] | None


class KeyedTerms(Terms[R], total=False):
    """`Terms`, and the key that tells asks of one pass apart."""

    key: str | None


class Waiting(Remembering):
    """The part of a `Context` that stops."""

    @overload
    def suspend(
        self,
        point: WaitPoint[S, R],
        data: S,
        **terms: Unpack[Terms[R]],
    ) -> NoReturn: ...
    @overload
    def suspend(
        self,
        point: str,
        data: Any,
        **terms: Unpack[Terms[Any]],
    ) -> NoReturn: ...
    def suspend(
        self,
        point: WaitPoint[Any, Any] | str,
        data: Any,
        *,
        request_id: str | None = None,
        prompt: str | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | Unset = UNSET,
        default: Any = UNSET,
        answerers: Sequence[str] | None = None,
    ) -> NoReturn:
        """Stop here (entry style). The body runs again from its top, with the answer in `entry`.

        `timeout`, `on_timeout`, `default` and `answerers` are those of the wait point, for this suspend alone; what
        is left out is as the wait point says. Raises `SuspendPayloadError` if `data` does not fit, and
        `DefinitionError` if one of the others does not; then nothing is opened.
        """
        wait = self._declared(point)
        own = wait.with_terms(self._where(wait), timeout, on_timeout, default, answerers)
        self._suspend(own, data, request_id, prompt)

    def request(
        self,
        id: object = None,
        kind: str | None = None,
        prompt: str | None = None,
        data: dict[str, Any] | None = None,
        *,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | Unset = UNSET,
        default: Any = UNSET,
        answerers: Sequence[str] | None = None,
    ) -> NoReturn:
        """Stop here (entry style) at a wait that is not declared. The body runs again, with the answer in `answer`.

        `data` is what is shown beside the prompt; the answer is an object or null. An answer may name
        `id`, which need not be unique: of two open ones it is refused. An `id` that is not text is taken as its
        JSON: 7 as `"7"`. Raises `SuspendPayloadError` for an `id` that cannot be one and for
        `data` that is no object, and `DefinitionError` in a tool that has declared a wait point of this name.
        `timeout`, `on_timeout`, `default` and `answerers` are those of a `WaitPoint`: without `on_timeout`, a
        deadline that passes fails the run.
        """
        if REQUEST in self._wait_points:
            raise DefinitionError(
                f"tool {self._tool!r}", f"request() beside a wait point named {REQUEST!r}", "give that another name"
            )
        kind = self._text_or_none("kind", kind)
        wait: WaitPoint[Any, Any] = WaitPoint(REQUEST, suspend=_OBJECT, resume=_OBJECT, kind=kind)
        own = wait.with_terms(self._where(wait), timeout, on_timeout, default, answerers)
        self._suspend(own, data, id, prompt)

    @overload
    def ask(
        self,
        point: WaitPoint[S, R],
        data: S,
        **terms: Unpack[KeyedTerms[R]],
    ) -> R: ...
    @overload
    def ask(
        self,
        point: str,
        data: Any,
        **terms: Unpack[KeyedTerms[Any]],
    ) -> Any: ...
    @overload
    def ask(
        self,
        *,
        reason: str,
        message: str | None = None,
        resume: type[R],
        **terms: Unpack[KeyedTerms[R]],
    ) -> R: ...
    def ask(
        self,
        point: WaitPoint[Any, Any] | str | None = None,
        data: Any = None,
        *,
        key: str | None = None,
        request_id: str | None = None,
        prompt: str | None = None,
        reason: str | None = None,
        message: str | None = None,
        resume: Any = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | Unset = UNSET,
        default: Any = UNSET,
        answerers: Sequence[str] | None = None,
    ) -> Any:
        """Stop here (inline style) and return the typed answer once there is one. Do not await it, in `async def` too.

        What stands above runs again on every pass, and must ask the same again: answers are
        matched by wait point, key, order and the fields of `data` that make the question. A question that differs is
        asked anew once, with a `note` that names the field. Asks that run side by side
        (`asyncio.gather`) need a `key` of their own each. With `reason` and `resume` no wait point
        has to be declared, and `message` says more than the reason. The type is pinned when the wait opens, and a
        deploy that changes it is found when the body asks again. `timeout`, `on_timeout`, `default` and `answerers`
        are those of the wait point, for this ask alone; what is left out is as the wait point says.

        Raises `Declined`, `AnswerFailed` or `Expired` (all `Refused`) for a wait that ended
        without a submit, `SuspendPayloadError` for data that does not fit, and
        `DefinitionError` for arguments that do not go together. The run fails with `ReplayMismatchError` if the
        question differs once more, and with `ToolChangedError` if the type of an undeclared wait has changed.
        """
        if point is None:
            wait, told = self._undeclared(reason, message, resume, data)
            data, prompt = told, (message or reason) if prompt is None else prompt
        else:
            self._ensure_alone(reason=reason, message=message, resume=resume)
            wait = self._declared(point)
        wait = wait.with_terms(self._where(wait), timeout, on_timeout, default, answerers)
        self._ensure_outside_of_once(wait.name)
        key = self._text_or_none("key", key)
        ordinal = self._asked[wait.name, key]
        self._asked[wait.name, key] += 1
        earlier = self._at(wait.name, key, ordinal)
        known = self._same_question([state for state in earlier if state.any_of is None], wait, data)
        if known is None:
            note = self._note(earlier, wait, data, ordinal)
            self._stop(
                wait, data, style="inline", ordinal=ordinal, key=key, request_id=request_id, prompt=prompt, note=note
            )
        if point is None:
            self._ensure_same_type(known, wait)
            self._undeclared_types[wait.name, key, ordinal] = wait.resume
            self._entry = None  # it may be about this wait, and its type was not known before
        assert known.resolution is not None, "a call runs again only when all of its waits have ended"
        refused = refusal_of(known)
        if refused is not None:
            raise refused
        answer = self._load(wait.resume, known.resolution.resume, answer_of(known), known)
        self._pass.answer_types.add(type(answer).__name__)
        return answer

    def action_id(self, point: WaitPoint[Any, Any] | str, *, key: str | None = None) -> str:
        """The id of the wait at `point` that comes next in this pass, to hand out before it opens.

        A pass that comes by an answered `ask` again is given the id that it had, so the id may be
        part of what is asked. It is signed: an answer that overtakes the suspend is kept and
        judged when it opens.
        """
        wait = self._declared(point)
        key = self._text_or_none("key", key)
        earlier = self._at(wait.name, key, self._asked[wait.name, key])
        if earlier:
            return earlier[-1].action.id
        return str(self.run_once(self._reserved(wait.name, key), self._recorder.new_action_id))

    def _suspend(self, wait: WaitPoint[Any, Any], data: Any, request_id: object, prompt: str | None) -> NoReturn:
        self._ensure_outside_of_once(wait.name)
        ordinal = sum(1 for state in self._actions if state.action.origin.wait_point == wait.name)
        self._stop(wait, data, style="entry", ordinal=ordinal, key=None, request_id=request_id, prompt=prompt)

    def _where(self, wait: WaitPoint[Any, Any]) -> str:
        return f"tool {self._tool!r}, wait point {wait.name!r}"

    def _undeclared(
        self, reason: str | None, message: str | None, resume: Any, data: Any
    ) -> tuple[WaitPoint[Any, Any], dict[str, str]]:
        """The wait of an `ask` without a wait point, and what it shows."""
        where = f"tool {self._tool!r}"
        if reason is None or resume is None:
            raise DefinitionError(
                where, "ask() without a wait point", "give reason= and resume=, and message= to say more"
            )
        if data is not None:
            raise DefinitionError(where, "ask() with data= and without a wait point", "say it in message=")
        self._text_or_none("message", message)
        if self._text("reason", reason) in self._wait_points:
            problem = f"ask(reason={reason!r}) beside a wait point of that name"
            raise DefinitionError(where, problem, "ask at the wait point, or give another reason=")
        return WaitPoint(reason, suspend=dict, resume=resume), (
            {"reason": reason} if message is None else {"reason": reason, "message": message}
        )

    def _resume_contract(self, state: ActionState) -> Contract[Any]:
        """The type of the answer to a wait: its wait point's, or what an ask has given, in this pass or earlier."""
        wait = state.action.origin.wait_point
        if wait in self._wait_points:
            return self._wait_points[wait].resume
        given = self._undeclared_types.get((wait, state.key, state.ordinal))
        if given is not None:
            return given
        type_ = referenced(state.resume_type, self._function)
        if type_ is not None:
            try:
                contract = Contract.of(type_)
            except DefinitionError:
                return _ANYTHING
            # A deploy may have changed it. The ask says so, when the body reaches it.
            if contract.reads_all(state.action.resume_schema):
                return contract
        return _ANYTHING

    def _ensure_alone(self, **undeclared: Any) -> None:
        """Refuse what an ask at a wait point would not use."""
        if given := [name for name, value in undeclared.items() if value is not None]:
            raise DefinitionError(
                f"tool {self._tool!r}",
                f"ask() at a wait point with {given[0]}=",
                "give that only to an ask without a wait point",
            )

    def _ensure_same_type(self, known: ActionState, wait: WaitPoint[Any, Any]) -> None:
        """Fail the run if the type of an undeclared wait may not read what its answer was given for.

        No declaration shows it before the body asks. A tool that has another version is here only because
        it declares that it resumes from the earlier one.
        """
        if known.fingerprint.get("version") != self._fingerprint.get("version"):
            return
        problems = incompatibilities(known.action.resume_schema, wait.resume.json_schema)
        if problems:
            self._pass.fault = ToolChangedError(
                self._tool, [f"wait {wait.name} resume changed ({'; '.join(problems)})"]
            )
            raise self._pass.fault

    def _declared(self, point: WaitPoint[Any, Any] | str) -> WaitPoint[Any, Any]:
        given: object = point
        if not isinstance(given, str | WaitPoint):
            problem = f"{shown(given)} is not a wait point"
            raise DefinitionError(f"tool {self._tool!r}", problem, "give one that the tool declares, or its name")
        name = point if isinstance(point, str) else point.name
        wait = self._wait_points.get(name)
        if wait is None or (not isinstance(point, str) and wait is not point):
            declared = ", ".join(self._wait_points) or "none"
            raise DefinitionError(
                f"tool {self._tool!r}",
                f"wait point {name!r} is not one of its own",
                f"declare it (it has: {declared})",
            )
        return wait

    def _dump_unset(self, wait: WaitPoint[Any, Any], data: Any) -> tuple[Any, tuple[Path, ...]]:
        return wait.suspend.dump_unset(data, f"{self._tool}.{wait.name}", SuspendPayloadError)

    def _at(self, wait: str, key: str | None, ordinal: int) -> list[ActionState]:
        """The waits of an `ask` at this place: more than one if its question differed, and was asked anew.

        One of a `suspend` is another question, though it may read the same.
        """
        place = ("inline", wait, key, ordinal)
        return [
            state
            for state in self._actions
            if (state.style, state.action.origin.wait_point, state.key, state.ordinal) == place
        ]

    def _same_question(
        self, earlier: Sequence[ActionState], wait: WaitPoint[Any, Any], data: Any
    ) -> ActionState | None:
        """The newest wait at this place that asked the same. Another question never gets its answer."""
        try:
            return same_question(earlier, wait, data, f"{self._tool}.{wait.name}")
        except SuspendPayloadError:
            # An error of the body would drop the answer that its earlier question has got.
            raise self._mismatch(f"an ask of wait point {wait.name!r}", "has data now that does not fit") from None

    def _note(self, earlier: Sequence[ActionState], wait: WaitPoint[Any, Any], data: Any, ordinal: int) -> str | None:
        """Why a question is asked anew; None for one that is asked for the first time.

        A question is asked anew once: a body that asks something else on every pass would ask for ever. Raises
        `ReplayMismatchError`.
        """
        if not earlier:
            return None
        field = self._differing(earlier[-1], wait, data) or _TOGETHER
        if len(earlier) >= _TIMES_ASKED:
            place = f"ask number {ordinal + 1} of wait point {wait.name!r}"
            raise self._mismatch(place, f"differs in {field} each time, and was asked anew already")
        return asked_again(field)

    def _differing(self, recorded: ActionState, wait: WaitPoint[Any, Any], data: Any) -> str | None:
        """The field in which `data` asks something else than was asked; None if it asks the same."""
        before = recorded.action.input
        now = wait.question_in(as_recorded(before, *self._dump_unset(wait, data)))
        before = wait.question_in(before)
        return difference(before, now) or (None if digest(before) == digest(now) else "the suspend data")

    def _reserved(self, wait: str, key: str | None) -> str:
        """The memo that holds the id of the wait that is opened here next, if it was handed out."""
        waits = [(state.action.origin.wait_point, state.key) for state in self._actions]
        waits += [(action.origin.wait_point, action.key) for action in self._pass.opened]
        place = f"adjourn:action:{wait}:{waits.count((wait, key))}"
        return place if key is None else f"{place}:{key}"

    def _stop(
        self,
        wait: WaitPoint[Any, Any],
        data: Any,
        *,
        style: Style,
        ordinal: int,
        key: str | None,
        request_id: object,
        prompt: str | None,
        note: str | None = None,
    ) -> NoReturn:
        action = self._new_action(
            wait, data, style=style, ordinal=ordinal, key=key, request_id=request_id, prompt=prompt, note=note
        )
        self._side_by_side([(wait.name, key)])
        self._open([action])

    def _new_action(
        self,
        wait: WaitPoint[Any, Any],
        data: Any,
        *,
        style: Style,
        ordinal: int,
        key: str | None,
        request_id: object,
        prompt: str | None,
        note: str | None = None,
    ) -> NewAction:
        """The wait as it will be opened. Raises `SuspendPayloadError`."""
        payload, unset = self._dump_unset(wait, data)
        reserved = self._memos.get(self._reserved(wait.name, key))
        return NewAction(
            id=reserved or self._recorder.new_action_id(),
            request_id=chosen_id(request_id, f"{self._tool}.{wait.name}"),
            name=f"{self._tool}.{wait.name}",
            kind=wait.kind,
            prompt=_prompt(payload) if prompt is None else self._text("prompt", prompt),
            input=payload,
            resume_schema=wait.resume.json_schema,
            schema_decides=wait.resume.schema_decides,
            suspend_schema=compact(wait.suspend.json_schema),
            origin=self._origin(wait.name),
            timeout_seconds=wait.timeout.total_seconds() if wait.timeout else None,
            on_timeout=wait.on_timeout,
            default=wait.default,
            answerers=wait.answerers,
            style=style,
            ordinal=ordinal,
            key=key,
            digest=digest(payload),
            fingerprint=self._fingerprint,
            input_schema=self._input_schema,
            announced=reserved is not None,
            unset=unset,
            note=note,
            resume_type=None if wait.name in self._wait_points else reference_to(wait.resume.type),
        )

    def _open(self, actions: Sequence[NewAction]) -> NoReturn:
        """Open these waits together: the pass ends here."""
        with self._lock:
            if self._pass.ended:
                raise DetachedSuspendError(self._tool, actions[0].origin.wait_point)
            self._pass.opened.extend(actions)
            self._pass.suspended = True
        raise Suspension(actions[0].id)

    def _side_by_side(self, asked: Sequence[tuple[str, str | None]]) -> None:
        """Refuse a second ask of one pass unless each has a key of its own: nothing else tells their answers apart.

        The questions of one `ask_any` are one ask: they need keys only where they are at the same wait point.
        """
        keys = [*self._open_asks, *asked]
        beside = bool(self._open_asks) and any(key is None for _, key in keys)
        if len(set(keys)) < len(keys) or beside:
            self._pass.misuse = AskKeyMissingError(self._tool, asked[0][0])
            raise self._pass.misuse
        self._open_asks = keys


def wait_of(context: Waiting, wait: WaitPoint[Any, Any], data: Any) -> NewAction:
    """Return the wait of a question that is not the body's own. Nothing is suspended. Raises `SuspendPayloadError`."""
    ordinal = sum(1 for state in context._actions if state.action.origin.wait_point == wait.name)
    return context._new_action(wait, data, style="entry", ordinal=ordinal, key=None, request_id=None, prompt=None)


def ensure_answers_used(context: Waiting) -> None:
    """Note a fault of the pass if its body has ended without asking again where an accepted answer waits for it.

    Whoever answered has to see an effect, so the run fails and keeps the answer. An answer that the body has read by
    `entry` or `suspend_history` is used.
    """
    for state in context._actions:
        wait, ended = state.action.origin.wait_point, state.resolution
        answered = state.style == "inline" and ended is not None and ended.answer_id is not None
        asked = state.ordinal < context._asked[wait, state.key] or state.action.id in context._read
        if answered and not asked and context._pass.fault is None:
            with_key = "" if state.key is None else f" with key {state.key!r}"
            place = f"ask number {state.ordinal + 1} of wait point {wait!r}{with_key}"
            context._mismatch(place, f"was answered (action {state.action.id}), and the body did not come by it again")


def asked_again(field: str) -> str:
    """Why a question is asked anew, for the person who answers."""
    return f"Asked again because {field} differs from what was asked before; the earlier answer was not used."


def _prompt(payload: Any) -> str | None:
    """What a person reads first: the suspend data's `prompt` or `message`, if it has one."""
    if not isinstance(payload, dict):
        return None
    said = payload.get("prompt", payload.get("message"))
    return said if isinstance(said, str) else None
