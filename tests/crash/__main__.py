"""`python -m tests.crash --all [--broker rabbitmq] [--freeze] [--json FILE]`: the whole sweep, on servers of its own.

Every point of every scenario, before and after. Prints what it finds and how it goes on, and at the end a table
and the verdict. Interrupted, it says what it has not tried. The exit code is 0 if everything was tried and nothing
was found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from benchmarks.figures import table
from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.crash.scenarios import BY_NAME, Scenario, of_broker
from tests.crash.sweep import Bench, Broker, Task, bench, record, tasks_of
from tests.crash.trials import Outcome

PROGRESS_EVERY: Final = 50
HEAD: Final = ("scenario", "points", "trials", "of", "findings")
BROKERS: Final[dict[Broker, str]] = {"redis": "Redis", "rabbitmq": "RabbitMQ"}


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    scenarios = _chosen(args.scenario, args.broker)
    watch = Stopwatch()
    tried: dict[str, list[Outcome]] = defaultdict(list)
    with bench(args.broker, args.lanes) as made:
        recorded = record(made, scenarios, tell_recorded)
        tasks = [task for s in scenarios for task in tasks_of(recorded[s.name], s, freeze=args.freeze)]
        if args.point:
            tasks = [task for task in tasks if task.kill and args.point in f"{task.kill[0]} {task.kill[1]}"]
        for task, outcome in play(made, tasks, watch):
            tried[task.scenario.name].append(outcome)
    planned = {s.name: sum(task.scenario is s for task in tasks) for s in scenarios}
    rows = _rows(scenarios, recorded, tried, planned)
    print(table(HEAD, rows))
    done = sum(map(len, tried.values()))
    outcomes = [outcome for each in (recorded.values(), *tried.values()) for outcome in each]
    summary = watch.summary(
        command_line("tests.crash", arguments),
        f"Crash sweep, processes {'stopped past their lease' if args.freeze else 'killed'}",
        {
            "scenarios": len(scenarios),
            "points": sum(len(set(outcome.points)) for outcome in recorded.values()),
            "trials": done,
        },
        choice=BROKERS[args.broker],
        findings=[f"{o.scenario}, {o.death or 'undisturbed'}: {f}" for o in outcomes for f in o.findings],
        missing=[f"{len(tasks) - done} of {len(tasks)} trials"] if done < len(tasks) else [],
        tables=[Table(name="Trials by scenario", head=HEAD, rows=tuple(rows))],
    )
    return conclude(summary, args.json)


def play(made: Bench, tasks: Sequence[Task], watch: Stopwatch) -> list[tuple[Task, Outcome]]:
    """Run trials, saying what they find and how far they are. All that were run, if it is interrupted."""
    played: list[tuple[Task, Outcome]] = []
    with suppress(KeyboardInterrupt):
        for number, (task, outcome) in enumerate(made.run_all(tasks), 1):
            played.append((task, outcome))
            tell(outcome)
            if number % PROGRESS_EVERY == 0 or number == len(tasks):
                found = sum(bool(each.findings) for _, each in played)
                left = watch.seconds / number * (len(tasks) - number)
                said = f"{number} of {len(tasks)} trials, {found} with findings; about {left / 60:.0f} min left"
                print(said, file=sys.stderr, flush=True)
    return played


def tell(outcome: Outcome) -> None:
    """Say what a trial found, with all that helps to understand it."""
    if outcome.findings:
        print(outcome, file=sys.stderr, flush=True)


def tell_recorded(outcome: Outcome) -> None:
    """Say how an undisturbed trial went, whose points are to be tried."""
    said = f"{outcome.scenario}: {len(set(outcome.points))} points, in {outcome.seconds:.1f} s undisturbed"
    print(said, file=sys.stderr, flush=True)
    tell(outcome)


def _rows(
    scenarios: Sequence[Scenario],
    recorded: dict[str, Outcome],
    tried: dict[str, list[Outcome]],
    planned: dict[str, int],
) -> list[tuple[str, ...]]:
    """What was tried of each scenario, and of all of them."""
    counts = []
    for scenario in scenarios:
        clean, trials = recorded[scenario.name], tried[scenario.name]
        found = sum(bool(outcome.findings) for outcome in (clean, *trials))
        counts.append((len(set(clean.points)), len(trials), planned[scenario.name], found))
    rows = [(s.name, *map(str, each)) for s, each in zip(scenarios, counts, strict=True)]
    return [*rows, ("all", *(str(sum(column)) for column in zip(*counts, strict=True)))]


def _chosen(names: Sequence[str], broker: Broker) -> list[Scenario]:
    offered = of_broker(broker)
    chosen = [scenario for scenario in offered if not names or scenario.name in names]
    if not chosen:
        raise SystemExit(f"no such scenario; there are: {', '.join(BY_NAME)}")
    return chosen


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="every scenario")
    which.add_argument("--scenario", action="append", default=[], help="this scenario (may be said again)")
    parser.add_argument("--point", help="only points whose `side name` holds this text")
    parser.add_argument("--broker", choices=tuple(BROKERS), default="redis")
    parser.add_argument("--freeze", action="store_true", help="stop the process past its lease, and continue it later")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="trials side by side")
    add_json_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
