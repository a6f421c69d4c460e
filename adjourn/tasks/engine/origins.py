"""Where a wait comes from, and what it is pinned to. Records only."""

from __future__ import annotations

from typing import Any, cast

from adjourn.schemas.contracts.fingerprints import bare
from adjourn.schemas.contracts.values import fingerprint
from adjourn.schemas.records.actions import Origin
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.tools import Tool
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.decisions import View


def origin_of(open_call: OpenCall, view: View, wait_point: str) -> Origin:
    """Where a wait of this call comes from."""
    return Origin(
        tool=open_call.place.path[-1],
        wait_point=wait_point,
        tool_call_id=open_call.call.id,
        message_id=open_call.place.message_id,
        run_id=view.run.id,
        thread_id=view.run.thread_id,
        block_path=open_call.place.path,
    )


def fingerprint_of(block: Block) -> dict[str, str]:
    """What a wait is pinned to of the block that waits."""
    return block.fingerprint if isinstance(block, Tool) else fingerprint({"input": block.input.json_schema})


def input_schema_of(block: Block) -> dict[str, Any]:
    """The schema of the call's input that a wait keeps: a later build compares its own with it."""
    return cast(dict[str, Any], bare(block.input.json_schema))
