"""A retry of a tree meets what follows from the end of its runs: closing, notifying and ending, each halfway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from adjourn import App
from adjourn.store.faulty import Act
from adjourn.store.postgres.runs import children, endings, retries
from adjourn.store.postgres.runs.retries import RETRY
from adjourn.tasks.lifecycle.retry import FIXABLE, retry
from tests.families import children_of
from tests.flow.broken_trees import (
    Stricter,
    fail_left,
    gate_of,
    pair,
    statuses,
    straight,
    totals,
)
from tests.flow.conftest import Plant
from tests.flow.retry_statements import DONE, retry_params
from tests.store.steps import slow_transaction
from tests.world import Counters, World


def failed_and_cut_off(plant: Plant, cut_off: Callable[[str], None]) -> tuple[World, str, str]:
    """A root that failed by its left child, in a process that died right after. Returns the right child too."""
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    cut_off(run_id)
    w, right = fail_left(w, run_id, fx)
    return w, run_id, right.origin.run_id


def test_who_closes_the_children_of_a_failed_root_does_not_close_one_that_is_revived_meanwhile(
    plant: Plant, monkeypatch: Any
) -> None:
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    done = []

    def retry_meanwhile(act: Act, found: Any) -> None:
        if act.name == "children.orphans" and act.args[0] == run_id and not done:
            done.append(found)
            retry(w.services, run_id)

    w.store.after = retry_meanwhile
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    right = gate_of(w, run_id, "right")
    w.answer(gate_of(w, run_id, "left"), {"ok": True}, settle=False)
    w.settle_one()  # the child fails, and with it the root by its next pass
    while not done:
        w.settle_one()
    w.deploy(App(blocks=[pair(fx)]))
    w.settle()
    assert len(done[0]) == 1
    assert w.answer(right, {"ok": True}).status == "accepted"
    assert w.run(run_id).output == "left True + right True"
    assert totals(w.run(run_id)) == totals(straight(plant, pair, "left", "right"))


def test_closing_an_orphan_that_waits_for_the_retry_does_nothing(
    plant: Plant, cut_off: Any, monkeypatch: Any, database_url: str
) -> None:
    w, run_id, child = failed_and_cut_off(plant, cut_off)
    ((orphan, revision),) = children.orphans(w.db, run_id, 10)
    assert orphan == child
    with slow_transaction(w.db, database_url) as slow:
        assert slow.run(RETRY, retry_params(run_id)).retried
        closing = slow.then(lambda: endings.close_orphan(w.db, child, revision))
        slow.commit()
        assert not closing.result().changed  # type: ignore[union-attr]
    assert statuses(w, run_id) == {"left": "queued", "right": "parked"}


def test_the_end_of_a_child_that_a_retry_revives_meanwhile_is_not_told(
    plant: Plant, cut_off: Any, monkeypatch: Any, database_url: str
) -> None:
    """Right was closed with its parent, and whoever closed it tells the parent while a retry revives both."""
    w, run_id, child = failed_and_cut_off(plant, cut_off)
    ((_, revision),) = children.orphans(w.db, run_id, 10)
    closed = endings.close_orphan(w.db, child, revision)
    assert closed is not None
    assert closed.unpropagated
    with slow_transaction(w.db, database_url) as slow:
        assert slow.run(RETRY, retry_params(run_id)).retried
        telling = slow.then(lambda: children.notify_parent(w.db, child))
        slow.commit()
        assert telling.result() is None
    assert statuses(w, run_id) == {"left": "queued", "right": "queued"}
    monkeypatch.undo()
    w.advance(1000)
    w.sweep()
    w.settle()
    w.answer(gate_of(w, run_id, "right"), {"ok": True})
    assert w.run(run_id).output == "left True + right True"
    assert len(children_of(w, run_id)) == 2


@pytest.mark.parametrize("change", ["ends", "is told of"])
def test_a_retry_that_waits_for_a_change_of_its_tree_looks_again(
    plant: Plant, cut_off: Any, monkeypatch: Any, database_url: str, change: str
) -> None:
    """Right completes, or its parent is notified of that, while the retry that has not seen it waits for a lock."""
    w, run_id, child = failed_and_cut_off(plant, cut_off)
    changes: list[tuple[sa.TextClause, dict[str, Any]]] = [
        (DONE, {"id": child}),
        (children.NOTIFY_PARENT, {"run_id": child, "wakeup_retry_seconds": 30}),
    ]
    if change == "is told of":
        w.db.execute(*changes.pop(0))
    with slow_transaction(w.db, database_url) as slow:
        slow.run(*changes[0])
        again = slow.then(lambda: retries.retry(w.db, run_id, types=FIXABLE, by=None))
        slow.commit()
        retried = again.result()
    assert retried.untold == ((child,) if change == "ends" else ())
    monkeypatch.undo()
    w.advance(1000)
    w.sweep()
    w.settle()
    assert w.run(run_id).output == "left True + done"
    assert len(children_of(w, run_id)) == 2
