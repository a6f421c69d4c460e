"""The deciding core: from what is recorded of a run to what has to happen next. No I/O, no clock.

A run is always in one of these places, told from its items and actions alone:

    calls of the last response can run    -> RunCalls
    calls are open and all of them wait   -> Wait
    no call is open                       -> AskModel
    nothing more can happen               -> Finish

The driver (`adjourn.tasks.drive`) does what is decided, records it, and asks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from adjourn.schemas.actions import ActionState
from adjourn.schemas.errors import ActionExpiredError, AdjournError, LimitExceededError
from adjourn.schemas.ids import new_call_id
from adjourn.schemas.items import (
    FaultItem,
    Item,
    ItemBody,
    MemoItem,
    OutputItem,
    ResponseItem,
    RunFailure,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.limits import Limits
from adjourn.schemas.messages import ModelResponse, RequestedCall, ToolCall, Usage
from adjourn.schemas.runs import Run
from adjourn.schemas.state import Claim, End
from adjourn.schemas.strict_json import clean, clean_text, digest
from adjourn.schemas.tool_names import legal_name
from adjourn.tasks.arguments import parse_arguments


@dataclass(frozen=True)
class OpenCall:
    """A call of the last response that has no output yet."""

    call: ToolCall
    message_id: str
    actions: tuple[ActionState, ...]
    memos: dict[str, Any]
    """Results of `run_once`; grows as the body runs, so that a retry of the body sees them."""
    died: bool
    """Whether its last pass left a start behind and nothing after it."""

    @property
    def waits(self) -> bool:
        """Whether one of its waits is still pending: its body does not run before all have ended."""
        return any(state.resolution is None for state in self.actions)


@dataclass(frozen=True)
class RunCalls:
    """These calls can run, side by side."""

    calls: tuple[OpenCall, ...]


@dataclass(frozen=True)
class Wait:
    """Only pending actions remain."""


@dataclass(frozen=True)
class AskModel:
    """The model's turn."""


@dataclass(frozen=True)
class Finish:
    """The run ends."""

    end: End


Step = RunCalls | Wait | AskModel | Finish


@dataclass(frozen=True)
class View:
    """A run as far as it is recorded, and as the next write will make it (`with_`)."""

    run: Run
    limits: Limits
    """The run's own, or its agent's."""
    earlier: tuple[Item, ...]
    items: tuple[Item, ...]
    actions: tuple[ActionState, ...]

    @classmethod
    def of(cls, claim: Claim, limits: Limits) -> View:
        """A run as it was loaded; `limits` are its agent's."""
        return cls(claim.run, claim.run.limits or limits, claim.earlier, claim.items, claim.actions)

    def with_(
        self,
        items: Sequence[ItemBody],
        actions: Sequence[ActionState] = (),
        *,
        usage: Usage = Usage(),
        turns: int = 0,
        tool_calls: int = 0,
    ) -> View:
        """This view after a write. Sequence numbers and times are the database's; nothing here reads them."""
        start = self.items[-1].seq if self.items else 0
        added = tuple(
            Item(run_id=self.run.id, seq=start + n, at=self.run.updated_at, body=body)
            for n, body in enumerate(items, 1)
        )
        run = self.run.model_copy(
            update={
                "usage": self.run.usage + usage,
                "turns": self.run.turns + turns,
                "tool_calls": self.run.tool_calls + tool_calls,
            }
        )
        return replace(self, run=run, items=self.items + added, actions=self.actions + tuple(actions))

    @cached_property
    def last_response(self) -> tuple[str, ResponseItem] | None:
        """The newest response and its message id (`run_id:seq`)."""
        for item in reversed(self.items):
            if isinstance(item.body, ResponseItem):
                return f"{item.run_id}:{item.seq}", item.body
        return None

    @cached_property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """Calls of the newest response that have no output, in the order of the calls."""
        if self.last_response is None:
            return ()
        message_id, response = self.last_response
        closed = {item.body.call_id for item in self.items if isinstance(item.body, OutputItem)}
        memos: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        died: set[str] = set()
        places: dict[str, int] = {}
        for item in self.items:
            if isinstance(item.body, MemoItem):
                memos[item.body.call_id][item.body.key] = item.body.value
            elif isinstance(item.body, StartItem):
                died.add(item.body.call_id)
            elif isinstance(item.body, SuspensionItem):
                died.discard(item.body.call_id)
                places[item.body.action_id] = item.seq
        actions: defaultdict[str, list[ActionState]] = defaultdict(list)
        # In the order of their items, not of their times: the clock goes back when a server takes
        # over from one that was ahead of it.
        for state in sorted(self.actions, key=lambda state: places.get(state.action.id, 0)):
            actions[state.action.origin.tool_call_id].append(state)
        return tuple(
            OpenCall(call, message_id, tuple(actions[call.id]), memos[call.id], call.id in died)
            for call in response.calls
            if call.id not in closed
        )

    @property
    def faults(self) -> int:
        """How often in a row the model could not be asked."""
        tail = 0
        for item in reversed(self.items):
            if not isinstance(item.body, FaultItem):
                break
            tail += 1
        return tail

    def earlier_output(self, call: ToolCall) -> OutputItem | None:
        """A successful output of the same tool for equal arguments, earlier in this thread."""
        wanted: set[str] = set()
        args = digest(call.args)  # to Python, 1 and true are equal
        for item in self.earlier + self.items:
            body = item.body
            if isinstance(body, ResponseItem):
                wanted.update(c.id for c in body.calls if c.tool == call.tool and digest(c.args) == args)
            elif isinstance(body, OutputItem) and body.call_id in wanted and body.outcome == "success":
                return body
        return None


