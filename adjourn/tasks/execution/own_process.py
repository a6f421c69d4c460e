"""The worker's side of a tool that runs in a process of its own: it gives the order, records, and kills.

The process runs one attempt of a body. It has no claim on the run. What has to outlive it goes over the channel
(`process_channel`), and the worker records it under the claim. What a death does, step by step:

- Before `begin`, of the process: this attempt has not run the body. An earlier one may have: with `retries` there is
  one process after another. `ToolProcessError` leaves the run to a newer build that is live, or else fails it; then a
  retry of the run continues. Of the worker: the lease runs out, and another worker makes the attempt.
- After `begin`, of the process: the tool has ended its own process, which is an error of the tool. A tool
  that marks its start is asked for its outcome, as after the death of a worker.
- After `begin`, of the worker: the channel closes, so the process kills itself and what it has started, and the
  lease runs out. That is the death of a worker inside a body.
- Around `Remember`: the worker commits the memo before it replies. After a death before the commit, the next attempt
  does the work again. After a death behind it, the next attempt has the result, whether the reply arrived or not.
- Around the result: a process that dies after it has sent its result has done its work, and the result counts.
  After a death of the worker before its commit, the body runs again, as after any death of a worker.
- After a kill the worker reads nothing more of the process, so nothing of it is recorded.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from adjourn.schemas.errors import (
    AdjournError,
    LimitExceededError,
    RunError,
    StaleClaimError,
    StoreUnavailableError,
    ToolProcessEndedError,
    ToolProcessError,
    ToolTimeoutError,
)
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.record import Record
from adjourn.tasks.engine.calls import Lost, Ready, context_for
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.results import CallResult, Output, Suspended, refusal
from adjourn.tasks.execution.body import Raised, Stopped, attempt_here
from adjourn.tasks.execution.process_channel import (
    Ended,
    Failed,
    Given,
    NotBegun,
    Order,
    Remember,
    Report,
    Waits,
    Word,
    from_process,
    line_of,
    rebuilt,
)
from adjourn.tasks.execution.writer import Writer
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.services import Services, ToolProcess, ToolProcesses

log = logging.getLogger(__name__)

_BEGIN_SECONDS: Final = 120.0
"""For the start of the interpreter and the import of the app. The tool's timeout begins after that."""
_LOOK_SECONDS: Final = 0.5
"""Between two looks whether the process is there: a process that it has started may hold its end of the channel."""
_LEAVE_SECONDS: Final = 5.0
"""For the end of a process that has sent its result."""
_CHUNK: Final = 65_536


@dataclass
class Attempts:
    """Attempts of one body, of which the last counts."""

    services: Services
    lease: Lease
    writer: Writer
    ready: Ready
    timeout_seconds: float | None
    recover: Callable[[Lost], CallResult | None]
    """Finds out what became of an attempt that died; None if the body may run again."""
    _has_begun: bool = False
    _run_ends_at: float | None = field(init=False)
    """When the run's limit on seconds is over, by the clock of this process."""

    def __post_init__(self) -> None:
        limits, run = self.writer.view.limits, self.writer.view.run
        self._run_ends_at = None if limits.seconds is None else time.monotonic() + limits.seconds - run.seconds

    def make(self) -> CallResult | Raised:
        """Make one: in a process of its own if the tool asks for one, else here.

        Raises `ReplayMismatchError`, `ToolChangedError` and `StoredValueError`, which fail the run, `StaleClaimError`
        and `StoreUnavailableError`, and of a process of its own `ToolProcessError` if the body could not begin
        and `LimitExceededError` if it was killed because the run's limit on seconds was over.
        """
        processes = self.services.tool_processes
        made = (
            self._make_here()
            if processes is None or not self.ready.tool.options.own_process
            else self._make_apart(processes)
        )
        if not isinstance(made, Stopped):
            return made
        if not made.went_on:
            self.take_back()
        raise made.error

    def _make_here(self) -> CallResult | Raised | Stopped:
        self.begin()
        return attempt_here(
            self.ready.tool,
            lambda record: context_for(self.ready, self.writer.view, self.writer, record),
            loop=self.services.loop,
            lease=self.lease,
            timeout_seconds=self.timeout_seconds,
        )

    def begin(self) -> None:
        """Write down that the body begins, if its tool wants that."""
        if self.ready.tool.marks_start and not self._has_begun:
            # A crash before this commit: the body did not run. A crash between it and what the
            # body came to: nobody knows whether it did its work, and it does not just run again.
            self.writer.start(self.ready.call.call.id)
        self._has_begun = True

    def run_seconds_left(self) -> float | None:
        """Return the seconds that the run's limit leaves. Raises `LimitExceededError` if none are left."""
        limits, run = self.writer.view.limits, self.writer.view.run
        if limits.seconds is None or self._run_ends_at is None:
            return None
        left = self._run_ends_at - time.monotonic()
        if left <= 0:
            raise LimitExceededError("seconds", limits.seconds, max(run.seconds, limits.seconds - left))
        return left

    def take_back(self) -> None:
        """Write down that the body has ended where it stops at a wait: what stands above that may run again."""
        if self.ready.tool.marks_start and self._has_begun:
            # A crash before this commit: the start stands, and an operator is asked, as after any death inside a body.
            # A crash after it: the lease runs out, and the body begins again, as it does after a retry.
            self.writer.start(self.ready.call.call.id, taken_back=True)
            self._has_begun = False

    def _make_apart(self, processes: ToolProcesses) -> CallResult | Raised | Stopped:
        tool = self.ready.tool
        try:
            process = processes.start()
        except OSError as error:
            raise ToolProcessError(tool.name, f"no process could be started ({error})") from error
        try:
            # The thread that notices the loss of the claim kills: the one that renews it, or, when the worker
            # stops, the one that gives all claims back.
            with self.services.leases.prompt(self.lease), self.lease.interrupting(process.kill):
                came = _Talk(process, self).run()
            how = process.end(_LEAVE_SECONDS)
        finally:
            process.kill()  # after its end this does nothing
            process.end(0)
        if came is not None:
            return came
        # The process ended by itself. For the tool that is the death of a worker.
        lost = self.recover(Lost(tool, self.ready.call)) if tool.marks_start else None
        return lost or Raised(refusal(ToolProcessEndedError(tool.name, how)), may_retry=True)


