"""A tree on PostgreSQL and Valkey, with real threads: one run, whose process dies at any of its writes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from adjourn import Context, ModelRequest
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import ENDED
from tests.blocks.account import Account, end_of, heard, items_of, named, names_of
from tests.blocks.trees import answer_to, app_of
from tests.cases.crashes import Killed, Outage
from tests.world import World

WRITES: Final = 4
"""A process dies within so many writes, or not before something else is done."""


class RealTrial:
    """One run of the tree of a seed."""

    def __init__(self, tree: int, world: World) -> None:
        self._dice = random.Random(f"real {tree}")
        app, self._root = app_of(tree, self)
        self._world = world
        world.deploy(app)
        self._outage = Outage()
        self._outage.watch(world)
        self._lock = threading.Lock()
        self._generation = 0
        """How many processes have died."""
        self._done: dict[tuple[str, ...], int] = {}
        """What was done outside of the run, and by which process last."""
        self._effects: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str]] = Counter()

    @property
    def deaths(self) -> int:
        return self._generation

    def run(self) -> Account:
        """From the start to the end."""
        world = self._world
        run_id = world.enqueue(agent=self._root, limits=Limits(turns=None)).run_id
        self._survive(world.settle)
        while (run := world.run(run_id)).status not in ENDED:
            action = self._dice.choice(world.pending(run_id))
            self._survive(partial(world.answer, action, **answer_to(action)))
        items = world.items(run_id)
        names = names_of(items)
        effects = Counter({named(call_id, names): times for call_id, times in self._effects.items()})
        kept = Counter({named(call_id, names): times for call_id, times in self._kept.items()})
        return Account(end_of(run), items_of(items), effects, kept, self._requests)

    def _survive(self, work: Callable[[], object]) -> None:
        """Do something in which the process may die, and another take over."""
        die = self._dice.choice([self._outage.before_write, self._outage.after_write])
        die(self._dice.randint(1, WRITES))
        try:
            work()
        except Killed:
            self._generation += 1
            self._world.wakeups.waiting.clear()
            self._outage.restart(self._world)

    # --- the scene -----------------------------------------------------------------------------

    def effect(self, ctx: Context, tool: str) -> None:
        with self._lock:
            self._effects[ctx.call_id] += self._counts("effect", ctx.call_id)

    def once(self, ctx: Context) -> None:
        with self._lock:
            self._kept[ctx.call_id] += self._counts("once", ctx.call_id)

    def asked(self, agent: str, request: ModelRequest) -> None:
        with self._lock:
            said = heard(agent, request)
            self._requests[said] += self._counts("request", *said)

    def _counts(self, *what: str) -> bool:
        """Whether this is no repetition of what a process that is dead may have taken into its grave."""
        before = self._done.get(what)
        self._done[what] = self._generation
        return before is None or before == self._generation
