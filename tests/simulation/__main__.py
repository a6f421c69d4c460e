"""`python -m tests.simulation`: thousands of seeds, each a deployment in which other things go wrong.

    python -m tests.simulation --seeds 20000                  all cores, a few minutes
    python -m tests.simulation --seed 128 -v                  one seed again, exactly, with all that happened
    python -m tests.simulation --seeds 400 --mutation no_sweep   with a rule taken away: has to find something

Ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.simulation.batch import Batch, replay, simulate
from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import World

CHUNK = 50
"""Seeds that a process takes at a time."""
TRACE_LINES = 60
FINDINGS_SHOWN = 5
PROGRESS_SECONDS = 5.0
COUNTED = ("runs completed", "answers accepted", "kills", "stale writes")
"""What goes into the one line that a summary is; the rest is in its table."""


def main() -> int:
    options = _options()
    if options.seed is not None:
        world = replay(options.seed, options.mutation)
        _show(options.seed, world, lines=None if options.verbose else TRACE_LINES)
        return bool(world.witness.found)
    watch = Stopwatch()
    batch = Batch()
    shown = time.monotonic()
    for done in _batches(options.first, options.seeds, options.processes, options.mutation):
        batch += done
        for seed, found in done.findings.items():
            print(f"seed {seed}: {found[0]}", file=sys.stderr, flush=True)
        if time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{batch.seeds} of {options.seeds} seeds, {len(batch.findings)} with findings", flush=True)
    _details(batch, options.mutation)
    counts = sorted(batch.counts.items())
    summary = watch.summary(
        command_line("tests.simulation", None),
        "Simulation",
        {"seeds": batch.seeds} | {what: batch.counts[what] for what in COUNTED},
        choice=options.mutation.replace("_", " ") if options.mutation else "",
        must_find=options.mutation is not None,
        findings=[f"seed {seed}: {problem}" for seed, found in sorted(batch.findings.items()) for problem in found],
        missing=[f"{options.seeds - batch.seeds} seeds"] if batch.seeds < options.seeds else [],
        tables=[
            Table(name="What happened", head=("what", "times"), rows=tuple((name, f"{n:,}") for name, n in counts))
        ],
    )
    return conclude(summary, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first one (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    add_json_option(parser)
    parser.add_argument("--mutation", choices=MUTATIONS, help="take a rule away")
    parser.add_argument("--seed", type=int, help="run this one alone, and show how it ended")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: show all that happened")
    return parser.parse_args()


def _batches(first: int, seeds: int, processes: int, mutation: str | None) -> Iterator[Batch]:
    last = first + seeds
    chunks = [range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(partial(simulate, mutation=mutation), chunks)


def _show(seed: int, world: World, *, lines: int | None) -> None:
    """What happened in a world, its end at least."""
    trace = world.trace or []
    print(*(trace if lines is None else trace[-lines:]), sep="\n")
    for row in world.db.runs.values():
        print(f"\n{row.id} on {row.thread_id}: {row.status} {row.error.type if row.error else ''}")
        print(*(f"  {item.seq:3} {item.at:%d %H:%M:%S.%f} {item.body!r}" for item in row.items), sep="\n")
    print(f"\n{world.profile}\n")
    print(*(f"seed {seed}: {problem}" for problem in world.witness.found or ["nothing was found"]), sep="\n")


def _details(batch: Batch, mutation: str | None) -> None:
    for seed in sorted(batch.findings)[:FINDINGS_SHOWN]:
        print(f"\n--- seed {seed}: the last of what happened")
        _show(seed, replay(seed, mutation), lines=TRACE_LINES)
    width = max(map(len, batch.counts), default=0)
    print(*(f"{name:{width}} {count:9,}" for name, count in sorted(batch.counts.items())), sep="\n")
    if batch.findings:
        print("again, with all that happened: python -m tests.simulation --seed", min(batch.findings), "-v")


if __name__ == "__main__":
    sys.exit(main())
