"""`python -m tests.chaos --answers 10000 --faults 1000 [--seed N] [--minutes M] [--json FILE]`: the long chaos.

Prints its seed, how it goes on and, at the end, what was tried and what came of it. The exit code is 0 if there were
as many answers and faults as were asked for and nothing was found. If something was, the folder with the logs of all
processes is kept. `--without` leaves out a safeguard, to see that something is found.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import get_args

from benchmarks.summary import Stopwatch, Summary, Table, add_json_option, command_line, conclude
from tests.chaos.chaos import Effort, Report, run
from tests.chaos.faults import Target
from tests.crash.mutations import MUTATIONS

SECONDS_PER_MINUTE = 60
SHOWN = ("counter", "compare-and-set", "write order", "sweep")
"""Safeguards whose absence shows here, each of which nothing else makes up for. A worker that was stopped notices by
its own clock, mostly, that it is too late; an answer that its reader loses is sent again; no deadline passes, and no
answer comes early. Those have the crash sweep."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--answers", type=int, default=10_000, help="accepted answers to reach")
    parser.add_argument("--faults", type=int, default=1_000, help="faults to strike")
    parser.add_argument("--seed", type=int, default=None, help="of everything that is random; printed")
    parser.add_argument("--minutes", type=float, default=120, help="end after so long, with what was reached by then")
    parser.add_argument("--in-flight", type=int, default=60, help="runs at once")
    parser.add_argument("--only", choices=get_args(Target), help="strike nothing else")
    parser.add_argument("--without", choices=SHOWN, help="a safeguard to leave out: something has to be found")
    add_json_option(parser)
    args = parser.parse_args()
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed

    watch = Stopwatch()
    # What cannot be published while Redis is away is what this is about.
    logging.getLogger("adjourn").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="adjourn-chaos-"))
    # Run by root, PostgreSQL is somebody else, who has to pass through.
    folder.chmod(0o711)
    _say(f"seed {seed}, in {folder}")
    effort = Effort(args.answers, args.faults, args.minutes * SECONDS_PER_MINUTE, args.in_flight, only=args.only)
    report = run(folder, seed, effort, _say, args.without)
    print(report)
    if report.findings:
        _say(f"what the processes said is in {folder}")
    else:
        shutil.rmtree(folder)
    return conclude(_summary(report, effort, watch, args.without), args.json)


def _summary(report: Report, effort: Effort, watch: Stopwatch, without: str | None) -> Summary:
    reached = {"accepted answers": report.accepted, "faults": sum(report.faults.values())}
    wanted = {"accepted answers": effort.answers, "faults": effort.faults}
    short = [f"{wanted[what] - n:,} of {wanted[what]:,} {what}" for what, n in reached.items() if n < wanted[what]]
    repeated = sum(report.repeated.values())
    command = command_line("tests.chaos", None)
    return watch.summary(
        command if "--seed" in command else f"{command} --seed {report.seed}",
        "Chaos",
        {**reached, "runs": report.runs, "messages": report.published, "interrupted, and begun again": repeated},
        choice=f"without {MUTATIONS[without].missing}" if without else f"{effort.only} only" if effort.only else "",
        must_find=without is not None,
        findings=report.findings,
        missing=[*short, *(f"{fault}: no C compiler" for fault in report.left_out)],
        tables=[
            Table(name=name, head=(what, "times"), rows=tuple((each, f"{n:,}") for each, n in sorted(counts.items())))
            for name, what, counts in (
                ("What was struck", "fault", report.faults),
                ("Workers that were started", "how", report.workers),
                ("What the publisher was told", "receipt", report.receipts),
                ("What was interrupted before it was recorded, and began again", "what", report.repeated),
            )
        ],
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
