"""`python -m tests.crash.stale --trials 1000 [--seed N] [--without token] [--json FILE]`: stale writers.

Each trial stops a real worker (SIGSTOP) right before one of its statements, lets its leases run out and others end
its runs, continues it (SIGCONT) and waits until it does nothing any more. What is recorded must not have changed.
The statements are all those of all scenarios, in random order, and from the start again until there were enough
trials. Prints how it goes on and the verdict; the exit code is 0 if all were tried and nothing was found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from random import Random
from typing import Final

from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.crash.__main__ import play, tell_recorded
from tests.crash.mutations import MUTATIONS
from tests.crash.scenarios import SCENARIOS
from tests.crash.sweep import Task, bench, record, tasks_of
from tests.crash.trials import Outcome

STATEMENT: Final = "/sql:"
TRIALS: Final = 1000


def victims(recorded: Iterable[tuple[Task, Outcome]], dice: Random) -> list[Task]:
    """A trial for each statement that a worker of these scenarios sends, in random order."""
    tasks = [task for clean, outcome in recorded for task in tasks_of(outcome, clean.scenario, freeze=True)]
    chosen = [task for task in tasks if task.kill and task.kill[0] == "before" and STATEMENT in task.kill[1]]
    dice.shuffle(chosen)
    return chosen


def statement_of(point: str) -> str:
    """Its name, without the thread that sent it and the number."""
    return point.partition(STATEMENT)[2].partition("#")[0]


def sent_when_stale(tasks: Sequence[tuple[Task, Outcome]]) -> Counter[str]:
    """The statements that workers sent once they were continued: the one they were stopped before, and what followed.

    Only of trials that stopped one.
    """
    sent: Counter[str] = Counter()
    for task, outcome in tasks:
        passed = outcome.passed_when_stale
        if task.kill is not None and passed is not None:
            sent.update(statement_of(point) for point in (task.kill[1], *passed) if STATEMENT in point)
    return sent


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    watch = Stopwatch()
    with bench("redis", args.lanes) as made:
        recorded = record(made, SCENARIOS, tell_recorded)
        clean = [(Task(scenario), recorded[scenario.name]) for scenario in SCENARIOS]
        statements = victims(clean, Random(args.seed))
        tasks = [task._replace(mutation=args.without) for task in islice(cycle(statements), args.trials)]
        played = play(made, tasks, watch)
    outcomes = [*recorded.values(), *(outcome for _, outcome in played)]
    sent = sent_when_stale(played)
    continued = sum(outcome.passed_when_stale is not None for _, outcome in played)
    print(f"workers stopped before {len(statements)} statements; continued, they sent:")
    print(*(f"{count:8,}  {name}" for name, count in sent.most_common()), sep="\n")
    missing = [f"{args.trials - len(played)} of {args.trials} trials"] if len(played) < args.trials else []
    if continued < len(played):
        missing.append(f"{len(played) - continued} workers were never continued")
    summary = watch.summary(
        command_line("tests.crash.stale", arguments),
        "Stale writers",
        {"trials": len(played), "statements stopped at": len(statements), "statements sent when stale": sent.total()},
        choice=f"without {MUTATIONS[args.without].missing}" if args.without else "",
        must_find=args.without is not None,
        findings=[f"{o.scenario}, {o.death or 'undisturbed'}: {f}" for o in outcomes for f in o.findings],
        missing=missing,
        tables=[
            Table(
                name="Statements that stale workers sent",
                head=("statement", "times"),
                rows=tuple((name, f"{count:,}") for name, count in sent.most_common()),
            )
        ],
    )
    return conclude(summary, args.json)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.stale", description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"workers to stop (default: {TRIALS:,})")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="trials side by side")
    parser.add_argument("--without", choices=MUTATIONS, help="a safeguard to leave out: something has to be found")
    add_json_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
