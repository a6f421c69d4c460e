"""Everybody outside: who starts runs, answers, changes their mind, and sends nonsense.

Each of their doings is a task of a client process, which may die in the middle of it. What they
were told they remember, and hold the system to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from adjourn.schemas.errors import StoreUnavailableError, ThreadBusyError
from adjourn.schemas.records.ids import new_run_id
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.memory import runs
from adjourn.store.memory.tables import ActionRow
from tests.simulation.bus import Sent
from tests.simulation.tools import AGENT, message, plan

if TYPE_CHECKING:
    from tests.simulation.world import World


class People:
    """All of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self.meant = 0
        """How many runs somebody wanted to start."""
        self.sent: list[Sent] = []
        self.announced: list[str] = []
        """Ids of actions that tools have told, perhaps before they were open."""
        self.cancelled: set[str] = set()
        """Runs that somebody wanted to end."""
        self.starts: dict[str, Callable[[], None]] = {}
        """Starts that have not returned yet, by run."""
        self.started: dict[str, str] = {}
        """Runs whose start returned, with their messages."""

    def new_value(self) -> int:
        """A number that occurs nowhere else."""
        self._number += 1
        return self._number

    # --- runs ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Say something on a thread, whether it is busy or not."""
        world, dice = self._world, self._world.dice
        self.meant += 1
        run_id = new_run_id()
        thread_id = f"thread-{dice.randrange(world.profile.threads)}"
        text = message(run_id, plan(dice, world.profile.tools, self.new_value))
        limits = Limits(turns=dice.choice([1, 2])) if dice.random() < 0.1 else None
        when_busy = dice.choice(["refuse", *["enqueue"] * 8, "supersede"])

        def try_to() -> None:
            try:
                started = runs.start(
                    world.db,
                    run_id=run_id,
                    thread_id=thread_id,
                    agent=AGENT,
                    text=text,
                    limits=limits,
                    enqueue=when_busy == "enqueue",
                )
            except ThreadBusyError as busy:
                if when_busy == "supersede":
                    self._cancel(busy.run_id)
                    try_to()
                else:
                    self.starts.pop(run_id, None)
                return
            self.started[run_id] = text
            self.starts.pop(run_id, None)
            if started.due:
                world.bus.publish(WakeUp(run_id=run_id, due="turn"))

        self.starts[run_id] = try_to
        self._do("start", try_to)

    def start_again(self) -> None:
        """Whoever has not heard whether a run was started says so again, under the same id."""
        for try_to in list(self.starts.values()):
            self._do("start again", try_to)

    def cancel(self) -> None:
        run_id = self._world.dice.choice([row.id for row in self._world.db.runs.values() if not row.ended])
        self._do("cancel", lambda: self._cancel(run_id))

    def _cancel(self, run_id: str) -> None:
        world = self._world
        self.cancelled.add(run_id)
        done = runs.cancel(world.db, run_id, reason="enough", by="ann")
        if done is not None and done.changed:
            world.index.drop(done.closed_action_ids)
        if done is not None and done.next_run_id is not None:
            world.bus.publish(WakeUp(run_id=done.next_run_id, due="turn"))

    def _do(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            with suppress(StoreUnavailableError):  # they were told, and may try again
                work()

        self._world.spawn(self._world.new_process("client"), name, guarded)

    # --- answers ---------------------------------------------------------------------------------

    def answer(self) -> None:
        """Answer something: what waits, what has ended, what is only announced, what does not exist."""
        dice, rows = self._world.dice, list(self._world.db.actions.values())
        waiting = [row for row in rows if row.status == "pending"]
        if self.announced and dice.random() < 0.3:
            self._send(dice.choice(self.announced), "submit", {"value": self.new_value()})
        elif self.sent and dice.random() < 0.05:
            self._world.bus.send(dice.choice(self.sent))
        elif waiting and dice.random() < 0.95:
            self._answer_in_some_way(dice.choice(waiting))
        elif rows:
            self._answer_in_some_way(dice.choice(rows))
        elif dice.random() < 0.1:
            self._send("act_made_up", "submit", {"value": self.new_value()})

    def overtake(self, action_id: str) -> Sent:
        """Answer a wait that is only announced."""
        return self._sent(action_id, "submit", {"value": self.new_value()})

    def answer_all(self) -> None:
        """Answer properly whatever waits."""
        for row in [row for row in self._world.db.actions.values() if row.status == "pending"]:
            self._send(row.id, "submit", self._fitting(row), by="ann")

    def ask_again(self) -> None:
        """Whoever has heard nothing sends their answer again."""
        for sent in self.sent:
            if not sent.receipts:
                self._world.bus.send(sent)

    def _answer_in_some_way(self, row: ActionRow) -> None:
        dice = self._world.dice
        by = "ann" if dice.random() < 0.8 else dice.choice([None, "bob"])
        to = row.asked.request_id if row.asked.request_id and dice.random() < 0.5 else row.id
        match dice.choices(["fit", "wrong", "cancel", "fail", "short", "no"], [12, 2, 2, 2, 2, 1])[0]:
            case "fit":
                self._send(to, "submit", self._fitting(row), by=by)
            case "wrong":
                self._send(to, "submit", dice.choice([None, {}, {"value": "7"}, {"value": 7, "more": 1}]), by=by)
            case "cancel":
                self._send(to, "cancel", None, by=by, reason="no")
            case "fail":
                self._send(to, "fail", None, by=by, message="cannot")
            case "short":
                self._short(to, {"id": to, "ok": True, "data": self._fitting(row)}, by)
            case "no":
                self._short(to, {"id": to, "ok": False, "reason": "no"}, by)

    def _fitting(self, row: ActionRow) -> dict[str, Any]:
        if row.asked.kind != "outcome":
            return {"value": self.new_value()}
        if self._world.dice.random() < 0.5:
            return {"happened": False}
        careful = row.asked.origin.tool == "careful"
        return {"happened": True, "output": self.new_value() if careful else [self.new_value()]}

    def _send(self, to: str, kind: str, data: Any, *, by: str | None = "ann", **said: str) -> None:
        self._world.bus.send(self._sent(to, kind, data, by=by, **said))

    def _sent(self, to: str, kind: str, data: Any, *, by: str | None = "ann", **said: str) -> Sent:
        body: dict[str, Any] = {"v": 1, "action_id": to, "kind": kind, **said}
        if kind == "submit":
            body["data"] = data
        if self._world.dice.random() < 0.8:
            body["answer_id"] = f"answer-{self.new_value()}"
        return self._remembered(Sent(to, json.dumps(body), kind, data, by))

    def _short(self, to: str, body: dict[str, Any], by: str | None) -> None:
        kind = "submit" if body["ok"] else "cancel"
        self._world.bus.send(self._remembered(Sent(to, json.dumps(body), kind, body.get("data"), by)))

    def _remembered(self, sent: Sent) -> Sent:
        self.sent.append(sent)
        return sent
