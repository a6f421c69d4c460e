"""The benchmark of whole cycles: start, suspend, park, answer, re-enter, finish.

Adjourn, the hand-written floor and LangGraph run side by side on the same servers, in slices that
alternate; what counts are the ratios within each repetition. Owns the order of things, the command
line and the report.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from adjourn.worker.embedded.servers import EmbeddedServers, default_data_dir
from benchmarks import counting, memory
from benchmarks.adjourn_app import SLOW_SECONDS
from benchmarks.adjourn_lane import AdjournLane
from benchmarks.counting import Cost
from benchmarks.figures import Spread, percentile, ratios, short, table
from benchmarks.hosted import FloorLane, LangGraphLane, UnavailableError
from benchmarks.lanes import PROCESSES, Lane
from benchmarks.memory import Memory
from benchmarks.servers import Servers

IN_FLIGHT: Final = 32
TARGETS: Final = {"floor": 0.7, "langgraph": 2.0}
"""How many times a peer's cycles per second Adjourn has to reach."""
COST_TARGETS: Final = {"statements": 8, "commits": 8, "synchronous_commits": 6}
MEMORY_TARGET_MB: Final = 150
MAX_CONNECTIONS: Final = 300
MILLISECONDS: Final = 1000


@dataclass(frozen=True)
class Effort:
    """How long everything takes."""

    warm_up_seconds: float
    repetitions: int
    slice_seconds: float
    reentries: int
    pause_seconds: float
    counted_cycles: int
    waves: int


FULL: Final = Effort(1.5, 7, 2.5, 25, 0.01, 100, 3)
QUICK: Final = Effort(0.5, 3, 0.8, 10, 0.005, 50, 2)


@dataclass
class Measured:
    """A lane and what was measured of it, one figure per repetition."""

    lane: Lane
    cycles: list[float] = field(default_factory=list)
    reentries: list[float] = field(default_factory=list)
    """Of single answers, in seconds."""

    def as_json(self) -> dict[str, Any]:
        return {
            "peer": self.lane.peer,
            "hosting": self.lane.hosting,
            "cycles_per_second": self.cycles,
            "cycles_per_second_spread": Spread.of(self.cycles).as_json(),
            "reentry_p50_ms": percentile(self.reentries, 0.5) * MILLISECONDS,
            "reentry_p99_ms": percentile(self.reentries, 0.99) * MILLISECONDS,
        }


@dataclass(frozen=True)
class Ratio:
    """Cycles per second of a lane of Adjourn over those of a peer."""

    lane: Lane
    peer: str
    spread: Spread


@dataclass
class Results:
    """Everything that a run of the benchmark found out."""

    machine: dict[str, Any]
    measured: list[Measured]
    left_out: list[str]
    """Peers that could not be run, and why."""
    costs: list[Cost] = field(default_factory=list)
    memory: Memory | None = None
    seconds: float = 0

    def best(self) -> dict[str, Measured]:
        """Each peer in the way of hosting it that gave the most cycles."""
        best: dict[str, Measured] = {}
        for one in self.measured:
            rival = best.get(one.lane.peer)
            if rival is None or Spread.of(one.cycles).median > Spread.of(rival.cycles).median:
                best[one.lane.peer] = one
        return best

    def ratios(self) -> list[Ratio]:
        """Adjourn's cycles per second, for each way in which answers come in, over each peer's at its best."""
        best = self.best()
        ours = [one for one in self.measured if one.lane.peer == "adjourn"]
        theirs = [best[peer] for peer in TARGETS if peer in best]
        return [Ratio(one.lane, other.lane.peer, ratios(one.cycles, other.cycles)) for one in ours for other in theirs]

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "in_flight": IN_FLIGHT,
            "worker_processes": PROCESSES,
            "lanes": [one.as_json() for one in self.measured],
            "left_out": self.left_out,
            "adjourn_over": [
                {"peer": one.peer, "hosting": one.lane.hosting, **one.spread.as_json()} for one in self.ratios()
            ],
            "cost_per_cycle": [cost.as_json() for cost in self.costs],
            "memory": self.memory and self.memory.as_json(),
        }


def run(servers: Servers, logs: Path, effort: Effort, peers: Sequence[str]) -> Results:
    """Measure `peers`, and always the memory of Adjourn if it is among them."""
    began = time.monotonic()
    results = Results(_machine(servers), [], [])
    with ExitStack() as stack:
        for lane in _lanes(servers, logs, peers, results.left_out):
            stack.callback(lane.stop)
            lane.start()
            results.measured.append(Measured(lane))
        for one in results.measured:
            _say(f"warming up {one.lane.name}")
            one.lane.drive_for(effort.warm_up_seconds, IN_FLIGHT)
        for repetition in range(effort.repetitions):
            _say(f"repetition {repetition + 1} of {effort.repetitions}")
            _repeat(servers, results.measured, effort)
        at_rest = time.monotonic()
        if "adjourn" in peers:
            _say("memory")
            results.memory = memory.measure(servers, logs, (8, 9), effort.waves)
        time.sleep(max(0, at_rest + counting.REPORT_SECONDS - time.monotonic()))
        for one in results.best().values():
            _say(f"counting the statements of {one.lane.name}")
            results.costs.append(counting.count(servers, one.lane, effort.counted_cycles))
    results.seconds = time.monotonic() - began
    return results


