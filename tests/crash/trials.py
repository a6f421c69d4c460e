"""Runs one trial of a scenario: makes the plan, plays it, checks what is left, and says what was found."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from adjourn.schemas.records.record import Record
from tests.crash.checker import check
from tests.crash.forkserver import ForkServer
from tests.crash.lanes import Lane
from tests.crash.points import CONTINUED, Death, Plan, Side, read_trace
from tests.crash.scenarios import Scenario
from tests.crash.trial import Trial
from tests.crash.workers import PATIENCE_SECONDS, StalledError

LOG_LINES_SHOWN: Final = 40
WAKEUP_RETRY_SECONDS: Final = 0.5
"""Where a frozen worker may have taken a wake-up; no clock is moved then, for the leases of the others."""
POINTS_SHOWN: Final = 60
UNPASSED: Final = "harness: nothing was "


class Outcome(Record):
    """What one trial found."""

    scenario: str
    death: str
    """Where a process was stopped; empty for a clean trial."""
    findings: tuple[str, ...]
    points: tuple[str, ...]
    """What the trial passed, in order. Of a clean one: the points to try."""
    missed: bool
    """Whether a point was never passed at which a process was to be stopped."""
    republished: int
    seconds: float
    log: str = ""

    @property
    def found_besides(self) -> bool:
        """Whether anything else was found than a point that was never passed."""
        return any(not finding.startswith(UNPASSED) for finding in self.findings)

    @property
    def passed_when_stale(self) -> tuple[str, ...] | None:
        """The points that a process passed after it was stopped and continued; none if it never was."""
        if CONTINUED not in self.points:
            return None
        return self.points[self.points.index(CONTINUED) + 1 :]

    def __str__(self) -> str:
        head = f"{self.scenario}, {self.death or 'undisturbed'}:"
        passed = [f"    {point}" for point in self.points[-POINTS_SHOWN:]]
        return "\n".join([head, *(f"  {finding}" for finding in self.findings), *passed, self.log])


def run_trial(
    server: ForkServer,
    lane: Lane,
    folder: Path,
    scenario: Scenario,
    *,
    kill: tuple[Side, str] | None = None,
    freeze: bool = False,
    mutation: str | None = None,
    patience: float = PATIENCE_SECONDS,
) -> Outcome:
    """Play a scenario once, stopping a process at one point or at none, and check what is left."""
    place = Path(tempfile.mkdtemp(dir=folder))
    begun = time.monotonic()
    lane.reset()
    death = None if kill is None else _death(place / "trigger", *kill, freeze=freeze)
    earlier = None
    if scenario.died_before is not None:
        side, _, point = scenario.died_before.partition(" ")
        earlier = _death(place / "earlier", "before" if side == "before" else "after", point)
    plan = Plan(
        trace=place / "trace",
        death=death,
        from_start=scenario.from_start or scenario.victim == "client",
        leases=scenario.leases,
        restores=scenario.restores,
    )
    trial = Trial(
        server,
        lane,
        place,
        plan,
        dies_before=scenario.dies_before,
        died_before=earlier,
        victim=scenario.victim,
        mutation=mutation,
        tuning={**dict(scenario.tuning), **({"wakeup_retry_seconds": WAKEUP_RETRY_SECONDS} if freeze else {})},
        patience=patience,
    )
    try:
        findings = _play(trial, scenario)
    finally:
        trial.close()
    missed = [each for each in (earlier, death) if each is not None and each.trigger.exists()]
    findings += [f"{UNPASSED}{each}: the point was never passed" for each in missed]
    lane.dirty = bool(findings)
    log = place / "processes.log"
    outcome = Outcome(
        scenario=scenario.name,
        death=str(death or ""),
        findings=tuple(findings),
        points=tuple(read_trace(plan.trace)),
        missed=bool(missed),
        republished=trial.republished,
        seconds=time.monotonic() - begun,
        log="\n".join(log.read_text().splitlines()[-LOG_LINES_SHOWN:]) if findings and log.exists() else "",
    )
    shutil.rmtree(place)
    return outcome


def unplayed(scenario: Scenario, error: Exception) -> Outcome:
    """The outcome of a trial whose driver failed: nothing is known of it, which is as good as a finding."""
    what = f"harness: not played to its end ({type(error).__name__}: {error})"
    return Outcome(
        scenario=scenario.name, death="", findings=(what,), points=(), missed=False, republished=0, seconds=0
    )


def _play(trial: Trial, scenario: Scenario) -> list[str]:
    try:
        if not scenario.from_start:
            trial.begin()
        scenario.play(trial)
        facts = trial.finish()
    except StalledError as error:
        facts = trial.facts(stalled=str(error))
    return [*trial.faults, *check(facts)]


def _death(trigger: Path, side: Side, point: str, *, freeze: bool = False) -> Death:
    trigger.touch()
    return Death(side=side, point=point, trigger=trigger, freeze=freeze)
