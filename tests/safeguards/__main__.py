"""`python -m tests.safeguards [--only TEXT] [--sound] [--json FILE]`: takes out each safeguard, one at a time.

A safeguard that no test misses is a hole in the tests: the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from benchmarks.figures import table
from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.safeguards.catalog import SAFEGUARDS
from tests.safeguards.safeguard import Safeguard
from tests.safeguards.trial import Trial, attempt, checkout

LANES: Final = 2
HEAD: Final = ("safeguard", "module", "noticed by")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.safeguards", description=__doc__)
    parser.add_argument("--only", default="", help="only safeguards whose rule contains this text")
    parser.add_argument("--sound", action="store_true", help="first run the tests with the safeguard: slower")
    add_json_option(parser)
    options = parser.parse_args()
    chosen = [each for each in SAFEGUARDS if options.only in each.rule]
    watch = Stopwatch()
    tried = _tried(chosen, options.sound)
    rows = [(each.safeguard.rule, each.safeguard.file, each.noticed_by) for each in tried]
    print(table(HEAD, rows))
    unseen = [each.safeguard.rule for each in tried if not each.noticed]
    summary = watch.summary(
        command_line("tests.safeguards", None),
        "Safeguards of validation, authorisation and deploys taken out, one at a time",
        {"safeguards": len(tried), "noticed by a test": len(tried) - len(unseen)},
        findings=[f"no test fails without this: {rule}" for rule in unseen],
        tables=[Table(name="The test that fails without each", head=HEAD, rows=tuple(rows))],
    )
    return conclude(summary, options.json)


def _tried(chosen: list[Safeguard], sound: bool) -> list[Trial]:
    """Try them in a few copies of the checkout side by side."""
    with checkout() as first, checkout() as second:
        free: SimpleQueue[Path] = SimpleQueue()
        for folder in (first, second)[:LANES]:
            free.put(folder)

        def one(safeguard: Safeguard) -> Trial:
            folder = free.get()
            try:
                trial = attempt(safeguard, folder, sound=sound)
            finally:
                free.put(folder)
            print(f"without {safeguard.rule}: {trial.noticed_by}", file=sys.stderr, flush=True)
            if not trial.noticed:
                print(trial.printed[-3000:], file=sys.stderr, flush=True)
            return trial

        with ThreadPoolExecutor(LANES) as lanes:
            return list(lanes.map(one, chosen))


if __name__ == "__main__":
    sys.exit(main())