def _lanes(servers: Servers, logs: Path, peers: Sequence[str], left_out: list[str]) -> list[Lane]:
    lanes: list[Lane] = []
    if "floor" in peers:
        lanes += [FloorLane(servers, logs, "prefork", (1, 2)), FloorLane(servers, logs, "threads", (3, 4))]
    if "langgraph" in peers:
        try:
            lanes += [LangGraphLane(servers, logs, "prefork", (5, 6)), LangGraphLane(servers, logs, "threads", (7, 10))]
        except UnavailableError as error:
            left_out.append(str(error))
    if "adjourn" in peers:
        lanes += [
            AdjournLane(servers, logs, (11, 12), answers="client"),
            AdjournLane(servers, logs, (13, 14), answers="queue"),
        ]
    return lanes


def _repeat(servers: Servers, measured: list[Measured], effort: Effort) -> None:
    servers.checkpoint()
    for one in measured:
        one.cycles.append(one.lane.drive_for(effort.slice_seconds, IN_FLIGHT))
    for one in measured:
        one.reentries += one.lane.reentries(effort.reentries, IN_FLIGHT, effort.pause_seconds)


def _machine(servers: Servers) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{f"postgres_{name}": value for name, value in servers.durability().items()},
    }


# --- the report -------------------------------------------------------------------------------


def report(results: Results) -> str:
    """The results for reading."""
    machine = results.machine
    parts = [
        f"{machine['cores']} cores, Python {machine['python']}, PostgreSQL {machine['postgres_server_version']}"
        f" (fsync {machine['postgres_fsync']}, synchronous_commit {machine['postgres_synchronous_commit']}),"
        f" {PROCESSES} worker processes per peer, {results.seconds:.0f} s",
        _speed_table(results),
    ]
    if shares := results.ratios():
        parts.append(_ratio_table(shares))
    parts += results.left_out
    if results.costs:
        parts.append(_cost_table(results.costs))
    if results.memory:
        parts.append(_memory_line(results.memory))
    return "\n\n".join(parts)


def _speed_table(results: Results) -> str:
    rows = []
    for one in results.measured:
        p50, p99 = (f"{percentile(one.reentries, share) * MILLISECONDS:.1f}" for share in (0.5, 0.99))
        rows.append((one.lane.name, str(Spread.of(one.cycles)), p50, p99))
    return table(("peer", f"cycles/s at {IN_FLIGHT}", "answer to re-entry p50 ms", "p99 ms"), rows)


def _ratio_table(shares: Sequence[Ratio]) -> str:
    rows = []
    for one in shares:
        target = TARGETS[one.peer]
        verdict = _verdict(one.spread.median >= target)
        rows.append((f"{one.lane.name} / {one.peer}", str(one.spread), f">= {target:g}", verdict))
    return table(("cycles/s, within each repetition", "median", "target", ""), rows)


def _cost_table(costs: Sequence[Cost]) -> str:
    rows = [
        (
            cost.peer,
            f"{cost.statements:.2f}",
            f"{cost.commits:.2f}",
            f"{cost.synchronous_commits:.2f}",
            f"{cost.wal_bytes / MILLISECONDS:.1f}",
            f"{cost.beside:.2f}",
        )
        for cost in costs
    ]
    target = ("target of adjourn", *(f"<= {limit}" for limit in COST_TARGETS.values()), "", "")
    header = ("per whole cycle", "statements", "commits", "synchronous commits", "WAL kB", "statements beside")
    return table(header, [*rows, target])


def _memory_line(found: Memory) -> str:
    verdict = _verdict(found.peak_mb < MEMORY_TARGET_MB and found.samples > 0 and found.busy_sessions == 0)
    return (
        f"memory: one worker process with {found.calls_in_flight} model calls of {SLOW_SECONDS:g} s in flight:"
        f" {short(found.peak_mb)} MB at its peak ({short(found.idle_mb)} MB idle; target < {MEMORY_TARGET_MB}),"
        f" {found.open_sessions} database sessions open, {found.busy_sessions} held by the calls"
        f" ({found.samples} looks): {verdict}"
    )


def _verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


# --- the command ------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when everything ran, whether or not the targets were met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute, with more noise; else under five")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--peers", default="floor,langgraph,adjourn", help="comma-separated, of floor, langgraph and adjourn"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=default_data_dir().with_name("adjourn-benchmarks"), help="of the servers"
    )
    options = parser.parse_args(arguments)
    with EmbeddedServers(options.data_dir, max_connections=MAX_CONNECTIONS) as embedded:
        servers = Servers(embedded)
        try:
            results = run(
                servers, options.data_dir / "logs", QUICK if options.quick else FULL, options.peers.split(",")
            )
        finally:
            servers.close()
    print(json.dumps(results.as_json(), indent=2) if options.json else report(results))
    return 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
