"""Runs the body of a tool once and says what came of it. Writes nothing but what the context records."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from adjourn.schemas.errors import (
    AdjournError,
    AskAwaitedError,
    DefinitionError,
    DetachedSuspendError,
    ForeignContextError,
    PayloadError,
    StaleClaimError,
    StoredValueError,
    StoreUnavailableError,
    SuspendSwallowedError,
    TooLargeError,
    ToolError,
    ToolOutputError,
    ToolTimeoutError,
)
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import NewAction
from adjourn.schemas.strict_json import dumps
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.context.facade import Context, PassRecord, Suspension
from adjourn.tasks.context.waits import ensure_answers_used
from adjourn.tasks.engine.results import CallResult, Output, Suspended, refusal
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.loop import ModelLoop, awaited, joined


@dataclass(frozen=True)
class Raised:
    """One attempt of the body ended with an exception. `output` is what the model reads of it."""

    output: Output
    may_retry: bool
    """True if the tool's `retries` count for it: it is an exception of the tool, and not one of ours."""


@dataclass(frozen=True)
class Stopped:
    """One attempt came to what the code of today cannot take up: the run has to fail with `error`."""

    error: AdjournError
    went_on: bool
    """True if the body did not end there: it caught the error, and what it did after that nobody knows."""


def run_body(tool: Tool[..., Any], attempt: Callable[[], CallResult | Raised]) -> CallResult:
    """Make attempts until one ends the body or suspends it, or the tool's retries are used up.

    An exception of the tool is an `Output` that the model reads. Raises what `attempt` raises.
    """
    for attempts_left in range(tool.options.retries, -1, -1):
        came = attempt()
        if not isinstance(came, Raised):
            return came
        if attempts_left == 0 or not came.may_retry:
            return came.output
    raise AssertionError("the last attempt returns")


def attempt_here(
    tool: Tool[..., Any],
    context: Callable[[PassRecord], Context],
    *,
    loop: ModelLoop,
    lease: Lease,
    timeout_seconds: float | None,
) -> CallResult | Raised | Stopped:
    """Run the body once in this process, with a fresh context.

    Raises `StaleClaimError` if the lease was lost, and `StoreUnavailableError`.
    """
    record = PassRecord()
    try:
        ctx = context(record)
    except PayloadError as error:  # of a default or a validator that took the same arguments before
        return refusal(error)
    except StoredValueError as error:
        return Stopped(error, went_on=False)
    came = _attempt(tool, ctx, record, loop, lease, timeout_seconds)
    if not isinstance(came, _Raised):
        ensure_answers_used(ctx)
    if record.fault is None and isinstance(came, _Raised) and _awaits_answer(came.error, record):
        # A fault, not an error of the tool: that would close the call, and the answer would have no effect.
        return Stopped(AskAwaitedError(tool.name), went_on=False)
    if record.fault is not None:
        went_on = isinstance(came, Output) or (isinstance(came, _Raised) and came.error is not record.fault)
        return Stopped(record.fault, went_on=went_on)
    if record.misuse is not None:
        return refusal(record.misuse)
    if not isinstance(came, _Raised):
        return came
    if isinstance(came.error, StaleClaimError | StoreUnavailableError):
        raise came.error
    return Raised(refusal(came.error), may_retry=not isinstance(came.error, AdjournError))


def verify(
    tool: Tool[..., Any],
    context: Callable[[PassRecord], Context],
    *,
    loop: ModelLoop,
    lease: Lease,
    timeout_seconds: float | None,
) -> Output | None:
    """Ask the tool's `verify` what a pass that died had done; None if the body may run again.

    What goes wrong in it leaves the outcome unknown: the model reads that, and nothing runs again.
    Raises `StaleClaimError` and `StoreUnavailableError`.
    """
    assert tool.options.verify is not None
    record = PassRecord()
    ctx = context(record)
    try:
        found = _call(partial(tool.options.verify, ctx), tool.name, ctx, loop, lease, timeout_seconds)
        if record.fault is not None:
            raise record.fault
        if found is None:
            return None
        return Output("success", tool.output.write(found.output, f"tool {tool.name!r}", ToolOutputError))
    except (StaleClaimError, StoreUnavailableError):
        raise
    except BaseException as error:
        if record.fault is not None:
            raise record.fault from None
        said = refusal(error).content
        return Output("interrupted", f"its worker died inside it, and verify could not find out what it did: {said}")


def fitting(came: CallResult, tool: str, tuning: Tuning, history_bytes: int) -> CallResult:
    """`came`, or the tool error that names the limit it is over. It is not tried again: it would be as large again."""
    if isinstance(came, Suspended):
        faults = [_oversize_wait(tool, action, tuning, history_bytes) for action in came.opened]
    elif came.outcome == "success":
        faults = [oversize(f"the output of {tool}", came.content, tuning, history_bytes)]
    else:
        # What went wrong is said however full the history is, and how the wait ended.
        faults = [oversize(f"the error of {tool}", came.content, tuning, 0)]
    fault = next(filter(None, faults), None)
    return refusal(fault) if fault else came


