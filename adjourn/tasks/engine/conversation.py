"""The conversation of an agent: rebuilt from items for its model, and recorded as items of what its model responds.

Pure: the same items give the same conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, cast

from adjourn.schemas.contracts.tool_names import LEGAL_NAME, legal_name
from adjourn.schemas.records.actions import Approved
from adjourn.schemas.records.ids import new_call_id
from adjourn.schemas.records.items import ROOT, ItemBody, OutputItem, Recorded, ResponseItem
from adjourn.schemas.records.messages import (
    ModelResponse,
    ModelTurn,
    RequestedCall,
    ResultTurn,
    ToolCall,
    Turn,
    UserTurn,
)
from adjourn.schemas.strict_json import clean, clean_text, dumps
from adjourn.tasks.models.finish_reasons import cut_off

_RUN_ID: Final = attrgetter("run_id")
CLOSED_WITH_RUN: Final = "closed because the run ended before this call had a result"


def conversation(items: Iterable[Recorded], call_id: str = ROOT, told: str | None = None) -> tuple[Turn, ...]:
    """What the agent of a call has been told and has said, with exactly one result per call, in their order.

    `items` are those of whole runs, oldest first: of the thread for the agent that a run executes, of
    the run alone for one that is a part of it. `told` is what it was told first, where that is not
    the message of the run. Calls without a result get one in a run that has ended. In a run that
    has not, a response with open calls is left out: no reader may take a suspended turn for a
    finished one.
    """
    runs = [list(run) for _, run in groupby(items, key=_RUN_ID)]
    turns: list[Turn] = []
    for number, run in enumerate(runs, 1):
        turns.extend(_of_run(run, call_id, told if number == len(runs) else None))
    return tuple(turns)


def _of_run(items: list[Recorded], call_id: str, told: str | None) -> Iterator[Turn]:
    run_id = items[0].run_id
    bodies = [item.body for item in items]
    if told is None:
        told = first_prompt(bodies, call_id)
    outputs = {body.call_id: body for body in bodies if body.kind == "output"}
    ended = bodies[-1].kind == "end"  # an end with a retry after it is none
    suspended = None if ended else _suspended(bodies, call_id, outputs)
    for item in items:
        body = item.body
        id = f"{run_id}:{item.seq}"
        if body.kind == "response":
            if body.call_id == call_id and body is not suspended:
                calls = tuple(_as_run(call, outputs.get(call.id)) for call in body.calls)
                yield ModelTurn(id=id, text=body.text, calls=calls, raw=body.raw, provider=body.provider)
                for call in body.calls:
                    yield _result(run_id, call, outputs.get(call.id))
        elif body.kind == "message":
            yield UserTurn(id=id, text=body.text if told is None else told)
            told = None  # a later message of the run is what a user said in the middle of it
        elif body.kind == "correction" and body.call_id == call_id:
            yield UserTurn(id=id, text=body.text)
        elif body.kind == "output" and body.call_id == call_id:
            # The run executed no agent: this is what it came to.
            yield ModelTurn(id=id, text=body.content if isinstance(body.content, str) else dumps(body.content))


def first_prompt(bodies: Iterable[ItemBody], call_id: str) -> str | None:
    """What the agent of a call was told first in a run, as it was recorded; None if it was told the message itself."""
    return next((body.prompt for body in bodies if body.kind == "response" and body.call_id == call_id), None)


def _suspended(bodies: list[ItemBody], call_id: str, outputs: Mapping[str, OutputItem]) -> ResponseItem | None:
    """The response whose calls are open. Only the last can be: its agent is not asked again before they have ended."""
    for body in reversed(bodies):
        if body.kind == "response" and body.call_id == call_id:
            return None if all(call.id in outputs for call in body.calls) else body
    return None


def _result(run_id: str, call: ToolCall, output: OutputItem | None) -> ResultTurn:
    if output is None:
        return ResultTurn(
            id=f"{run_id}:{call.id}", call_id=call.id, tool=call.tool, outcome="cancelled", content=CLOSED_WITH_RUN
        )
    return ResultTurn(
        id=f"{run_id}:{call.id}",
        call_id=call.id,
        tool=call.tool,
        outcome=output.outcome,
        content=output.content,
        note=" ".join(filter(None, map(_note, output.approvals))) or None,
    )


def _as_run(call: ToolCall, output: OutputItem | None) -> ToolCall:
    """The call with the arguments that it ran with: a person who approved it may have changed them."""
    changed = [each.args for each in output.approvals if each.args is not None] if output else []
    return call.model_copy(update={"args": changed[-1]}) if changed else call


def _note(approved: Approved) -> str | None:
    """What the model reads of an approval: nothing of a yes without a word."""
    who = "a default at the deadline" if approved.by_deadline else approved.by or "a person"
    said = f' and said: "{approved.comment}"' if approved.comment else ""
    if approved.args is not None:
        return f"The arguments of this call were changed to those that it has here, by {who}{said}."
    return f"This call was approved by {who}{said}." if said else None


# --- what a model responds -------------------------------------------------------------------------

_NAME_CHARACTERS: Final = 200
"""Characters of a name that is not legal that the run keeps."""


_SHOWN: Final = 200
"""Characters of the faulty text that are told back to the model."""


def recorded(response: ModelResponse, call_id: str = ROOT) -> ResponseItem:
    """A response to the agent of `call_id` as it is recorded: its calls under ids of ours, whatever was sent."""
    return ResponseItem(
        call_id=call_id,
        text=clean_text(response.text),
        calls=tuple(_own(call, cut_off(response.finish_reason)) for call in response.calls),
        usage=response.usage,
        model=response.model,
        finish_reason=response.finish_reason,
        raw=None if response.raw is None else clean_text(response.raw),
        provider=response.provider,
    )


def _own(call: RequestedCall, fault: str | None) -> ToolCall:
    """A call under an id of ours. With a `fault` of its response it does not run, however complete it looks."""
    args, unreadable = parse_arguments(call.args)
    fault = fault or unreadable
    return ToolCall(
        id=new_call_id(),
        tool=legal_name(call.name),
        misnamed=None if LEGAL_NAME.fullmatch(call.name) else clean_text(call.name[:_NAME_CHARACTERS]),
        args=cast(dict[str, Any], clean(args)),
        fault=None if fault is None else clean_text(fault),
        provider_id=None if call.id is None else clean_text(call.id),
    )


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments, and a fault that the model can read if the text is no JSON object.

    Empty text means no arguments: several providers send it so. A broken text must not go back
    to the provider as it came, because some parse it and refuse the whole history.
    """
    if not text.strip():
        return {}, None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        return {}, f"the arguments are not valid JSON ({reason}): {text[:_SHOWN]}"
    if not isinstance(value, dict):
        return {}, f"the arguments must be a JSON object, not {type(value).__name__}"
    return value, None
