"""`python -m tests.chaos --answers 10000 --faults 1000 [--seed N] [--minutes M] [--json]`: the long chaos.

Prints its seed, how it goes on and, at the end, what was tried and what came of it. The exit code is 1 if
anything was found. The folder with the logs of all processes is kept then.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos import Effort, run
from tests.crash.mutations import MUTATIONS

SECONDS_PER_MINUTE = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--answers", type=int, default=10_000, help="accepted answers to reach")
    parser.add_argument("--faults", type=int, default=1_000, help="faults to strike")
    parser.add_argument("--seed", type=int, default=None, help="of everything that is random; printed")
    parser.add_argument("--minutes", type=float, default=60, help="end after so long, with what was reached by then")
    parser.add_argument("--in-flight", type=int, default=60, help="runs at once")
    parser.add_argument("--without", choices=MUTATIONS, help="a safeguard to leave out: something has to be found")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and nothing else")
    args = parser.parse_args()
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed

    def say(line: str) -> None:
        print(line, file=sys.stderr if args.json else sys.stdout, flush=True)

    # What cannot be published while Redis is away is what this is about.
    logging.getLogger("adjourn").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="adjourn-chaos-"))
    # Run by root, PostgreSQL is somebody else, who has to pass through.
    folder.chmod(0o711)
    say(f"seed {seed}, in {folder}")
    effort = Effort(args.answers, args.faults, args.minutes * SECONDS_PER_MINUTE, args.in_flight)
    report = run(folder, seed, effort, say, args.without)
    print(json.dumps(report.as_json(), indent=2) if args.json else f"\n{report}")
    if report.findings:
        say(f"what the processes said is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
