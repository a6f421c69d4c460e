"""What a deploy changed about a call that waits, as far as it matters for what is recorded of the call.

A part of the contract whose digest is the recorded one has not changed. Of another part the recorded schema decides:
it is no change if the code of today reads every value that fits it, with the same meaning. Parts of which the
call has no recorded value do not matter: its output, and wait points that it has not come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adjourn.schemas.contracts.compatible import incompatibilities
from adjourn.schemas.contracts.fingerprints import same_part
from adjourn.schemas.contracts.values import Contract, JsonValue
from adjourn.schemas.errors import RoundTripError
from adjourn.schemas.records.actions import ActionState
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.outcome import asks_outcome, outcome_wait_point
from adjourn.tasks.blocks.policies import is_approval
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.context.earlier_waits import has_value
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.origins import fingerprint_of

_MADE = "a function makes a default that differs each time"


def changes_since_wait(open_call: OpenCall, block: Block) -> list[str]:
    """Return the changes that may break what is recorded of a call that has an action, in words."""
    last = open_call.actions[-1]
    recorded, now = last.fingerprint, fingerprint_of(block)
    if recorded == now:
        return []
    if isinstance(block, Tool) and recorded.get("version") in block.options.resumes_from:
        return []
    found = list(_changed("input", last, block.input, last.input_schema, open_call.input))
    if asks_outcome(last) and not same_part(recorded.get("output"), block.output.json_schema):
        outcome = outcome_wait_point(block.output.type).resume
        found += _validated("output", outcome, last.action.resume_schema, None)
    found += _changed_wait_points(open_call, block)
    if recorded.get("version") != now.get("version"):
        found.append("version changed")
    return list(dict.fromkeys(found))


def _changed_wait_points(open_call: OpenCall, block: Block) -> Iterator[str]:
    """The changes of the wait points at which the call has an action."""
    recorded = open_call.actions[-1].fingerprint
    declared = block.wait_points if isinstance(block, Tool) else {}
    for state in open_call.actions:
        action, name = state.action, state.action.origin.wait_point
        if is_approval(state) or asks_outcome(state) or state.child is not None:
            continue
        asks, takes = f"wait point {name} suspend", f"wait point {name} resume"
        point = declared.get(name)
        if point is None:
            # An undeclared wait has no part in the fingerprint: its body compares it when it asks again.
            yield from (f"{part} was removed" for part in (takes, asks) if part in recorded)
            continue
        data = state.resolution.resume if state.resolution is not None and has_value(state) else None
        yield from _changed(takes, open_call.actions[-1], point.resume, action.resume_schema, data)
        yield from _changed(asks, open_call.actions[-1], point.suspend, action.suspend_schema, None)


def _changed(
    part: str, last: ActionState, contract: Contract[Any], pinned: dict[str, Any] | None, data: JsonValue
) -> Iterator[str]:
    if not same_part(last.fingerprint.get(part), contract.json_schema):
        yield from _validated(part, contract, pinned, data)


def _validated(part: str, contract: Contract[Any], pinned: dict[str, Any] | None, data: JsonValue) -> Iterator[str]:
    """The change of a part whose digest differs, if it matters. Without a recorded schema nothing can be proven."""
    if pinned is None:
        yield f"{part} changed"
    elif problems := incompatibilities(pinned, contract.json_schema):
        yield f"{part} changed ({'; '.join(problems)})"
    elif not _is_stable(contract, data):
        yield f"{part} changed ({_MADE})"


def _is_stable(contract: Contract[Any], data: JsonValue) -> bool:
    try:
        return data is None or contract.is_stable(data)
    except RoundTripError:  # `ensure_readable` tells what cannot be read
        return True
