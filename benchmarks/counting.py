"""What a whole cycle costs the database: statements, commits, and waits for the disk.

A lane's cycles are run one at a time, so that no two commits share a wait, and its workers are ended
before the totals are read, because a session reports what it did when it ends.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.lanes import Lane
from benchmarks.servers import Servers

REPORT_SECONDS = 10.5
"""A session that is idle reports what it did after ten seconds at the latest."""
SENT_ONLY_TO_STEER = ("begin", "commit", "rollback", "set ", "show ", "deallocate", "start transaction")


@dataclass(frozen=True)
class Cost:
    """Per whole cycle. `beside` are statements that ran less than once in two cycles: sweeps and the like."""

    peer: str
    cycles: int
    statements: float
    commits: float
    synchronous_commits: float
    wal_bytes: float
    beside: float
    by_statement: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def count(servers: Servers, lane: Lane, cycles: int) -> Cost:
    """Run `cycles` whole cycles of a lane, and end it. No lane may have been driven for `REPORT_SECONDS`."""
    servers.checkpoint()
    before = servers.totals(lane.database)
    with servers.logged(lane.database) as seen:
        lane.drive_cycles(cycles)
    lane.stop()
    spent = servers.totals(lane.database) - before
    told = {text: times for text, times in seen.items() if not text.lower().startswith(SENT_ONLY_TO_STEER)}
    in_cycle = {text: times for text, times in told.items() if 2 * times >= cycles}
    return Cost(
        peer=lane.peer,
        cycles=cycles,
        statements=sum(in_cycle.values()) / cycles,
        commits=spent.commits / cycles,
        synchronous_commits=spent.wal_syncs / cycles,
        wal_bytes=spent.wal_bytes / cycles,
        beside=(sum(told.values()) - sum(in_cycle.values())) / cycles,
        by_statement={text: times / cycles for text, times in sorted(in_cycle.items(), key=lambda pair: -pair[1])},
    )
