"""The conversation of a thread, rebuilt from items. Pure: the same items give the same conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from adjourn.schemas.items import EndItem, Item, MessageItem, OutputItem, ResponseItem
from adjourn.schemas.messages import ModelTurn, ResultTurn, ToolCall, Turn, UserTurn

CLOSED_WITH_RUN: Final = "closed because the run ended before this call had a result"


def conversation(items: Iterable[Item]) -> tuple[Turn, ...]:
    """User messages, responses and exactly one result per call, in the order of the calls.

    `items` are those of whole runs, oldest first. Calls without a result get one in a run that
    has ended. In a run that has not, a response with open calls is left out: no reader may take
    a suspended turn for a finished one.
    """
    turns: list[Turn] = []
    for _, run in groupby(items, key=lambda item: item.run_id):
        turns.extend(_of_run(list(run)))
    return tuple(turns)


def _of_run(items: list[Item]) -> Iterator[Turn]:
    outputs = {item.body.call_id: item.body for item in items if isinstance(item.body, OutputItem)}
    ended = isinstance(items[-1].body, EndItem)
    for item in items:
        body = item.body
        if isinstance(body, MessageItem):
            yield UserTurn(text=body.text)
        elif isinstance(body, ResponseItem) and (ended or all(call.id in outputs for call in body.calls)):
            yield ModelTurn(text=body.text, calls=body.calls, raw=body.raw, provider=body.provider)
            for call in body.calls:
                yield _result(call, outputs.get(call.id))


def _result(call: ToolCall, output: OutputItem | None) -> ResultTurn:
    if output is None:
        return ResultTurn(call_id=call.id, tool=call.tool, outcome="cancelled", content=CLOSED_WITH_RUN)
    return ResultTurn(call_id=call.id, tool=call.tool, outcome=output.outcome, content=output.content)
