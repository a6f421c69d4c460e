"""Runs the trials in which a mutation should show."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.crash.mutations import MUTATIONS, Mutation
from tests.crash.points import SIDES
from tests.crash.scenarios import BY_NAME
from tests.crash.sweep import Bench, Task, bench
from tests.crash.trials import Outcome

PATIENCE_SECONDS: Final = 6.0
"""For trials that have to get stuck: several times what they take where nothing is missing."""


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
    def finding(self) -> str:
        """What was said of what is missing."""
        return next((each for each in self.broken.findings if self.mutation.finding in each), "")


def try_mutation(made: Bench, name: str) -> Shown:
    """Run the trial with the safeguard, and without it."""
    mutation = MUTATIONS[name]
    side, _, point = mutation.at.partition(" ")
    kill = next(((each, point) for each in SIDES if each == side), None)
    sound = Task(BY_NAME[mutation.scenario], kill, mutation.freeze, patience=PATIENCE_SECONDS)
    return Shown(name, mutation, made.run(sound), made.run(sound._replace(mutation=name)))


def show() -> int:
    """Try all of them, and print a table. Returns the exit code."""
    with bench("redis", 1) as made:
        shown = [try_mutation(made, name) for name in MUTATIONS]
    print("| missing | tried in | stopped | found |\n|---|---|---|---|")
    for each in shown:
        found = each.finding if each.found else "**NOTHING**"
        print(f"| {each.mutation.missing} | {each.mutation.scenario} | {each.broken.death or 'nowhere'} | {found} |")
        for outcome in (each.sound, each.broken):
            if not each.found:
                print(outcome)
    return 0 if all(each.found for each in shown) else 1
