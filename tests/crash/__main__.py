"""`python -m tests.crash`: the whole sweep, with servers of its own, and a table of what was tried.

It takes minutes per broker. Exit code 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from tests.crash.points import SIDES
from tests.crash.scenarios import BY_NAME, Scenario, of_broker
from tests.crash.sweep import Broker, bench, record, tasks_of
from tests.crash.trials import Outcome

PROGRESS_EVERY: Final = 50


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    scenarios = _chosen(args.scenario, args.broker)
    begun = time.monotonic()
    with bench(args.broker, args.lanes) as made:
        recorded = record(made, scenarios, _tell)
        tasks = [task for s in scenarios for task in tasks_of(recorded[s.name], s, freeze=args.freeze)]
        if args.point:
            tasks = [task for task in tasks if task.kill and args.point in f"{task.kill[0]} {task.kill[1]}"]
        tried: dict[str, list[Outcome]] = defaultdict(list)
        for number, (task, outcome) in enumerate(made.run_all(tasks), 1):
            tried[task.scenario.name].append(outcome)
            _tell(outcome)
            if number % PROGRESS_EVERY == 0:
                print(f"{number} of {len(tasks)} trials, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begun
    found = [o for outcomes in (recorded.values(), *tried.values()) for o in outcomes if o.findings]
    if args.json:
        print(json.dumps(_as_json(args.broker, scenarios, recorded, tried, seconds), indent=2))
    else:
        print(table(scenarios, recorded, tried))
        print(f"\n{args.broker}: {len(tasks)} trials in {seconds:.0f} s, {len(found)} with findings")
    return 1 if found else 0


def table(scenarios: Sequence[Scenario], recorded: dict[str, Outcome], tried: dict[str, list[Outcome]]) -> str:
    """What was tried, as a table in Markdown."""
    rows = ["| scenario | points | trials | findings |", "|---|---:|---:|---:|"]
    totals = [0, 0, 0]
    for scenario in scenarios:
        counts = _counts(recorded[scenario.name], tried[scenario.name])
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        rows.append("| " + " | ".join([scenario.name, *map(str, counts)]) + " |")
    return "\n".join([*rows, "| **all** | " + " | ".join(f"**{total}**" for total in totals) + " |"])


def _counts(recorded: Outcome, tried: Sequence[Outcome]) -> tuple[int, int, int]:
    return len(set(recorded.points)), len(tried), sum(bool(o.findings) for o in (recorded, *tried))


def _as_json(
    broker: Broker,
    scenarios: Sequence[Scenario],
    recorded: dict[str, Outcome],
    tried: dict[str, list[Outcome]],
    seconds: float,
) -> dict[str, object]:
    return {
        "broker": broker,
        "sides": SIDES,
        "seconds": round(seconds),
        "scenarios": [
            {
                "name": scenario.name,
                **dict(
                    zip(
                        ("points", "trials", "findings"),
                        _counts(recorded[scenario.name], tried[scenario.name]),
                        strict=True,
                    )
                ),
                "found": [
                    {"where": o.death or "undisturbed", "findings": o.findings}
                    for o in (recorded[scenario.name], *tried[scenario.name])
                    if o.findings
                ],
            }
            for scenario in scenarios
        ],
    }


def _tell(outcome: Outcome) -> None:
    if outcome.findings:
        print(outcome, file=sys.stderr, flush=True)


def _chosen(names: Sequence[str], broker: Broker) -> list[Scenario]:
    offered = of_broker(broker)
    chosen = [scenario for scenario in offered if not names or scenario.name in names]
    if not chosen:
        raise SystemExit(f"no such scenario; there are: {', '.join(BY_NAME)}")
    return chosen


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="every scenario")
    which.add_argument("--scenario", action="append", default=[], help="this scenario (may be said again)")
    parser.add_argument("--point", help="only points whose `side name` holds this text")
    parser.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--freeze", action="store_true", help="stop the process past its lease, and continue it later")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="trials side by side")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
