"""What a tool is given: its entry, its history, and the ways to stop and to remember.

A `Context` belongs to one pass of one call. It opens nothing itself: a suspend is raised, and
whoever runs the body (`adjourn.tasks.body`) writes it down.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast, overload

from adjourn.schemas.actions import ActionState, NewAction, Origin, Style
from adjourn.schemas.entries import Entry, Initial, RefusedEntry, RequestAnswer, Resume, SuspendRecord
from adjourn.schemas.errors import (
    AnswerFailed,
    AskInsideOnceError,
    AskKeyMissingError,
    Declined,
    DefinitionError,
    DetachedSuspendError,
    Expired,
    Refused,
    ReplayMismatchError,
    RoundTripError,
    RunOnceClashError,
    SuspendPayloadError,
    ToolError,
)
from adjourn.schemas.messages import ToolCall
from adjourn.schemas.strict_json import clean_text, digest
from adjourn.schemas.suspend_schema import compact
from adjourn.schemas.unset import Path, without
from adjourn.schemas.values import Contract
from adjourn.schemas.wait_points import WaitPoint
from adjourn.tasks.request_ids import chosen_id

S = TypeVar("S")
R = TypeVar("R")

_STEP: Final = "adjourn:step:"
"""Before the number and the name of a step, in the key of its memo."""
_OBJECT: Final[Any] = dict[str, Any] | None
_ADHOC_SUSPEND: Contract[Any] = Contract.of(_OBJECT)
REQUEST: Final = "request"
"""The name of the wait that `ctx.request` stops at."""


_once: ContextVar[tuple[tuple[Context, str], ...]] = ContextVar("adjourn_run_once", default=())
"""The `run_once` that the code at hand runs inside, outermost first, with their contexts."""


class Suspension(BaseException):
    """Control flow: the body stops here and its run parks.

    A `BaseException`, so that `except Exception` and retry policies let it pass.
    """

    def __init__(self, action_id: str) -> None:
        super().__init__(f"suspended at {action_id}")
        self.action_id = action_id


class Recorder(Protocol):
    """Where a pass writes what has to outlive it."""

    def memo(self, call_id: str, key: str, value: Any) -> None:
        """Make a memo durable. Raises `StaleClaimError` if the claim is lost, `TooLargeError` if it is too large."""

    def new_action_id(self) -> str:
        """A fresh signed id."""


class Context:
    """One pass of a tool call.

    `input` is always what the model called the tool with. `entry` says why the body runs.
    """

    def __init__(
        self,
        *,
        call: ToolCall,
        input: Any,
        tool: str,
        wait_points: Mapping[str, WaitPoint[Any, Any]],
        fingerprint: dict[str, str],
        origin: Callable[[str], Origin],
        actions: Sequence[ActionState],
        memos: dict[str, Any],
        recorder: Recorder,
    ) -> None:
        self.input: Any = input
        self.opened: list[NewAction] = []
        """Waits that this pass reached and that are not stored yet, in the order of the asking."""
        self.suspended = False
        """Whether this pass raised a `Suspension` at all."""
        self.fault: ReplayMismatchError | None = None
        """A mismatch fails the run even where the body swallows it."""
        self.misuse: ToolError | None = None
        """A misuse closes the call even where it was raised in a task that nobody awaits."""
        self._call = call
        self._tool = tool
        self._wait_points = wait_points
        self._fingerprint = fingerprint
        self._origin = origin
        self._actions = actions
        self._memos = memos
        self._recorder = recorder
        self._asked: Counter[tuple[str, str | None]] = Counter()
        self._entry: Entry | None = None
        self._open_asks: list[tuple[str, str | None]] = []
        self._lock = threading.Lock()
        self._ended = False
        self._steps = 0
        self._once_keys: set[str] = set()
        """Of the `run_once` that are running now."""

    # --- who and why ---------------------------------------------------------------------

    @property
    def call_id(self) -> str:
        """The id of this call; the same on every pass."""
        return self._call.id

    @property
    def run_id(self) -> str:
        return self._origin("").run_id

    @property
    def thread_id(self) -> str:
        return self._origin("").thread_id

    @property
    def idempotency_key(self) -> str:
        """The same for every pass of this call, and for no other: hand it to services that take one."""
        return f"{self.run_id}:{self._call.id}"

    @property
    def entry(self) -> Entry:
        """`Initial`, or why the body runs again: the wait that it asked last.

        Of waits side by side, all of which have ended by then, that is the same one in whichever order they did.
        """
        if self._entry is None:
            self._entry = _entry(self._actions, self._resume_contract)
        return self._entry

    @property
    def answer(self) -> RequestAnswer | None:
        """`entry` in short: `None` on the first pass, and then what became of the wait that was asked last."""
        entry = self.entry
        if isinstance(entry, Initial):
            return None
        id = entry.action.request_id or entry.action.id
        if isinstance(entry, Resume):
            return RequestAnswer(id=id, ok=True, data=entry.resume, reason=entry.reason)
        return RequestAnswer(id=id, ok=False, data=entry.data, reason=entry.reason or entry.message)

    @property
    def suspend_history(self) -> tuple[SuspendRecord, ...]:
        """Every earlier wait of this call, oldest first, typed by its wait point."""
        return tuple(self._record(state) for state in self._actions)

    # --- stopping --------------------------------------------------------------------------

    @overload
    def suspend(
        self, point: WaitPoint[S, Any], data: S, *, request_id: str | None = None, prompt: str | None = None
    ) -> NoReturn: ...
    @overload
    def suspend(
        self, point: str, data: Any, *, request_id: str | None = None, prompt: str | None = None
    ) -> NoReturn: ...
    def suspend(
        self, point: WaitPoint[Any, Any] | str, data: Any, *, request_id: str | None = None, prompt: str | None = None
    ) -> NoReturn:
        """Stop here (entry style). The body runs again from its top, with the answer in `entry`.

        Raises `SuspendPayloadError` if `data` does not fit; then nothing is opened.
        """
        self._suspend(self._declared(point), data, request_id, prompt)

    def request(
        self,
        id: object = None,
        kind: str | None = None,
        prompt: str | None = None,
        data: dict[str, Any] | None = None,
        *,
        timeout: timedelta | None = None,
    ) -> NoReturn:
        """Stop here (entry style) at a wait that is not declared. The body runs again, with the answer in `answer`.

        `data` is what is shown beside the prompt; the answer is an object or null. An answer may name
        `id`, which need not be unique: of two open ones it is refused. An `id` that is not text is taken as its
        JSON: 7 as `"7"`. Raises `SuspendPayloadError` for an `id` that cannot be one and for
        `data` that is no object, and `DefinitionError` in a tool that has declared a wait point of this name.
        """
        if REQUEST in self._wait_points:
            raise DefinitionError(
                f"tool {self._tool!r}", f"request() beside a wait point named {REQUEST!r}", "give that another name"
            )
        kind = None if kind is None else clean_text(kind)
        wait: WaitPoint[Any, Any] = WaitPoint(
            REQUEST, suspend=_OBJECT, resume=_OBJECT, timeout=timeout, on_timeout="error", kind=kind
        )
        self._suspend(wait, data, id, prompt)

    @overload
    def ask(
        self,
        point: WaitPoint[S, R],
        data: S,
        *,
        key: str | None = None,
        request_id: str | None = None,
        prompt: str | None = None,
    ) -> R: ...
    @overload
    def ask(
        self,
        point: str,
        data: Any,
        *,
        key: str | None = None,
        request_id: str | None = None,
        prompt: str | None = None,
    ) -> Any: ...
    @overload
    def ask(
        self,
        *,
        reason: str,
        message: str,
        resume: type[R],
        key: str | None = None,
        request_id: str | None = None,
        timeout: timedelta | None = None,
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
    ) -> Any:
        """Stop here (inline style) and return the typed answer once there is one.

        What stands above runs again on every pass, and must ask the same again: answers are
        matched by wait point, key, order and a digest of `data`. Asks that run side by side
        (`asyncio.gather`) need a `key` of their own each. With `reason`, `message` and `resume` no wait
        point has to be declared.

        Raises `Declined`, `AnswerFailed` or `Expired` (all `Refused`) for a wait that ended
        without a submit, `SuspendPayloadError` for data that does not fit, and
        `ReplayMismatchError`, which fails the run, if another question stood here before.
        """
        if point is None:
            if reason is None or message is None or resume is None:
                raise DefinitionError(
                    f"tool {self._tool!r}", "ask() without a wait point", "give reason=, message= and resume="
                )
            wait: WaitPoint[Any, Any] = WaitPoint(
                reason, suspend=dict, resume=resume, timeout=timeout, on_timeout="error"
            )
            data, prompt = {"reason": reason, "message": message}, message
        else:
            wait = self._declared(point)
        self._ensure_outside_of_once(wait.name)
        key = None if key is None else clean_text(key)
        ordinal = self._asked[wait.name, key]
        self._asked[wait.name, key] += 1
        known = self._matching(wait.name, key, ordinal)
        if known is None:
            self._stop(wait, data, style="inline", ordinal=ordinal, key=key, request_id=request_id, prompt=prompt)
        if known.digest != digest(self._dump(wait, data)):
            raise self._mismatch(f"ask number {ordinal + 1} of wait point {wait.name!r}", "has other data now")
        assert known.resolution is not None, "a call runs again only when all of its waits have ended"
        refused = refusal_of(known)
        if refused is not None:
            raise refused
        return wait.resume.load(known.resolution.resume)

    def action_id(self, point: WaitPoint[Any, Any] | str, *, key: str | None = None) -> str:
        """The id of the wait at `point` that comes next in this pass, to hand out before it opens.

        A pass that comes by an answered `ask` again is given the id that it had, so the id may be
        part of what is asked. It is signed: an answer that overtakes the suspend is kept and
        judged when it opens.
        """
        wait = self._declared(point)
        key = None if key is None else clean_text(key)
        known = self._matching(wait.name, key, self._asked[wait.name, key])
        if known is not None:
            return known.action.id
        return str(self.run_once(self._reserved(wait.name, key), self._recorder.new_action_id))

    # --- remembering -----------------------------------------------------------------------

    def run_once(self, key: str, function: Callable[[], R], *, returns: type[R] | None = None) -> R:
        """Run `function` on the first pass and return its recorded result on every later one.

        The result is stored as JSON; give `returns` for a type that JSON does not have, and it
        comes back typed. A crash between the effect and the record can repeat it: hand
        `idempotency_key` on to what takes one. Raises `RoundTripError` for a result that JSON
        cannot hold, `TooLargeError` for one that is over a limit, `RunOnceClashError` where the same
        key is still running, beside this or around it, and `AskInsideOnceError` where `function` asks.
        """
        key = clean_text(key)
        if key not in self._memos:
            with self._running_once(key):
                if key not in self._memos:  # it may have ended just now, beside this
                    self._keep(key, function(), returns)
        return self._memo(key, returns)

    async def run_once_async(
        self, key: str, function: Callable[[], Awaitable[R]], *, returns: type[R] | None = None
    ) -> R:
        """`run_once` for an async function."""
        key = clean_text(key)
        if key not in self._memos:
            with self._running_once(key):
                if key not in self._memos:
                    result = await function()
                    await asyncio.to_thread(self._keep, key, result, returns)
        return self._memo(key, returns)

    def step(self, name: str, function: Callable[[], R], *, returns: type[R] | None = None) -> R:
        """`run_once` for the next step of the body, which is known by its position and its name.

        The n-th step of every pass has to be the one that it was: where a pass comes to one of
        another name, the run fails with `ReplayMismatchError`. So steps are taken one after the other;
        beside each other, use `run_once` with keys. A loop may use one name again and again.
        """
        return self.run_once(self._step_key(name), function, returns=returns)

    async def step_async(self, name: str, function: Callable[[], Awaitable[R]], *, returns: type[R] | None = None) -> R:
        """`step` for an async function."""
        return await self.run_once_async(self._step_key(name), function, returns=returns)

    def _step_key(self, name: str) -> str:
        """The memo of the step that comes next in this pass. Raises `ReplayMismatchError`."""
        name = clean_text(name)
        with self._lock:
            number = self._steps = self._steps + 1
        place = f"{_STEP}{number}:"
        known = next((key.removeprefix(place) for key in tuple(self._memos) if key.startswith(place)), name)
        if known != name:
            raise self._mismatch(f"step number {number}", f"was {known!r} and is {name!r} now")
        return place + name

    @contextmanager
    def _running_once(self, key: str) -> Iterator[None]:
        with self._lock:
            if key in self._once_keys:
                raise RunOnceClashError(self._tool, key)
            self._once_keys.add(key)
        outer = _once.set((*_once.get(), (self, key)))
        try:
            yield
        finally:
            _once.reset(outer)
            self._once_keys.discard(key)

    def _ensure_outside_of_once(self, wait: str) -> None:
        """A later pass has the record and does not come by a wait inside; the next would be given its answer."""
        key = next((key for context, key in _once.get() if context is self), None)
        if key is not None:
            self.misuse = AskInsideOnceError(self._tool, wait, key.removeprefix(_STEP))
            raise self.misuse

    def _keep(self, key: str, result: R, returns: type[R] | None) -> None:
        value = _contract(returns).dump_set(result, f"run_once({key!r})", RoundTripError)
        self._recorder.memo(self._call.id, key, value)
        self._memos[key] = value

    def _memo(self, key: str, returns: type[R] | None) -> R:
        return cast(R, _contract(returns).load(self._memos[key]))

    # --- inside ----------------------------------------------------------------------------

    def end(self) -> None:
        """The body has ended: a thread or task that it left cannot suspend any more."""
        with self._lock:
            self._ended = True

    def _mismatch(self, place: str, problem: str) -> ReplayMismatchError:
        self.fault = ReplayMismatchError(f"{self._tool} ({self._call.id})", place, problem)
        return self.fault

    def _suspend(self, wait: WaitPoint[Any, Any], data: Any, request_id: object, prompt: str | None) -> NoReturn:
        self._ensure_outside_of_once(wait.name)
        ordinal = sum(1 for state in self._actions if state.action.origin.wait_point == wait.name)
        self._stop(wait, data, style="entry", ordinal=ordinal, key=None, request_id=request_id, prompt=prompt)

    def _declared(self, point: WaitPoint[Any, Any] | str) -> WaitPoint[Any, Any]:
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

    def _dump(self, wait: WaitPoint[Any, Any], data: Any) -> Any:
        return wait.suspend.dump(data, f"{self._tool}.{wait.name}", SuspendPayloadError)

    def _dump_unset(self, wait: WaitPoint[Any, Any], data: Any) -> tuple[Any, tuple[Path, ...]]:
        return wait.suspend.dump_unset(data, f"{self._tool}.{wait.name}", SuspendPayloadError)

    def _matching(self, wait: str, key: str | None, ordinal: int) -> ActionState | None:
        """The wait of an `ask` at this place. One of a `suspend` is another question, though it may read the same."""
        for state in self._actions:
            place = (state.style, state.action.origin.wait_point, state.key, state.ordinal)
            if place == ("inline", wait, key, ordinal):
                return state
        return None

    def _reserved(self, wait: str, key: str | None) -> str:
        """The memo that holds the id of the wait that is opened here next, if it was handed out."""
        waits = [(state.action.origin.wait_point, state.key) for state in self._actions]
        waits += [(action.origin.wait_point, action.key) for action in self.opened]
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
    ) -> NoReturn:
        payload, unset = self._dump_unset(wait, data)
        self._side_by_side(wait.name, key)
        reserved = self._memos.get(self._reserved(wait.name, key))
        action = NewAction(
            id=reserved or self._recorder.new_action_id(),
            request_id=chosen_id(request_id, f"{self._tool}.{wait.name}"),
            name=f"{self._tool}.{wait.name}",
            kind=wait.kind,
            prompt=clean_text(prompt) if prompt else _prompt(payload),
            input=payload,
            resume_schema=wait.resume.json_schema,
            suspend_schema=compact(wait.suspend.json_schema),
            origin=self._origin(wait.name),
            timeout_seconds=wait.timeout.total_seconds() if wait.timeout else None,
            on_timeout=wait.on_timeout,
            default=wait.default,
            answerers=wait.answerers,
            callback=wait.callback,
            style=style,
            ordinal=ordinal,
            key=key,
            digest=digest(payload),
            fingerprint=self._fingerprint,
            announced=reserved is not None,
            unset=unset,
        )
        with self._lock:
            if self._ended:
                raise DetachedSuspendError(self._tool, wait.name)
            self.opened.append(action)
            self.suspended = True
        raise Suspension(action.id)

    def _side_by_side(self, wait: str, key: str | None) -> None:
        """Refuse a second ask of one pass unless each has a key of its own: nothing else tells their answers apart."""
        keys = [*self._open_asks, (wait, key)]
        if len(keys) > 1 and (len(set(keys)) < len(keys) or any(each is None for _, each in keys)):
            self.misuse = AskKeyMissingError(self._tool, wait)
            raise self.misuse
        self._open_asks = keys

    def _resume_contract(self, wait: str) -> Contract[Any]:
        point = self._wait_points.get(wait)
        return point.resume if point else Contract.of(Any)

    def _record(self, state: ActionState) -> SuspendRecord:
        point = self._wait_points.get(state.action.origin.wait_point)
        ended = state.resolution
        resume = ended.resume if ended else None
        if ended and point and has_value(state):
            resume = point.resume.load(resume)
        return SuspendRecord(
            name=state.action.origin.wait_point,
            status=ended.status if ended else "pending",
            suspended_at=state.action.opened_at,
            input=(point.suspend if point else _ADHOC_SUSPEND).load(without(state.action.input, state.unset)),
            resolved_at=ended.resolved_at if ended else None,
            resume=resume,
            data=ended.data if ended else None,
            reason=ended.reason if ended else None,
            message=ended.message if ended else None,
            answered_by=ended.answered_by if ended else None,
        )


def has_value(state: ActionState) -> bool:
    """Whether the wait ended with a value: a submit, or a deadline that has a default."""
    ended = state.resolution
    return ended is not None and (
        ended.status == "submitted" or (ended.status == "expired" and state.on_timeout == "default")
    )


def _entry(actions: Sequence[ActionState], contract: Callable[[str], Contract[Any]]) -> Entry:
    last = actions[-1] if actions else None
    if last is None or last.resolution is None:
        return Initial()
    ended, wait = last.resolution, last.action.origin.wait_point
    if ended.status == "submitted" or has_value(last):
        return Resume(name=wait, resume=contract(wait).load(ended.resume), reason=ended.reason, action=last.action)
    said = {"reason": ended.reason, "message": ended.message, "data": ended.data}
    return RefusedEntry(name=wait, status=ended.status, **said, action=last.action)


def refusal_of(state: ActionState) -> Refused | None:
    """The refusal that a wait ended with; None while it is pending, or if it ended with a value."""
    ended, action = state.resolution, state.action
    if ended is None or has_value(state):
        return None
    if ended.status == "cancelled":
        return Declined(action.id, action.name, action.prompt, ended.reason, ended.data)
    if ended.status == "failed":
        return AnswerFailed(action.id, action.name, ended.message or ended.reason or "no message", ended.data)
    return Expired(action.id, action.name, action.prompt)


def _prompt(payload: Any) -> str | None:
    """What a person reads first: the suspend data's `prompt` or `message`, if it has one."""
    if not isinstance(payload, dict):
        return None
    said = payload.get("prompt", payload.get("message"))
    return said if isinstance(said, str) else None


def _contract(type_: type[R] | None) -> Contract[Any]:
    return Contract.of(Any if type_ is None else type_)
