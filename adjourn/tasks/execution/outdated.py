"""What an outdated build leaves to a newer one that is live, rather than decide it by its own code."""

from __future__ import annotations

from adjourn.schemas.errors import ReplayMismatchError, ToolChangedError
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.results import CallResult, Suspended
from adjourn.tasks.host.builds import Build


def is_outdated(build: Build | None) -> bool:
    """True if a newer build is live."""
    return build is not None and build.is_outdated()


def ensure_own_tool(call: OpenCall, build: Build | None) -> None:
    """Leave a recorded call of a tool that this build lacks to a newer one, whose model was offered it.

    Raises `ToolChangedError`.
    """
    requested = call.call
    lacks = call.block is None and requested.fault is None and requested.misnamed is None
    if lacks and is_outdated(build):
        raise ToolChangedError(requested.tool, ["there is no such tool in this build"])


def ensure_own_question(call: OpenCall, came: CallResult, build: Build | None) -> None:
    """Leave a run to a newer build, rather than ask a person anew because the code of this one is outdated.

    Raises `ReplayMismatchError`.
    """
    opened = came.opened if isinstance(came, Suspended) else ()
    asked_anew = next((action for action in opened if action.note is not None), None)
    if asked_anew is not None and is_outdated(build):
        name = f"{call.place.path[-1]} ({call.call.id})"
        raise ReplayMismatchError(name, f"wait point {asked_anew.origin.wait_point!r}", asked_anew.note or "")