def _oversize_wait(tool: str, action: NewAction, tuning: Tuning, history_bytes: int) -> TooLargeError | None:
    if action.child is not None:
        return oversize(f"the task of {tool}", action.input, tuning, history_bytes)
    return oversize(f"the suspend of {tool}", action.model_dump(mode="json"), tuning, history_bytes)


def oversize(what: str, content: Any, tuning: Tuning, history_bytes: int) -> TooLargeError | None:
    """Why `content` may not be added to a history of so many bytes, or None."""
    size = len(dumps(content).encode())
    if size > tuning.max_output_bytes:
        return TooLargeError(what, size, tuning.max_output_bytes)
    if history_bytes + size > tuning.max_history_bytes:
        return TooLargeError(f"the history of this thread with {what}", history_bytes + size, tuning.max_history_bytes)
    return None


@dataclass(frozen=True)
class _Raised:
    error: BaseException


def _attempt(
    tool: Tool[..., Any],
    ctx: Context,
    record: PassRecord,
    loop: ModelLoop,
    lease: Lease,
    timeout_seconds: float | None,
) -> CallResult | _Raised:
    try:
        body = partial(tool.function, **tool.arguments(ctx, ctx.input))
        try:
            result = _call(body, tool.name, ctx, loop, lease, timeout_seconds)
        finally:
            record.end()  # before anybody looks whether it suspended: what comes later is told so
    except Suspension:
        # A context that was kept from another call opens nothing here: the call would run for ever.
        return _suspended(tool, record) if record.suspended else _Raised(ForeignContextError(tool.name))
    except DetachedSuspendError:
        return _Raised(ForeignContextError(tool.name))  # its own has not ended before it
    except BaseExceptionGroup as group:
        leaves = [leaf for leaf in _leaves(group) if not isinstance(leaf, asyncio.CancelledError | Suspension)]
        if record.suspended and not leaves:
            return _suspended(tool, record)
        # What is not the fault comes first: a task that failed otherwise has gone on beside it.
        return _Raised(next((leaf for leaf in leaves if leaf is not record.fault), leaves[0] if leaves else group))
    except BaseException as error:
        ours = isinstance(error, StaleClaimError | StoreUnavailableError | ToolTimeoutError)
        return _Raised(SuspendSwallowedError(tool.name) if _replaces_suspension(error) and not ours else error)
    if record.suspended:
        return _Raised(SuspendSwallowedError(tool.name))
    try:
        content = tool.output.write(result, f"tool {tool.name!r}", ToolOutputError)
    except BaseException as error:  # of a serializer too, or of what the body returned
        return _Raised(error)
    return Output("success", content)


def _suspended(tool: Tool[..., Any], record: PassRecord) -> Suspended | _Raised:
    """The waits of a pass. A tool without wait points may still ask ad hoc, so that this is no matter of definition."""
    if tool.options.cacheable:
        where = f"tool {tool.name!r}"
        return _Raised(DefinitionError(where, "it is cacheable and waits", "a cached result would skip the wait"))
    return Suspended(tuple(record.opened))


def _call(
    work: Callable[[], Any], name: str, ctx: Context, loop: ModelLoop, lease: Lease, timeout_seconds: float | None
) -> Any:
    result = _result(work, name, ctx, loop, lease, timeout_seconds)
    # A plain wrapper around an async function, or around a generator, is neither. What it returns has run nothing yet:
    # it is run to its end inside the pass, where it may ask and its time is limited.
    if inspect.isawaitable(result):
        return _result(partial(awaited, result), name, ctx, loop, lease, timeout_seconds)
    if inspect.isgenerator(result):
        return _result(partial(list, result), name, ctx, loop, lease, timeout_seconds)
    if inspect.isasyncgen(result):
        return _result(partial(_collected, result), name, ctx, loop, lease, timeout_seconds)
    return result


def _result(
    work: Callable[[], Any], name: str, ctx: Context, loop: ModelLoop, lease: Lease, timeout_seconds: float | None
) -> Any:
    future: Future[Any]
    if inspect.iscoroutinefunction(work):
        future = loop.submit(joined(work()))
    elif timeout_seconds is None:
        return work()
    else:
        future = _in_thread(work)
    with lease.interrupting(future.cancel):
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise ToolTimeoutError(name, timeout_seconds or 0) from None
        except CancelledError:
            if lease.lost:
                raise StaleClaimError(ctx.run_id) from None
            raise ToolError(f"tool {name!r} was cancelled by its own doing") from None


async def _collected(results: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in results]


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """A sync body under a time limit. A thread cannot be killed: past the limit its result is dropped."""
    future: Future[Any] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="adjourn-tool", daemon=True).start()
    return future


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _awaits_answer(error: BaseException, record: PassRecord) -> bool:
    """True if Python says that an object of the type of an answer cannot be awaited."""
    if type(error) is not TypeError:
        return False
    said = str(error)
    return any(
        said in (f"object {name} can't be used in 'await' expression", f"'{name}' object can't be awaited")
        for name in record.answer_types
    )


def _replaces_suspension(error: BaseException) -> bool:
    """Whether it was raised while a suspend was on its way out. Beside one, in another task, it is just an error."""
    seen: set[int] = set()
    context = error.__context__
    while context is not None and id(context) not in seen:
        if isinstance(context, Suspension):
            return True
        seen.add(id(context))
        context = context.__context__
    return False
