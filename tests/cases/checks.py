"""What every case asserts besides its own point.

The strict provider never refused, and would not refuse the next message on the thread; nothing of a
run that has ended is left open or unacknowledged; and whatever still comes for it changes nothing.
"""

from __future__ import annotations

import json
from typing import Any

from adjourn.schemas.records.actions import ActionState
from adjourn.schemas.records.credentials import sign
from adjourn.schemas.records.items import FaultItem, Item, SuspensionItem
from adjourn.schemas.records.messages import ModelRequest, UserTurn
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.threads import conversations as threads
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.engine.conversation import conversation
from adjourn.tasks.host.services import Door
from adjourn.tasks.models.strict import strict_problem
from tests.world import World

Facts = tuple[Run | None, tuple[Item, ...], tuple[ActionState | None, ...]]
LATE_ANSWERS: tuple[dict[str, Any], ...] = (
    {"kind": "submit", "data": {"approved": True}},
    {"kind": "cancel", "reason": "too late"},
    {"kind": "fail", "message": "too late"},
)


def facts(db: Database, run_id: str) -> Facts:
    """All that is recorded of a run."""
    return runs.get(db, run_id), runs.items(db, run_id), tuple(actions.get(db, id) for id in action_ids(db, run_id))


def action_ids(db: Database, run_id: str) -> list[str]:
    """Every action that the run ever opened."""
    return [item.body.action_id for item in runs.items(db, run_id) if isinstance(item.body, SuspensionItem)]


def check_never_refused(db: Database, run: Run) -> None:
    """No request of this run was refused, and neither would be the next one on its thread."""
    assert run.error is None or run.error.type != "ModelRequestError", run.error
    assert not [item for item in runs.items(db, run.id) if isinstance(item.body, FaultItem)]
    _, items, _ = threads.snapshot(db, run.thread_id)
    next_request = ModelRequest(instructions="", conversation=(*conversation(items), UserTurn(text="and?")))
    assert strict_problem(next_request) is None


def check_nothing_open(db: Database, run: Run) -> None:
    """An ended run has one end, and waits for nothing."""
    assert actions.pending(db, run_id=run.id) == []
    kinds = [item.body.kind for item in runs.items(db, run.id)]
    assert kinds.count("end") == 1
    assert kinds[-1] == "end", "something was recorded after the end"
    assert [item.seq for item in runs.items(db, run.id)] == list(range(1, len(kinds) + 1))


def answer_again(door: Door, db: Database, run_id: str) -> None:
    """Answer all that an ended run ever asked, in every way; each is told that it is too late.

    What it waited for another run for was nobody's to answer, and is not now.
    """
    for action_id in action_ids(db, run_id):
        state = actions.get(db, action_id)
        assert state is not None
        proof = {"v": 1, "action_id": action_id, **_proof(db, state)}
        told = ("late", "duplicate") if state.child is None else ("forbidden",)
        for late in LATE_ANSWERS if state.child is None else LATE_ANSWERS[:1]:
            receipt = receive(door, json.dumps({**proof, **late}), channel="test")
            assert receipt.status in told, receipt


def _proof(db: Database, state: ActionState) -> dict[str, str]:
    """The credential of one who may answer, where not everybody may: others are told that, and not that it is late."""
    action, allowed = state.action, state.action.answerers
    return {"credential": sign(allowed[0], db.signing_key(), scope=action.id)} if allowed else {}


def check(w: World) -> None:
    """All of it, for every run of a world's database. Moves the clock: it comes last."""
    every = runs.list(w.db)
    for run in every:
        check_never_refused(w.db, run)
        assert run.status != "running", f"run {run.id} is held by nobody and was never given back"
    ended = [run for run in every if run.ended]
    before = {run.id: facts(w.db, run.id) for run in ended}
    for run in ended:
        check_nothing_open(w.db, run)
        answer_again(w.services, w.db, run.id)
        for due in ("turn", "reentry", "suspect"):
            w.wakeups.publish(WakeUp(run_id=run.id, due=due))
    w.settle()
    w.advance(3600 * 24 * 365)
    w.sweep()
    assert {run.id: facts(w.db, run.id) for run in ended} == before
