"""Runs the trials in which a mutation should show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.figures import table
from benchmarks.summary import Stopwatch, Table, add_json_option, command_line, conclude
from tests.crash.mutations import MUTATIONS, Mutation
from tests.crash.points import SIDES
from tests.crash.scenarios import BY_NAME
from tests.crash.sweep import Bench, Task, bench
from tests.crash.trials import Outcome

PATIENCE_SECONDS: Final = 6.0
"""For trials that have to get stuck: several times what they take where nothing is missing."""

HEAD: Final = ("missing", "tried in", "stopped", "found")


class Shown(NamedTuple):
    """What became of one mutation."""

    name: str
    mutation: Mutation
    sound: Outcome
    """The same trial with nothing missing."""
    broken: Outcome

    @property
    def found(self) -> bool:
        """Whether the sweep notices, and does not cry out without a reason."""
        return bool(self.finding) and not self.sound.findings

    @property
    def said(self) -> str:
        """The finding, or that there is none."""
        return self.finding if self.found else "NOTHING"

    @property
    def finding(self) -> str:
        """What was said of what is missing."""
        return next((each for each in self.broken.findings if self.mutation.finding in each), "")


def try_mutation(made: Bench, name: str) -> Shown:
    """Run the trial with the safeguard, and without it."""
    mutation = MUTATIONS[name]
    side, _, point = mutation.at.partition(" ")
    kill = next(((each, point) for each in SIDES if each == side), None)
    sound = Task(BY_NAME[mutation.scenario], kill, mutation.freeze)
    broken = sound._replace(mutation=name, patience=PATIENCE_SECONDS)
    return Shown(name, mutation, made.run(sound), made.run(broken))


def show(arguments: Sequence[str] | None = None) -> int:
    """Try all of them, and print a table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.mutations")
    add_json_option(parser)
    args = parser.parse_args(arguments)
    watch = Stopwatch()
    shown = []
    with bench("redis", 1) as made:
        for name in MUTATIONS:
            shown.append(try_mutation(made, name))
            print(f"without {shown[-1].mutation.missing}: {shown[-1].said}", file=sys.stderr, flush=True)
            if not shown[-1].found:
                print(shown[-1].sound, shown[-1].broken, sep="\n", file=sys.stderr, flush=True)
    rows = [
        (each.mutation.missing, each.mutation.scenario, each.broken.death or "nowhere", each.said) for each in shown
    ]
    print(table(HEAD, rows))
    unseen = [each.mutation.missing for each in shown if not each.found]
    summary = watch.summary(
        command_line("tests.crash.mutations", arguments),
        "Safeguards left out, one at a time",
        {"safeguards": len(shown), "noticed by the crash sweep": len(shown) - len(unseen)},
        findings=[f"nobody notices that {missing} is missing" for missing in unseen],
        tables=[Table(name="What was found without each", head=HEAD, rows=tuple(rows))],
    )
    return conclude(summary, args.json)
