"""A deployment in one thread: workers, sweeps, people and a bus, all of one seed, over days of virtual time.

First everything that the seed's profile allows goes wrong, for a number of steps. Then nothing
does any more, and whatever is left is driven to its end; the witness says whether it got there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from adjourn import Context
from adjourn.schemas.errors import ModelRequestError, StoreUnavailableError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.memory import runs
from adjourn.store.memory.store import MemoryStore
from adjourn.store.memory.tables import Memory, Statement
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.leases import Lease
from adjourn.tasks.host.services import Services
from adjourn.tasks.lifecycle.sweep import sweep
from tests.simulation.bus import Bus, Events, Index, Sent
from tests.simulation.people import People
from tests.simulation.profile import Profile
from tests.simulation.scheduler import Killed, Loop, Process, Scheduler, Task
from tests.simulation.stage import simulating
from tests.simulation.tools import APP, OUT_OF_ORDER
from tests.simulation.witness import Witness

GO_ON: Final = 0.85
"""How likely a task goes on before anything new happens."""
LONGEST_STEP: Final = 0.2
"""Seconds that pass between two steps."""
LEAPS: Final = (1.0, 5.0, 20.0, 40.0, 70.0, 400.0, 700.0, 5000.0)
"""Seconds. Leases, wake-ups, deadlines and all of them together run out in these."""
LONGEST_STANDSTILL: Final = 300.0
WRONG_CLOCK: Final = timedelta(hours=1)
LONGEST_STEP_BACK: Final = 2.0
CALM_GIVE_WAY: Final = 0.05
OVERTAKEN: Final = 0.5
LETHAL: Final = 0.8
DRAIN_ROUNDS: Final = 300
"""So often may time have to pass, and a sweep have to look, until everything has come to its end."""


class World:
    """Everything there is."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.dice = random.Random(seed)
        self.profile = Profile.drawn(self.dice)
        self.tuning = Tuning()
        self.db = Memory(self.tuning)
        self.db.around = self._around
        self.scheduler = Scheduler()
        self.bus = Bus(self)
        self.index = Index(self)
        self.people = People(self)
        self.witness = Witness(self)
        self.calm = False
        """Nothing goes wrong any more."""
        self.trace: list[str] | None = [] if traced else None
        self._names = 0
        self._services: dict[str, Services] = {}
        self._workers = [self.new_process("worker") for _ in range(self.profile.workers)]
        self._children: list[Process] = []

    def run(self) -> None:
        """From the first step to the last look."""
        with simulating(self):
            try:
                for _ in range(self.profile.steps):
                    self._step()
                    if self.witness.found:
                        return
                    if not self.scheduler.tasks and self._all_started() and self._over():
                        break
                self._drain()
                if not self.witness.found:
                    self.witness.close()
            finally:
                for task in self.scheduler.tasks:
                    self.scheduler.kill(task.process)
                self.scheduler.bury()

    # --- what the core and the tools come to -------------------------------------------------------

    def clock(self) -> datetime:
        """The time, as the process at work has it."""
        task = self.scheduler.current
        return self.db.now + (task.process.skew if task else timedelta())

    def happens(self, rate: float) -> bool:
        """Whether a thing that goes wrong at this rate does so now."""
        return rate > 0 and not self.calm and self.dice.random() < rate

    def point(self, what: str) -> None:
        """A place where a process may die or stand still, and others may come between."""
        task, profile = self.scheduler.me(), self.profile
        self.scheduler.check()
        if self.trace is not None:
            self.say(what)
        fate = self.dice.random()
        if self.calm or fate >= profile.crash + profile.freeze + profile.stall:
            pass
        elif fate < profile.crash:
            self.kill(task.process)
            raise Killed
        else:
            self._stand_still(task, fate < profile.crash + profile.freeze)
        if self.dice.random() < (CALM_GIVE_WAY if self.calm else profile.give_way):
            self.scheduler.give_way()

    def _stand_still(self, task: Task, whole_process: bool) -> None:
        """Be stopped by somebody, and go on later as if nothing had happened."""
        self.say("freezes" if whole_process else "stalls")
        until = self._later(LONGEST_STANDSTILL)
        if whole_process:
            task.process.frozen_until = until
        else:
            task.sleeps_until = until
        self.scheduler.give_way()

    def run_named(self, name: str, text: str) -> str:
        """The id of the run that a model is told of: it is named by its id, or has this message."""
        if name in self.db.runs:
            return name
        return next(row.id for row in self.db.runs.values() if row.parent_run_id and row.message == text)

    def effect(self, ctx: Context) -> int:
        """What a tool does to the rest of the world."""
        self.point("effect")
        self.witness.effect(ctx)
        self.point("effect is there")
        return int(ctx.input.number)

    def memo(self, ctx: Context, key: str) -> str:
        """What a tool does once."""
        self.point(f"once {key}")
        self.witness.memo(ctx, key)
        return f"{key} {ctx.input.number}"

    def announce(self, action_id: str) -> None:
        """A tool tells somebody the id of a wait before it opens it."""
        self.people.announced.append(action_id)
        if self.dice.random() < OVERTAKEN:
            overtaking = self._judge(self.people.overtake(action_id))
            self.scheduler.wait_for(lambda: overtaking.done)
        self.point("announced")

    def model(self, run_id: str, step: int, messages: int) -> None:
        """A provider is asked for a response."""
        self.point(f"model asked for {step}")
        self.witness.model(run_id, step, messages)
        if self.happens(self.profile.model_fails):
            raise ModelRequestError("scripted", OUT_OF_ORDER, retryable=True)
        self.point("model has answered")

    def lethal(self) -> None:
        """A tool does something that its process does not survive; not every time."""
        self.point("before the worst")
        if self.dice.random() < LETHAL:
            self.kill(self.scheduler.me().process)
            raise Killed

    def say(self, what: str) -> None:
        """Write down what happens, where somebody wants to read it."""
        if self.trace is not None:
            task = self.scheduler.current
            who = f"{task.process.name} {task.name}" if task else ""
            self.trace.append(f"{self.db.now:%d %H:%M:%S.%f} {who:28} {what}")

    def _around(self, statement: Statement) -> Any:
        self.point(statement.name)
        if self.happens(self.profile.unavailable):
            if self.dice.random() < 0.5:
                self.witness.run(statement)
            self.say("the connection breaks")
            raise StoreUnavailableError("PostgreSQL", "the connection broke")
        result = self.witness.run(statement)
        if statement.repeatable and self.happens(self.profile.sent_again):
            self.point(f"{statement.name} is sent again")
            result = self.witness.run(statement)
        self.point(f"{statement.name} is done")
        return result

    # --- processes -----------------------------------------------------------------------------------

    def new_process(self, kind: str) -> Process:
        self._names += 1
        skew = self.dice.choice([-WRONG_CLOCK, WRONG_CLOCK]) if self.profile.skews else timedelta()
        return Process(f"{kind}-{self._names}", skew)

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        """A task that ends with its process, or with its work. Any error of it is a finding."""

        def guarded() -> None:
            try:
                work()
            except Killed:
                pass
            except BaseException as error:
                self.witness.says(f"{name} raised {error!r}")

        return self.scheduler.spawn(process, name, guarded)

    def kill(self, process: Process) -> None:
        self.say("dies")
        self.witness.counts["kills"] += 1
        self.scheduler.kill(process)

    def services(self, process: Process) -> Services:
        """What the tasks of a process work with."""
        if process.name not in self._services:
            self._services[process.name] = self._made_services(process)
        return self._services[process.name]

    def _made_services(self, process: Process) -> Services:
        parts: dict[str, Any] = {
            "store": MemoryStore(self.db),
            "parking": self.index,
            "events": Events(self.index),
            "wakeups": self.bus,
        }
        leases: Any = _Leases(self, process)
        return Services(**parts, tuning=self.tuning, app=APP, loop=cast(Any, Loop(self.scheduler)), leases=leases)

    def _worker(self) -> Process:
        """One of those that live; one that died has been started again by now."""
        place = self.dice.randrange(len(self._workers))
        if not self._workers[place].alive or self._workers[place].stopping:
            self._workers[place] = self.new_process("worker")
        return self._workers[place]

    # --- what happens next -----------------------------------------------------------------------------

    def _step(self) -> None:
        self.db.now = self._later(LONGEST_STEP)
        if self.happens(self.profile.clock_back):
            self.db.now -= timedelta(seconds=self.dice.uniform(0, LONGEST_STEP_BACK))
        ready = self.scheduler.ready(self.db.now)
        if ready and self.dice.random() < GO_ON:
            self.scheduler.resume(self.dice.choice(ready))
        else:
            events = self._events()
            [event] = self.dice.choices([*events], [*events.values()])
            event()
        self.scheduler.bury()

    def _events(self) -> dict[Callable[[], None], float]:
        """What can happen, and how likely each is against the others."""
        people, profile = self.people, self.profile
        waiting = any(row.status == "pending" for row in self.db.actions.values())
        going = any(not row.ended for row in self.db.runs.values())
        return {
            self._deliver: 6.0 if self.bus.messages else 0.0,
            people.start: 0.0 if self._all_started() else 3.0,
            people.start_again: 0.3,
            people.answer: 4.0 if waiting or people.announced else 0.1,
            people.ask_again: 0.3,
            people.cancel: 0.03 if going else 0.0,
            self._sweep: 1.0,
            self._renew: 1.5 if profile.renews else 0.0,
            self._leap: 0.5 * (1 + profile.haste),
            self.index.flush: 0.1,
            self._stop: 0.1,
        }

    def _deliver(self) -> None:
        """A message arrives."""
        message = self.bus.take()
        if isinstance(message, Sent):
            self._judge(message)
        elif message is not None and message.due == "suspect":
            self._drive_apart(message)
        elif message is not None:
            worker = self._worker()
            self.spawn(worker, "drive", lambda: self._drive(worker, message))

    def _drive(self, process: Process, wakeup: WakeUp) -> None:
        try:
            drive(self.services(process), wakeup)
        except StoreUnavailableError:
            self.say("leaves the run to the sweep")
        except Killed:
            if self.dice.random() < 0.5:
                self.bus.back(wakeup)
            raise

    def _drive_apart(self, wakeup: WakeUp) -> None:
        """A run that killed its worker gets a process of its own; whoever started that sees how it ends."""
        parent, child = self._worker(), self.new_process("child")
        self._children.append(child)

        def look_after() -> None:
            self.scheduler.wait_for(lambda: task.done)
            if child.alive:
                return
            wakeups = runs.record_death(
                self.db,
                wakeup.run_id,
            )
            for each in wakeups:
                self.bus.publish(each)

        task = self.spawn(child, "drive apart", lambda: self._drive(child, wakeup))
        self.spawn(parent, "look after", _unavailable_is_no_harm(look_after))

    def _judge(self, sent: Sent) -> Task:
        """The resume consumer: acknowledges an answer when it has been judged, and not before."""
        worker = self._worker()

        def judge() -> None:
            try:
                receipt = receive(self.services(worker), sent.body, channel="queue", answered_by=sent.by)
            except StoreUnavailableError:
                self.bus.back(sent)
            except Killed:
                self.bus.back(sent)
                raise
            else:
                self.witness.told(sent, receipt)

        return self.spawn(worker, "judge", judge)

    def _sweep(self) -> None:
        worker = self._worker()

        def search() -> None:
            self.witness.counts["sweeps"] += 1
            self.say(f"swept: {sweep(self.services(worker)).found()}")

        self.spawn(worker, "sweep", _unavailable_is_no_harm(search))

    def _renew(self) -> None:
        """Every process that holds leases renews them, and is told which it has lost."""
        for process in [*self._workers, *self._children]:
            frozen = process.frozen_until is not None and process.frozen_until > self.db.now
            if process.alive and (process.leases or process.left) and not frozen:
                self.spawn(process, "renew", _unavailable_is_no_harm(partial(self._renew_of, process)))

    def _renew_of(self, process: Process) -> None:
        leases = list(process.leases.values())
        held = [(lease.run_id, lease.token) for lease in leases]
        kept = runs.renew(self.db, held)
        for lease in leases:
            if lease.run_id not in kept:
                lease.lose()
        runs.put_back(self.db, [(lease.run_id, lease.token) for lease in process.left])
        process.left.clear()

    def _stop(self) -> None:
        """A worker is stopped in order: it gives its runs back, and what it still does changes nothing."""
        worker = self._worker()
        worker.stopping = True

        def give_back() -> None:
            leases = list(worker.leases.values())
            held = [(lease.run_id, lease.token) for lease in leases]
            for wakeup in runs.put_back(self.db, held):
                self.bus.publish(wakeup)
            for lease in leases:
                lease.lose()

        self.spawn(worker, "stop", _unavailable_is_no_harm(give_back))

    def _leap(self) -> None:
        self.db.now = self._later(self.dice.choice(LEAPS))
        self.say("time has passed")

    def _later(self, most: float) -> datetime:
        return self.db.now + timedelta(seconds=self.dice.uniform(0, most))

    # --- the end ---------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Nothing goes wrong any more. Everything has to come to its end, whatever state it is in."""
        self.calm = True
        self.say("--- from here on nothing goes wrong")
        for _ in range(DRAIN_ROUNDS):
            if self.witness.found:
                return
            self.people.start_again()
            self.people.ask_again()
            self._settle()
            self._sweep()
            self._settle()
            if not self.bus.messages and not self.scheduler.tasks:
                if self._over() and not self._kept():
                    return
                if self._waiting() and not self._kept():
                    self.people.answer_all()
                    self._settle()
                    continue
            self.db.now = max(self.db.now + timedelta(seconds=1), self._next_time())
        moving = [f"{row.id} is {row.status} ({row.due})" for row in self.db.runs.values() if not row.ended]
        self.witness.says(f"does not come to its end: {', '.join(moving)}, {len(self.scheduler.tasks)} tasks")

    def _settle(self) -> None:
        """Deliver and go on until nobody can do anything before time moves."""
        self.bus.hurry()
        while True:
            self.db.now += timedelta(milliseconds=1)
            self.scheduler.bury()
            ready = self.scheduler.ready(self.db.now)
            if ready:
                self.scheduler.resume(self.dice.choice(ready))
            elif self.bus.messages:
                self._deliver()
            else:
                return
            if self.witness.found:
                return

    def _all_started(self) -> bool:
        return self.people.meant >= self.profile.runs

    def _next_time(self) -> datetime:
        """When something is due, runs out or wakes, at the earliest."""
        times = [row.wakeup_at for row in self.db.runs.values() if row.status == "queued"]
        times += [row.lease_until for row in self.db.runs.values() if row.lease_until is not None]
        wakeup_retry = timedelta(seconds=self.tuning.wakeup_retry_seconds)
        times += [row.updated_at + wakeup_retry for row in self.db.runs.values() if row.unpropagated]
        for task in self.scheduler.tasks:
            times += [at for at in (task.sleeps_until, task.process.frozen_until) if at is not None]
        return min((at for at in times if at > self.db.now), default=self.db.now)

    def _over(self) -> bool:
        return all(row.ended and not row.unpropagated for row in self.db.runs.values())

    def _kept(self) -> bool:
        """Whether an early answer can be judged and was not: the next sweep does."""
        return any(early.action_id in self.db.actions for early in self.db.early.values())

    def _waiting(self) -> bool:
        """Whether every run that has not ended waits for an answer that can come, or behind one that does."""
        waiting = {
            row.run_id for row in self.db.actions.values() if row.status == "pending" and not row.overdue(self.db.now)
        }
        if any(row.unpropagated for row in self.db.runs.values()):
            return False
        going = [row for row in self.db.runs.values() if not row.ended]
        return all(row.behind or (row.status == "parked" and row.id in waiting) for row in going)


class _Leases:
    """`LeaseKeeper` of a process. The world renews."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    @contextmanager
    def hold(self, run_id: str, token: str) -> Iterator[Lease]:
        lease = Lease(run_id, token)
        self._world.scheduler.me().token = token
        self._process.leases[token] = lease
        try:
            yield lease
        except StoreUnavailableError:
            self._process.left.append(lease)
            raise
        finally:
            self._process.leases.pop(token, None)


def _unavailable_is_no_harm(work: Callable[[], None]) -> Callable[[], None]:
    """For what is done again anyhow, by somebody."""

    def guarded() -> None:
        with suppress(StoreUnavailableError):
            work()

    return guarded
