"""The other side of `own_process`: what happens inside the process that a tool has for itself."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from adjourn.schemas.contracts.fingerprints import changes
from adjourn.schemas.errors import AdjournError, DefinitionError, ToolError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.items import RunFailure
from adjourn.schemas.records.record import Record
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.app import App
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.sub_agents import SubAgent
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.engine.activities import BlockLocation, OpenCall
from adjourn.tasks.engine.calls import Ready, context_for
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.results import CallResult, Suspended, refusal
from adjourn.tasks.execution.body import Raised, Stopped, attempt_here, fitting, oversize
from adjourn.tasks.execution.process_channel import (
    Ended,
    Failed,
    FromWorker,
    Given,
    Order,
    Remember,
    Waits,
    Word,
    from_worker,
    line_of,
    rebuilt,
)
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.loop import ModelLoop


class Link:
    """This end of the channel. A thread of its own reads, so that the end of the worker is noticed at any time."""

    def __init__(self, channel: socket.socket, on_lost: Callable[[], object]) -> None:
        self._channel = channel
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._is_leaving = False
        threading.Thread(target=self._read, name="adjourn-channel", daemon=True).start()

    def receive(self) -> FromWorker:
        """Wait for what the worker sends next."""
        return from_worker(self._lines.get())

    def send(self, message: Record) -> None:
        """Send a message. Raises `ToolError` in a process that the body has forked."""
        self._ensure_own()
        self._channel.sendall(line_of(message))

    def ask(self, message: Record) -> FromWorker:
        """Send a message and return the reply to it. Threads of a body take turns."""
        self._ensure_own()
        with self._lock:
            self._channel.sendall(line_of(message))
            return self.receive()

    def leave(self, message: Record) -> None:
        """Send the last message: from now on the end of the worker is nothing to this process."""
        with self._lock:  # a thread that the body has left may be waiting for a reply
            self._is_leaving = True
            self.send(message)

    def _ensure_own(self) -> None:
        if os.getpid() != self._pid:
            raise ToolError("a process that a tool has forked cannot use its context; use it in the body")

    def _read(self) -> None:
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._lines.put(line)
        except OSError:
            pass
        if not self._is_leaving:
            self._on_lost()


class RemoteRecorder:
    """The recorder of a pass, which is in the worker."""

    def __init__(self, link: Link, tuning: Tuning) -> None:
        self._link = link
        self._tuning = tuning

    def memo(self, call_id: str, key: str, value: Any) -> None:
        """Make a memo durable. Raises `TooLargeError`. If the claim is lost, this does not return: it is killed."""
        # What is too large is refused here too: the worker shares its memory with other runs.
        fault = oversize(f"the result of run_once({key!r})", value, self._tuning, 0)
        if fault is not None:
            raise fault
        reply = self._link.ask(Remember(key=key, value=value))
        if isinstance(reply, Failed):
            raise rebuilt(reply.error)

    def new_action_id(self) -> str:
        """A fresh signed id."""
        return self._given("want_id")

    def now(self) -> datetime:
        """The time by the clock of the database."""
        return datetime.fromisoformat(self._given("want_time"))

    def _given(self, wanted: Literal["want_id", "want_time"]) -> str:
        reply = self._link.ask(Word(kind=wanted))
        assert isinstance(reply, Given)
        return reply.value


def tool_of(app: App, order: Order) -> Tool[..., Any]:
    """Return the tool that an order is about, found by its path in the app.

    Raises `DefinitionError` if the code of this process does not have it, or has another contract for it than the
    worker: what the body returned or asked would not be what the worker knows how to read.

    A path, not a name: the tools of two agents may have the same name, and a tool may be made by a function that
    nobody could import.
    """
    root_path = order.run.path or (order.run.agent,)
    block: Block | None = app.blocks.get(order.run.agent)
    for name in order.path[len(root_path) :]:
        block = _parts_of(block, order).get(name) if block is not None else None
    where = "/".join(order.path)
    if not isinstance(block, Tool):
        raise DefinitionError(
            where, "the app, imported anew, has no such tool", "define it wherever the app is imported"
        )
    if differences := changes(order.fingerprint, block.fingerprint):
        problem = f"the code on disk is not the code of the worker ({', '.join(differences)})"
        raise DefinitionError(where, problem, "restart the worker")
    return block


def run_order(tool: Tool[..., Any], order: Order, app: App, link: Link, tuning: Tuning) -> Record:
    """Run the body once and return the last message about it, which is never larger than `tuning` allows."""
    place = BlockLocation(order.call.id, order.path, order.message_id)
    call = OpenCall(
        call=order.call,
        place=place,
        block=tool,
        input=order.input,
        agent=None,
        siblings=(),
        actions=order.actions,
        memos=dict(order.memos),
        died=False,
    )
    view = View(order.run, app.blocks, (), (), ())
    recorder = RemoteRecorder(link, tuning)
    try:
        came = attempt_here(
            tool,
            lambda record: context_for(Ready(tool, call), view, recorder, record),
            loop=ModelLoop(),
            lease=Lease(order.run.id, ""),  # the worker holds it, and kills when it is lost
            timeout_seconds=None,  # likewise
        )
    except AdjournError as error:
        return Failed(kind="faulted", error=RunFailure.of(error))
    if isinstance(came, Stopped):
        return Failed(kind="faulted", error=RunFailure.of(came.error), went_on=came.went_on)
    if isinstance(came, Raised):
        return _ended("threw", came.output, order, tuning, came.may_retry)
    return _ended("closed", came, order, tuning)


def _ended(
    kind: Literal["closed", "threw"], came: CallResult, order: Order, tuning: Tuning, may_retry: bool = False
) -> Record:
    """The last message about a body. The worker looks at its size again, together with the size of the history."""
    fitted = fitting(came, order.path[-1], tuning, 0)
    if isinstance(fitted, Suspended):
        return Waits(opened=fitted.opened)
    ended = Ended(kind=kind, outcome=fitted.outcome, content=fitted.content, may_retry=may_retry)
    try:
        line_of(ended)
    except (ValueError, TypeError, RecursionError) as error:
        said = refusal(error)
        return Ended(kind="threw", outcome=said.outcome, content=said.content)
    return ended


def _parts_of(block: Block, order: Order) -> Any:
    inner = block.agent if isinstance(block, SubAgent) else block
    return inner.tools_of(order.run) if isinstance(inner, Agent) else inner.parts
