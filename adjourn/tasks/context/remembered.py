"""What a tool body remembers from one pass to the next: `run_once` and `step`."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, TypeVar, overload
from uuid import NAMESPACE_OID, UUID, uuid5

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import AskInsideOnceError, RoundTripError, RunOnceClashError
from adjourn.tasks.context.pass_state import PassState

R = TypeVar("R")

_NOW: Final = "adjourn:now:"
"""Before the number of a time, in the key of its memo."""
_STEP: Final = "adjourn:step:"
"""Before the number and the name of a step, in the key of its memo."""
AWAITED: Final = "adjourn:awaited:"
"""Before the key of a memo, where a function that is not async has returned an awaitable, as a lambda may: the next
pass does not call it, and has to return an awaitable again."""


_once: ContextVar[tuple[tuple[PassState, str], ...]] = ContextVar("adjourn_run_once", default=())
"""The `run_once` that the code at hand runs inside, outermost first, with their contexts."""


class Remembering(PassState):
    """The part of a `Context` that records results."""

    @overload
    def run_once(
        self, key: str, function: Callable[[], Awaitable[R]], *, returns: type[R] | None = None
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run_once(self, key: str, function: Callable[[], R], *, returns: type[R] | None = None) -> R: ...
    def run_once(self, key: str, function: Callable[[], Any], *, returns: type[Any] | None = None) -> Any:
        """Run `function` on the first pass and return its recorded result on every later one.

        `function` may be async: then await what `run_once` returns. The result is stored as JSON; give `returns` for
        a type that JSON does not have, and it comes back typed. A crash between the effect and the record can repeat
        it: hand `idempotency_key` on to what takes one. Raises `RoundTripError` for a result that JSON
        cannot hold, `TooLargeError` for one that is over a limit, `RunOnceClashError` where the same
        key is still running, beside this or around it, and `AskInsideOnceError` where `function` asks.
        """
        key = self._text("key", key)
        if inspect.iscoroutinefunction(function) or AWAITED + key in self._memos:
            return self._awaited_once(key, key, function, returns)
        if key not in self._memos:
            with self._running_once(key):
                if key not in self._memos:  # it may have ended just now, beside this
                    result = function()
                    if inspect.isawaitable(result):  # of a lambda around an async function
                        return self._awaited_once(key, AWAITED + key, lambda: result, returns)
                    self._keep(key, result, returns)
        return self._memo(key, returns)

    @overload
    def step(
        self, name: str, function: Callable[[], Awaitable[R]], *, returns: type[R] | None = None
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, name: str, function: Callable[[], R], *, returns: type[R] | None = None) -> R: ...
    def step(self, name: str, function: Callable[[], Any], *, returns: type[Any] | None = None) -> Any:
        """Run the next step of the body once, as `run_once` does. It is known by its position and its name.

        The n-th step of every pass must have the same name. If it has another one, the run fails with
        `ReplayMismatchError`. So take steps one after the other; side by side, use `run_once` with keys. A loop may
        use one name again and again.
        """
        return self.run_once(self._step_key(name), function, returns=returns)

    def now(self) -> datetime:
        """The time by the clock of the database, in UTC. The n-th call returns what it returned in the first pass.

        Recorded as `run_once` records, with one write for each call. Raises what `run_once` raises.
        """
        with self._lock:
            self._drawn["now"] += 1
            key = f"{_NOW}{self._drawn['now']}"
        return self.run_once(key, self._recorder.now, returns=datetime)

    def uuid(self) -> UUID:
        """The n-th call in a pass returns what the n-th returned in every pass of this tool call.

        Calculated from `idempotency_key`, so it costs no write and a crash cannot lose it. Another tool call has
        other values. Whoever knows the key can calculate it too: it is no secret. Like a step, it is known by its
        position: where tasks run side by side, take it before they start.
        """
        return uuid5(NAMESPACE_OID, self._next_seed("uuid"))

    def random(self) -> float:
        """A number from 0 up to but not including 1, the same on every pass, as `uuid` is. Not for secrets."""
        return random.Random(self._next_seed("random")).random()

    def _next_seed(self, kind: str) -> str:
        with self._lock:
            self._drawn[kind] += 1
            return f"adjourn:{kind}:{self.idempotency_key}:{self._drawn[kind]}"

    def _step_key(self, name: str) -> str:
        """The memo of the step that comes next in this pass. Raises `ReplayMismatchError`."""
        name = self._text("name", name)
        with self._lock:
            number = self._steps = self._steps + 1
        place = f"{_STEP}{number}:"
        keys = [key.removeprefix(AWAITED) for key in tuple(self._memos)]
        known = next((key.removeprefix(place) for key in keys if key.startswith(place)), name)
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
            self._pass.misuse = AskInsideOnceError(self._tool, wait, _shown(key))
            raise self._pass.misuse

    async def _awaited_once(self, key: str, record: str, function: Callable[[], Any], returns: type[Any] | None) -> Any:
        """Do `run_once` for what has to be awaited, under the memo `record`. Another form of the key counts too."""
        recorded = next((each for each in (AWAITED + key, key) if each in self._memos), None)
        if recorded is None:
            with self._running_once(key):
                if record not in self._memos:
                    await asyncio.to_thread(self._keep, record, await function(), returns)
        return self._memo(recorded or record, returns)

    def _keep(self, key: str, result: Any, returns: type[Any] | None) -> None:
        value = _contract(returns).dump_set(result, f"run_once({_shown(key)!r})", RoundTripError)
        self._recorder.memo(self._call.id, key, value)
        self._memos[key] = value

    def _memo(self, key: str, returns: type[Any] | None) -> Any:
        return self._load(_contract(returns), self._memos[key], f"the result of {_shown(key)!r}")


def _shown(key: str) -> str:
    """The key as the body gave it. A step keeps its number."""
    return key.removeprefix(AWAITED).removeprefix(_STEP)


def _contract(type_: type[Any] | None) -> Contract[Any]:
    return Contract.of(Any if type_ is None else type_)
