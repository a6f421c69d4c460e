"""The request that started a run, and how two requests for one run id differ."""

from __future__ import annotations

from typing import NamedTuple

from adjourn.schemas.records.items import MessageItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.strict_json import digest


class StartRequest(NamedTuple):
    """What a client asked for when it started a run. `None` stands for a part that is not known or not given."""

    agent: str
    thread_id: str | None
    """The thread that the client named."""
    message: MessageItem | None
    limits: Limits | None
    knows_limits: bool = True
    """False if `limits` may have been replaced since the start."""

    def differing(self, other: StartRequest) -> tuple[str, ...]:
        """The parts in which both requests differ, by the names of the arguments of `Client.start`.

        Messages are compared as JSON values, as they are stored: neither the order of keys counts nor whether a
        whole number is written as `1` or `1.0`, and `true` is not `1`.
        """
        threads = self.thread_id, other.thread_id
        differs = {
            "agent": self.agent != other.agent,
            "message": not _same_message(self.message, other.message),
            "thread_id": None not in threads and threads[0] != threads[1],
            "limits": self.knows_limits and other.knows_limits and self.limits != other.limits,
        }
        return tuple(name for name, differ in differs.items() if differ)


def _same_message(one: MessageItem | None, other: MessageItem | None) -> bool:
    return one is None or other is None or digest(one.input) == digest(other.input)
