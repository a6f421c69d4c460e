"""G, of the same kind: what is nested as deep as may be stored can be read again, wherever it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Context, WaitPoint, tool
from adjourn.schemas.strict_json import MAX_DEPTH, clean
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.world import scripted

anything = WaitPoint("anything", suspend=Any, resume=bool)


def nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = [value]
    return value


@tool(wait_points=[anything])
def keep(ctx: Context, where: str, levels: int, given: Any = None) -> Any:
    """Put something deep where it is kept, and go on over a wait."""
    ctx.run_once("memo", lambda: nested(levels if where == "memo" else 1))
    ctx.ask(anything, nested(levels if where == "suspend" else 1))
    return nested(levels if where == "output" else 1)


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 4 * MAX_DEPTH])
@pytest.mark.parametrize("where", ["arguments", "memo", "suspend", "output"])
def test_g_what_is_nested_deep_is_read_again_or_refused(build: Build, where: str, levels: int) -> None:
    given = nested(levels) if where == "arguments" else None
    w = build(keep, model=scripted(call("keep", where=where, levels=levels, given=given), say("done")))
    run_id = w.start()
    for action in w.pending(run_id):
        w.answer(action, True)
    assert w.run(run_id).status == "completed"
    (output,) = w.outputs(run_id)
    if where == "output":
        assert (output.outcome, output.content) == ("success", clean(nested(levels)))
    else:
        assert output.outcome == ("success" if where == "arguments" or levels <= MAX_DEPTH else "error")