def decide(view: View) -> Step:
    """What has to happen next."""
    expired = next((s for s in view.actions if _fails_run(s)), None)
    if expired is not None:
        return Finish(failed(ActionExpiredError(expired.action.id, expired.action.name)))
    ready = tuple(call for call in view.open_calls if not call.waits)
    if ready:
        return RunCalls(ready)
    if view.open_calls:
        return Wait()
    if view.last_response is not None and not view.last_response[1].calls:
        return Finish(End(status="completed", output=view.last_response[1].text))
    over = _over_limit(view.run, view.limits)
    return Finish(failed(over)) if over else AskModel()


def failed(error: AdjournError) -> End:
    """The end of a run that `error` fails."""
    return End(status="failed", error=failure(error))


def failure(error: AdjournError) -> RunFailure:
    """An error as it is stored: its class, its message and its plain data."""
    plain = {k: v for k, v in vars(error).items() if isinstance(v, str | int | float | bool | None)}
    lists = {k: list(v) for k, v in vars(error).items() if isinstance(v, tuple) and all(isinstance(x, str) for x in v)}
    data = cast(dict[str, Any], clean({**plain, **lists}))
    return RunFailure(type=type(error).__name__, message=clean_text(str(error)), data=data)


def recorded(response: ModelResponse) -> ResponseItem:
    """A response as it is recorded: every call under an id of ours, legal whatever the provider sent."""
    return ResponseItem(
        text=clean_text(response.text),
        calls=tuple(_own(call) for call in response.calls),
        usage=response.usage,
        model=response.model,
        finish_reason=response.finish_reason,
        raw=None if response.raw is None else clean_text(response.raw),
        provider=response.provider,
    )


def _own(call: RequestedCall) -> ToolCall:
    args, fault = parse_arguments(call.args)
    return ToolCall(
        id=new_call_id(),
        tool=legal_name(call.name),
        args=cast(dict[str, Any], clean(args)),
        fault=None if fault is None else clean_text(fault),
        provider_id=None if call.id is None else clean_text(call.id),
    )


def _fails_run(state: ActionState) -> bool:
    ended = state.resolution
    return ended is not None and ended.status == "expired" and state.on_timeout == "fail_run"


def _over_limit(run: Run, limits: Limits) -> LimitExceededError | None:
    """The limit that another model call would break. Limits are judged before the call, not after."""
    if limits.turns is not None and run.turns >= limits.turns:
        return LimitExceededError("turns", limits.turns, run.turns + 1)
    if limits.tool_calls is not None and run.tool_calls > limits.tool_calls:
        return LimitExceededError("tool_calls", limits.tool_calls, run.tool_calls)
    if limits.tokens is not None and run.usage.total_tokens >= limits.tokens:
        return LimitExceededError("tokens", limits.tokens, run.usage.total_tokens)
    return None
