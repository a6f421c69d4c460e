"""A tree on the store in memory: one run in one thread of control, where processes die between any two statements.

Uses the stage and the scheduler of the simulation. Time moves only when there is nothing else to do.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from adjourn import Context, ModelRequest
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.ids import new_run_id
from adjourn.schemas.records.items import OutputItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.memory import runs
from adjourn.store.memory.store import MemoryStore
from adjourn.store.memory.tables import Memory, RunRow, Statement
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.services import Services
from adjourn.tasks.lifecycle.sweep import sweep
from tests.blocks.account import Account, end_of, heard, items_of, named, names_of
from tests.blocks.mutations import MUTATIONS
from tests.blocks.trees import answer_to, app_of
from tests.simulation.scheduler import Killed, Loop, Process, Scheduler
from tests.simulation.stage import simulating, stage

TUNING: Final = Tuning(suspect_deaths=1_000)
"""No run is poison here: it is not to blame for the deaths."""
STEPS: Final = 100_000
"""More than any run needs."""


@dataclass(frozen=True)
class Weather:
    """What goes wrong, and how often. Rates are per point."""

    death: float = 0.0
    give_way: float = 0.0
    repeated: float = 0.0
    """Of messages."""
    lost: float = 0.0
    """Of wake-ups."""
    eager: float = 0.0
    """How often somebody answers while the run still works."""

    @classmethod
    def drawn(cls, dice: random.Random) -> Weather:
        return cls(
            death=dice.choice([0.0, 0.01, 0.03, 0.1]),
            give_way=dice.choice([0.1, 0.4, 0.8]),
            repeated=dice.choice([0.0, 0.3]),
            lost=dice.choice([0.0, 0.0, 0.2]),
            eager=dice.choice([0.0, 0.1, 0.3]),
        )


CALM: Final = Weather()


class Trial:
    """One run of the tree of a seed. Stands where the stage looks for its world."""

    def __init__(self, tree: int, weather: Weather, dice: random.Random) -> None:
        self.dice = dice
        self.weather = weather
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler()
        self.db = Memory(TUNING)
        self.db.around = self._around
        self._app, self._root = app_of(tree, self)
        self._wakeups: list[WakeUp] = []
        self._process = Process("worker")
        self._done: dict[tuple[str, ...], Process] = {}
        """What was done outside of the run, by the process that did it last."""
        self._effects: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str]] = Counter()

    def clock(self) -> datetime:
        return self.db.now

    def run(self) -> Account:
        """From the start to the end."""
        with simulating(cast(Any, self)):
            run_id = new_run_id()
            self._spawn("start", lambda: self._start(run_id))
            for _ in range(STEPS):
                if self._step(run_id):
                    return self._account(self.db.runs[run_id])
        self.findings.append(f"does not come to its end: {self.db.runs[run_id].status}")
        return self._account(self.db.runs[run_id])

    def _account(self, row: RunRow) -> Account:
        names = names_of(row.items)
        self.counts["items"] += len(row.items)
        self.counts["waits"] += len(self.db.actions)
        return Account(
            end_of(row.record()),
            items_of(row.items),
            Counter({named(call_id, names): times for call_id, times in self._effects.items()}),
            Counter({named(call_id, names): times for call_id, times in self._kept.items()}),
            self._requests,
        )

    # --- the scene -----------------------------------------------------------------------------

    def effect(self, ctx: Context, tool: str) -> None:
        self._point()
        if any(isinstance(i.body, OutputItem) and i.body.call_id == ctx.call_id for i in self._items(ctx.run_id)):
            self.findings.append(f"{tool} ran again after its output was recorded")
        if self._counts("effect", ctx.call_id):
            self._effects[ctx.call_id] += 1
        self._point()

    def once(self, ctx: Context) -> None:
        self._point()
        if self._counts("once", ctx.call_id):
            self._kept[ctx.call_id] += 1
        self._point()

    def asked(self, agent: str, request: ModelRequest) -> None:
        self._point()
        said = heard(agent, request)
        if self._counts("request", *said):
            self._requests[said] += 1
        self._point()

    def _counts(self, *what: str) -> bool:
        """Whether this is no repetition of what a process that is dead may have taken into its grave."""
        me, before = self.scheduler.me().process, self._done.get(what)
        self._done[what] = me
        self.counts[what[0]] += 1
        return before is None or before.alive

    def _items(self, run_id: str) -> Sequence[Any]:
        return self.db.runs[run_id].items

    # --- what goes wrong -----------------------------------------------------------------------

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self.dice.random() < rate

    def _point(self) -> None:
        """Between any two things that a process does."""
        self.scheduler.check()
        if self._happens(self.weather.death):
            self.counts["deaths"] += 1
            self.scheduler.kill(self.scheduler.me().process)
            raise Killed
        if self._happens(self.weather.give_way):
            self.scheduler.give_way()

    def _around(self, statement: Statement) -> Any:
        self._point()
        result = self.db.run(statement)
        self._point()
        return result

    def notify_readers(self, action_id: str) -> None:
        """`WakeUps`."""

    def publish(self, wakeup: WakeUp) -> None:
        """`WakeUps`."""
        self._point()
        if not self._happens(self.weather.lost):
            self._wakeups += [wakeup] * (2 if self._happens(self.weather.repeated) else 1)

    # --- what happens --------------------------------------------------------------------------

    def _step(self, run_id: str) -> bool:
        """The next thing, of those that can happen. Whether the run has ended, and everybody knows."""
        row, ready = self.db.runs.get(run_id), self.scheduler.ready(self.db.now)
        waiting = [action for action in self.db.actions.values() if action.status == "pending"]
        if waiting and self._happens(self.weather.eager):
            self._answer(self.dice.choice(waiting).record().action)
        elif ready:
            self.scheduler.resume(self.dice.choice(ready))
        elif self._wakeups:
            wakeup = self._wakeups.pop(self.dice.randrange(len(self._wakeups)))
            self._spawn("drive", lambda: drive(self._services(), wakeup))
        elif row is None:
            self._spawn("start", lambda: self._start(run_id))
        elif row.ended:
            return True
        elif row.status == "parked":
            # In a calm they are answered in their order, else in any.
            self._answer((waiting[0] if self.weather is CALM else self.dice.choice(waiting)).record().action)
        else:
            self.db.now += timedelta(seconds=TUNING.lease_seconds + 1)
            self._spawn("sweep", lambda: sweep(self._services()))
        self.scheduler.bury()
        return False

    def _answer(self, action: PendingAction) -> None:
        body = json.dumps({"v": 1, "kind": "submit", "action_id": action.id, **answer_to(action)})
        for _ in range(2 if self._happens(self.weather.repeated) else 1):
            self._spawn("judge", lambda: self._judge(body))

    def _judge(self, body: str) -> None:
        receipt = receive(self._services(), body, channel="queue")
        if receipt.status not in ("accepted", "duplicate", "late"):
            self.findings.append(f"an answer was {receipt.status}: {body} {receipt.issues}")

    def _start(self, run_id: str) -> None:
        limits = Limits(turns=None)
        started = runs.start(
            self.db, run_id=run_id, thread_id="thread", agent=self._root, text="go", limits=limits, enqueue=False
        )
        if started.due:
            self.publish(WakeUp(run_id=run_id, due="turn"))

    def _spawn(self, name: str, work: Callable[[], object]) -> None:
        if not self._process.alive:
            self._process = Process("worker")

        def guarded() -> None:
            try:
                work()
            except Killed:
                pass
            except BaseException as error:
                self.findings.append(f"{name} raised {error!r}")

        self.scheduler.spawn(self._process, name, guarded)

    def _services(self) -> Services:
        parts: dict[str, Any] = {
            "store": MemoryStore(self.db),
            "parking": _NoIndex(),
            "events": _NoEvents(),
            "wakeups": self,
        }
        loop, leases = cast(Any, Loop(self.scheduler)), cast(Any, _Leases(self.scheduler))
        return Services(**parts, tuning=TUNING, app=self._app, loop=loop, leases=leases)


class _NoIndex:
    """`Parking` of a Redis that forgets everything at once."""

    def put(self, records: Sequence[PendingAction], expiry: float = 0) -> None: ...

    def get(self, action_id: str) -> None: ...

    def drop(self, ids: Sequence[str]) -> None: ...

    def intact(self) -> bool:
        return True

    def mark(self) -> None: ...


class _NoEvents:
    def publish(self, thread_id: str, *events: Any, **parking: Any) -> None: ...


class _Leases:
    """`LeaseKeeper`. Nobody renews: time does not move while anybody works."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @contextmanager
    def hold(self, run_id: str, token: str) -> Iterator[Lease]:
        self._scheduler.me().token = token
        yield Lease(run_id, token)


def compared(tree: int) -> tuple[list[str], Counter[str]]:
    """Run the tree of a seed undisturbed and disturbed: how the second differs, and what was tried."""
    calm = Trial(tree, CALM, random.Random(f"calm {tree}"))
    undisturbed = calm.run()
    dice = random.Random(f"weather {tree}")
    rough = Trial(tree, Weather.drawn(dice), dice)
    disturbed = rough.run()
    findings = [*calm.findings, *rough.findings, *undisturbed.differences(disturbed)]
    return findings, rough.counts + Counter({f"runs {disturbed.end[0]}": 1})


def one_of_many(mutation: str | None, tree: int) -> tuple[int, list[str], Counter[str]]:
    """`compared` in a process that does nothing else, with a rule taken away if `mutation` names one."""
    with stage(), MUTATIONS[mutation]() if mutation else nullcontext():
        return tree, *compared(tree)
