"""`python -m tests.blocks`: thousands of random trees, each run through undisturbed and disturbed, and compared.

    python -m tests.blocks --trees 2000                   all cores, some minutes
    python -m tests.blocks --tree 17                      one tree again, exactly
    python -m tests.blocks --trees 300 --mutation memos_forgotten   with a rule taken away: has to find something

Ends with 1 if the two runs of any tree differ.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.blocks.mutations import MUTATIONS
from tests.blocks.simulated import one_of_many

PROGRESS_SECONDS = 5.0
COUNTED = {"runs completed": "completed", "waits": "waits", "deaths": "deaths"}
"""What goes into the one line that a summary is; the rest is in its table."""


def main() -> int:
    options = _options()
    trees = range(options.first, options.first + options.trees)
    if options.tree is not None:
        trees = range(options.tree, options.tree + 1)
    watch, shown = Stopwatch(), time.monotonic()
    counts: Counter[str] = Counter()
    findings: list[str] = []
    for done, (tree, found, counted) in enumerate(_compared(trees, options.processes, options.mutation), 1):
        counts += counted
        findings += [f"tree {tree}: {each}" for each in found]
        if found:
            print(f"tree {tree}: {found[0]}", file=sys.stderr, flush=True)
        if time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{done} of {len(trees)} trees, {len(findings)} findings", flush=True)
    rows = tuple((name, f"{times:,}") for name, times in sorted(counts.items()))
    summary = watch.summary(
        command_line("tests.blocks", None),
        "Trees of blocks",
        {"trees": len(trees)} | {said: counts[what] for what, said in COUNTED.items()},
        choice=options.mutation.replace("_", " ") if options.mutation else "",
        must_find=options.mutation is not None,
        findings=findings,
        tables=[Table(name="What happened in the disturbed runs", head=("what", "times"), rows=rows)],
    )
    return conclude(summary, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.blocks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trees", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="TREE", help="the first one (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    add_json_option(parser)
    parser.add_argument("--mutation", choices=MUTATIONS, help="take a rule away")
    parser.add_argument("--tree", type=int, help="run this one alone")
    return parser.parse_args()


def _compared(trees: range, processes: int, mutation: str | None) -> Iterator[tuple[int, list[str], Counter[str]]]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(partial(one_of_many, mutation), trees, chunksize=10)


if __name__ == "__main__":
    sys.exit(main())
