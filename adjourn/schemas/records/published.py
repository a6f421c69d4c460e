"""The messages that other programs read and write, and the JSON Schema of each.

Owns the list. What comes in is described as we read it, what goes out as we write it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, Receipt, ShortAnswer
from adjourn.schemas.records.events import Event
from adjourn.schemas.records.items import Item
from adjourn.schemas.records.record import Record
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.schemas.records.threads import ThreadState

INCOMING: Final = MappingProxyType[str, type[Record]]({"answer": Answer, "short_answer": ShortAnswer})
OUTGOING: Final = MappingProxyType[str, Any](
    {
        "event": Event,
        "wakeup": WakeUp,
        "item": Item,
        "pending_action": PendingAction,
        "receipt": Receipt,
        "run": Run,
        "thread_state": ThreadState,
    }
)
NAMES: Final = tuple(sorted([*INCOMING, *OUTGOING]))


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a message. Raises `KeyError` for a name that is not in `NAMES`."""
    mode: Literal["validation", "serialization"] = "validation" if name in INCOMING else "serialization"
    message: TypeAdapter[Any] = TypeAdapter(INCOMING[name] if name in INCOMING else OUTGOING[name])
    return {"$schema": GenerateJsonSchema.schema_dialect, **message.json_schema(mode=mode)}