class _OverError(Exception):
    """A time limit of this attempt is over."""


class _Talk:
    """One conversation, up to the result of the attempt."""

    def __init__(self, process: ToolProcess, attempts: Attempts) -> None:
        self._process = process
        self._channel = process.channel
        self._attempts = attempts
        self._ready = attempts.ready
        self._lease = attempts.lease
        self._writer = attempts.writer
        self._timeout_seconds = attempts.timeout_seconds
        self._received = bytearray()

    def run(self) -> CallResult | Raised | Stopped | None:
        """Return what the attempt came to; None if the process ended by itself."""
        self._send(_order_of(self._ready, self._writer.view))
        self._await_process()
        self._attempts.begin()
        self._send(Word(kind="begin"))
        seconds = self._timeout_seconds
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while (report := self._receive(deadline)) is not None:
                came = self._follow(report)
                if came is not None:
                    return came
        except _OverError:
            self._process.kill()
            return Raised(refusal(ToolTimeoutError(self._ready.tool.name, seconds or 0)), may_retry=False)
        return None

    def _await_process(self) -> None:
        name = self._ready.tool.name
        try:
            report = self._receive(time.monotonic() + _BEGIN_SECONDS)
        except _OverError:
            raise ToolProcessError(name, f"it was not ready within {_BEGIN_SECONDS:g} s") from None
        if report is None:
            how = self._process.end(_LEAVE_SECONDS)
            raise ToolProcessError(name, f"it ended with {how} while it imported the app")
        if isinstance(report, NotBegun):
            raise ToolProcessError(name, report.problem)
        if report.kind != "can_begin":
            raise ToolProcessError(name, f"its first message was {report.kind!r}")

    def _follow(self, report: Report) -> CallResult | Raised | Stopped | None:
        """Do what the process asks for, or return what the attempt came to."""
        match report:
            case Remember():
                self._remember(report)
            case Word(kind="want_id"):
                self._send(Given(value=self._writer.new_action_id()))
            case Word(kind="want_time"):
                self._send(Given(value=self._writer.now().isoformat()))
            case Ended(kind="closed"):
                return Output(report.outcome, report.content)
            case Ended():
                return Raised(Output(report.outcome, report.content), report.may_retry)
            case Waits():
                return Suspended(report.opened)
            case Failed():
                return Stopped(rebuilt(report.error), report.went_on)
        return None

    def _remember(self, report: Remember) -> None:
        call = self._ready.call
        try:
            # Dead before this commit: the next attempt does the work again. Dead after it: it reads the result.
            self._writer.memo(call.call.id, report.key, report.value)
        except (RunError, StoreUnavailableError):
            raise  # no error of the body: the run cannot be written now, or not by this worker
        except AdjournError as error:
            self._send(Failed(kind="not_recorded", error=RunFailure.of(error)))
            return
        call.memos[report.key] = report.value
        self._send(Word(kind="recorded"))

    def _send(self, message: Record) -> None:
        try:
            self._channel.settimeout(_BEGIN_SECONDS)
            self._channel.sendall(line_of(message))
        except OSError:
            self._process.kill()  # it reads nothing, or is gone: the next look at it says so

    def _receive(self, deadline: float | None) -> Report | None:
        """Return what the process sends next; None if it has ended.

        Raises `_OverError`, `LimitExceededError` and `StaleClaimError`.
        """
        searched = 0
        while True:
            if self._lease.lost:
                raise StaleClaimError(self._lease.run_id)
            left = self._seconds_left(deadline)
            if (end := self._received.find(b"\n", searched)) >= 0:
                return self._read(end)
            searched = len(self._received)
            had_ended = self._process.has_ended  # before the look: what it sent last is still read
            self._channel.settimeout(left)
            try:
                chunk = self._channel.recv(_CHUNK)
            except TimeoutError:
                if not had_ended:
                    continue
                chunk = b""
            except OSError:
                chunk = b""
            self._received += chunk
            if not chunk:
                if self._lease.lost:
                    raise StaleClaimError(self._lease.run_id)
                return None

    def _seconds_left(self, deadline: float | None) -> float:
        """Return how long to wait for the process until the next look. Raises `_OverError`, `LimitExceededError`."""
        of_run = self._attempts.run_seconds_left()
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise _OverError
        return min(left, _LOOK_SECONDS, math.inf if of_run is None else of_run)

    def _read(self, end: int) -> Report | None:
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            return from_process(line)
        except ValueError:
            # Code of the user's has written to the channel: nothing that comes after it can be trusted.
            log.error("the process of a tool sent what cannot be read", extra={"tool": self._ready.tool.name})
            self._process.kill()
            return None


def _order_of(ready: Ready, view: View) -> Order:
    call = ready.call
    return Order(
        run=view.run,
        call=call.call,
        input=call.input,
        path=call.place.path,
        message_id=call.place.message_id,
        fingerprint=ready.tool.fingerprint,
        actions=call.actions,
        memos=dict(call.memos),
    )
