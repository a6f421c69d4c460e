"""One chaos: runs, answers and faults side by side until there were enough of them, then calm, then the checker."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from adjourn.schemas.records.items import SuspensionItem
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from tests.chaos import ledger
from tests.chaos.faults import Target
from tests.chaos.journal import Journal, repetitions
from tests.chaos.ledger import Row
from tests.chaos.publisher import Publisher
from tests.chaos.scene import Scene, scene
from tests.chaos.storm import Storm
from tests.chaos.traffic import Traffic
from tests.crash.checker import Facts, RunFacts, Sent, check

PULSE_SECONDS: Final = 0.05
PROGRESS_SECONDS: Final = 10.0
CALM_SECONDS: Final = 120.0
"""Once nothing is struck any more: how long there may be before one more run ends, or one more answer is judged.

How long all of them take says how fast the machine is, and is reported; that none moves is a finding."""
AHEAD: Final = 4
"""Faults that may strike at once, before another answer was accepted."""
UNCOUNTED: Final = 10**9
FINDINGS_SHOWN: Final = 20


@dataclass(frozen=True)
class Effort:
    """How much of it. Ends when there were enough answers and faults, or when the time is over."""

    answers: int
    faults: int
    seconds: float
    in_flight: int = 60
    pause_seconds: float = 0.5
    """Between two faults, on the average."""
    only: Target | None = None
    """What is struck, if not everything is."""


@dataclass
class Report:
    """What was tried, and what came of it."""

    seed: int
    seconds: float = 0.0
    calm_seconds: float = 0.0
    """From the last fault to the end of everything."""
    runs: int = 0
    accepted: int = 0
    """Answers whose publisher was told that they are taken."""
    published: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    workers: dict[str, int] = field(default_factory=dict)
    receipts: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    """What was interrupted before it was recorded, and began again, as it may."""
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.runs} runs, {self.accepted} accepted answers"
            f" ({self.published} published), {sum(self.faults.values())} faults in {self.seconds:.0f} s;"
            f" all at rest {self.calm_seconds:.1f} s after the last fault",
        ]
        counted = {
            "faults": self.faults,
            "workers started": self.workers,
            "receipts": self.receipts,
            "interrupted, and begun again": self.repeated,
        }
        for title, counts in counted.items():
            lines += ["", title, *(f"{count:8}  {name}" for name, count in sorted(counts.items()))]
        if self.left_out:
            lines += ["", f"left out (no C compiler): {', '.join(self.left_out)}"]
        lines += [
            "",
            f"findings: {len(self.findings)}",
            *(f"  {finding}" for finding in self.findings[:FINDINGS_SHOWN]),
        ]
        return "\n".join(lines)


def run(
    folder: Path, seed: int, effort: Effort, say: Callable[[str], None] = lambda line: None, without: str | None = None
) -> Report:
    """Run one chaos over `folder`, which others have to be able to pass through. The seed decides what strikes.

    `without` names a safeguard that the workers do not have (`tests.crash.mutations`): something has to be found.
    """
    dice = Random(seed)
    began = time.monotonic()
    with scene(folder, dice, without) as place:
        for slot in place.slots:
            place.start_worker(slot)
        publisher = Publisher(place.settings, Random(seed + 1))
        traffic = Traffic(place.settings, publisher, Random(seed + 2), effort.in_flight)
        storm = Storm(place, dice, effort.only)
        publisher.start()
        traffic.start()
        try:
            _rage(place, storm, traffic, publisher, effort, dice, say)
            struck_last = time.monotonic()
            stalled = _rest(place, traffic, publisher, say)
        finally:
            traffic.stop()
            publisher.stop()
        report = Report(
            seed=seed,
            calm_seconds=time.monotonic() - struck_last,
            runs=len(traffic.started),
            accepted=publisher.accepted,
            published=publisher.published,
            faults=dict(storm.struck),
            left_out=storm.left_out,
            workers=dict(place.flavours),
            receipts=dict(publisher.receipts),
        )
        _judge(report, place, storm, traffic, publisher, stalled)
    report.seconds = time.monotonic() - began
    return report


def _rage(
    place: Scene,
    storm: Storm,
    traffic: Traffic,
    publisher: Publisher,
    effort: Effort,
    dice: Random,
    say: Callable[[str], None],
) -> None:
    """Strike until there was enough of everything; then heal it."""
    deadline = time.monotonic() + effort.seconds
    strike_at = said_at = time.monotonic()
    pause = threading.Event()
    while time.monotonic() < deadline:
        enough_answers = publisher.accepted >= effort.answers
        if enough_answers and storm.struck.total() >= effort.faults:
            break
        now = time.monotonic()
        storm.heal()
        place.tend()
        if now >= strike_at and storm.struck.total() < _allowed(effort, publisher.accepted):
            storm.strike()
            strike_at = now + dice.uniform(0, 2 * effort.pause_seconds)
        if now >= said_at:
            say(_progress(storm, traffic, publisher))
            said_at = now + PROGRESS_SECONDS
        pause.wait(PULSE_SECONDS)
    storm.calm()
    traffic.enough()


def _allowed(effort: Effort, accepted: int) -> int:
    """How many faults so many answers have earned: a fleet that only ever comes up has nothing to lose."""
    return min(effort.faults, AHEAD + effort.faults * accepted // effort.answers) if accepted else 0


def _rest(place: Scene, traffic: Traffic, publisher: Publisher, say: Callable[[str], None]) -> str:
    """See everything to its end. Returns what does not come to one."""
    pause = threading.Event()
    moved_at = said_at = time.monotonic()
    left = _left(traffic, publisher)
    while any(left):
        now = time.monotonic()
        if (now_left := _left(traffic, publisher)) != left:
            left, moved_at = now_left, now
        if now > moved_at + CALM_SECONDS:
            place.dump_stacks()
            return "{} runs to end and {} answers to be judged".format(*left)
        if now > said_at + PROGRESS_SECONDS:
            say("calm: {} runs and {} answers left".format(*left))
            said_at = now
        place.tend()
        pause.wait(PULSE_SECONDS)
    say("everything has come to its end")
    return ""


def _left(traffic: Traffic, publisher: Publisher) -> tuple[int, int]:
    """Runs that have not ended, and answers that nothing has been heard of."""
    return len(traffic.in_flight), publisher.waiting


def _progress(storm: Storm, traffic: Traffic, publisher: Publisher) -> str:
    ended = len(traffic.started) - len(traffic.in_flight)
    return f"{publisher.accepted} answers accepted, {storm.struck.total()} faults, {ended} runs ended"


# --- the end -------------------------------------------------------------------------------------


def _judge(report: Report, place: Scene, storm: Storm, traffic: Traffic, publisher: Publisher, stalled: str) -> None:
    db = Database(place.settings.database, pool_size=1)
    with psycopg.connect(place.servers.psycopg_url, autocommit=True) as connection:
        journal = Journal.read(connection)
    recorded = tuple(_recorded(db, traffic.started))
    db.dispose()
    rows = ledger.read(place.ledger)
    facts = Facts(
        runs=recorded,
        ledger=tuple(row.as_crash_row() for row in rows),
        sent=tuple(
            Sent(letter.action_id, letter.answer_id, letter.kind, letter.value, tuple(letter.receipts))
            for letter in publisher.letters
        ),
        expected=dict.fromkeys(traffic.started, "completed"),
        # How often each thing may have been interrupted is not counted; the journal says which repetitions are.
        interruptions=UNCOUNTED,
        frozen=True,
        stalled=stalled,
    )
    report.findings += check(facts)
    by_run: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    repeated: Counter[str] = Counter()
    for one in recorded:
        own = by_run[one.run.id]
        report.findings += [f"{one.run.agent}: {problem}" for problem in repetitions(one, own, journal, storm.crashes)]
        passes = Counter((row.kind, row.call_id, row.step) for row in own if row.kind in ("body", "model", "once"))
        repeated.update({kind: count - 1 for (kind, _, _), count in passes.items() if count > 1})
    report.repeated = dict(repeated)


def _recorded(db: Database, run_ids: list[str]) -> Iterator[RunFacts]:
    for run_id in run_ids:
        run = runs.get(db, run_id)
        if run is None:
            continue  # the checker misses it
        items = runs.items(db, run_id)
        opened = dict.fromkeys(item.body.action_id for item in items if isinstance(item.body, SuspensionItem))
        states = (actions.get(db, action_id) for action_id in opened)
        yield RunFacts(run, items, tuple(state for state in states if state is not None))
