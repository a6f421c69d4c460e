"""Tools whose waits have any type: each keeps what it got back, as the classes that it got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adjourn import Context, Resume, Tool, WaitPoint, tool

BOTH = ("entry", "inline")
"""The two styles."""


@dataclass(frozen=True)
class Kept:
    """What one re-entry found."""

    answer: Any
    asked: Any
    """The suspend data, from the history."""
    in_history: Any
    """The answer, from the history."""


class Keeper:
    """A tool that asks `data` at a wait point of these types and keeps what each re-entry finds.

    Its output is the answer.
    """

    def __init__(self, style: str, name: str, *, suspend: Any, data: Any, resume: Any, **options: Any) -> None:
        self.kept: list[Kept] = []
        self.passes = 0
        point: WaitPoint[Any, Any] = WaitPoint("q", suspend=suspend, resume=resume, **options)

        def inline(ctx: Context) -> Any:
            self.passes += 1
            return self._keep(ctx, ctx.ask(point, data))

        def entry(ctx: Context) -> Any:
            self.passes += 1
            if isinstance(ctx.entry, Resume):
                return self._keep(ctx, ctx.entry.resume)
            ctx.suspend(point, data)

        body = inline if style == "inline" else entry
        self.tool: Tool[..., Any] = tool(name=name, description="Keep the answer.", wait_points=[point], output=resume)(
            body
        )

    def _keep(self, ctx: Context, answer: Any) -> Any:
        record = ctx.suspend_history[-1]
        self.kept.append(Kept(answer, record.input, record.resume))
        return answer


def same(one: Any, other: Any) -> bool:
    """Equal and of the same classes all the way down: `1`, `True` and a member of an `IntEnum` are three things."""
    return bool(one == other) and repr(one) == repr(other)
