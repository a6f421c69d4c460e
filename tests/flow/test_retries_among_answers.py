"""A retry and an answer that meet on one run, in each order: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adjourn import App
from adjourn.schemas.records.answers import Receipt
from adjourn.store.postgres.answers.actions import ANSWER
from adjourn.store.postgres.runs import retries
from adjourn.store.postgres.runs.retries import RETRY
from adjourn.store.postgres.store import PostgresChildren
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.lifecycle.retry import FIXABLE, retry
from tests.flow.broken_trees import (
    Stricter,
    children_of,
    fail_left,
    gate_of,
    pair,
    statuses,
    straight,
    totals,
)
from tests.flow.conftest import Plant
from tests.flow.retry_statements import retry_params
from tests.store.steps import both, slow_transaction
from tests.store.test_claims import answer_params
from tests.world import Counters, World

YES = {"ok": True}


def failed(plant: Plant, fx: Counters) -> tuple[World, str, Any]:
    """A root that a deploy has failed, put right since, and the wait of the child that was closed with it."""
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    left, right = gate_of(w, run_id, "left"), gate_of(w, run_id, "right")
    w.deploy(App(blocks=[pair(fx, Stricter)]))
    w.answer(left, YES)
    assert statuses(w, run_id) == {"left": "failed", "right": "cancelled"}
    w.deploy(App(blocks=[pair(fx)]))
    return w, run_id, right


def finish(w: World, run_id: str, right: Any, receipt: Receipt, plant: Plant, fx: Counters) -> None:
    """Whatever the order was: an answer that was not accepted can be given again, and one that was is used."""
    w.settle()
    if receipt.status != "accepted":
        assert receipt.status == "late"
        assert w.answer(right, YES, answer_id="again").status == "accepted"
    else:
        assert w.answer(right, YES, answer_id="again").status == "late"
    run = w.run(run_id)
    assert (run.status, run.output) == ("completed", "left True + right True")
    assert len(children_of(w, run_id)) == 2
    assert (fx["left asked and got True"], fx["right asked and got True"]) == (1, 1)
    assert totals(run) == totals(straight(plant, pair, "left", "right"))


def answering(w: World, action: Any, answer_id: str = "racing") -> Receipt:
    return receive(
        w.services, f'{{"action_id": "{action.id}", "data": {{"ok": true}}, "answer_id": "{answer_id}"}}', channel="t"
    )


def test_at_once_in_whichever_order(plant: Plant) -> None:
    for _ in range(8):
        fx = Counters()
        w, run_id, right = failed(plant, fx)
        _, receipt = both(lambda w=w, run_id=run_id: retry(w.services, run_id), partial(answering, w, right))
        finish(w, run_id, right, receipt, plant, fx)


def test_an_answer_that_comes_while_the_retry_has_not_committed_is_late_and_may_be_given_again(
    plant: Plant, database_url: str
) -> None:
    fx = Counters()
    w, run_id, right = failed(plant, fx)
    with slow_transaction(w.db, database_url) as slow:
        assert slow.run(RETRY, retry_params(run_id)).retried
        receipt = answering(w, right)
        assert (receipt.status, receipt.action_status) == ("late", "cancelled")
        slow.commit()
    w.sweep()
    w.advance(60)
    w.sweep()
    finish(w, run_id, right, receipt, plant, fx)


@pytest.fixture
def not_closed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> tuple[World, str, Any, Counters]:
    """The process that failed the root died before it had closed the other child, whose wait is still open."""
    fx = Counters()
    w = plant(pair(fx))
    run_id = w.start(agent="boss")
    seq_of = PostgresChildren.seq_of
    with monkeypatch.context() as dead:
        dead.setattr(PostgresChildren, "seq_of", lambda store, id: None if id == run_id else seq_of(store, id))
        w, right = fail_left(w, run_id, fx)
    assert statuses(w, run_id) == {"left": "failed", "right": "parked"}
    return w, run_id, right, fx


def test_an_answer_that_waits_for_the_retry_of_the_tree_is_accepted(
    plant: Plant, not_closed: tuple[World, str, Any, Counters], database_url: str
) -> None:
    w, run_id, right, fx = not_closed
    with slow_transaction(w.db, database_url) as slow:
        assert slow.run(RETRY, retry_params(run_id)).retried
        answer = slow.then(lambda: answering(w, right))
        slow.commit()
        receipt = answer.result()
    assert receipt.status == "accepted"
    w.advance(60)
    w.sweep()
    finish(w, run_id, right, receipt, plant, fx)


def test_a_retry_that_waits_for_an_answer_into_its_tree_keeps_it(
    plant: Plant, not_closed: tuple[World, str, Any, Counters], database_url: str
) -> None:
    w, run_id, right, fx = not_closed
    with slow_transaction(w.db, database_url) as slow:
        slow.run(ANSWER, {**answer_params(right.id), "resume": '{"ok":true}'})
        again = slow.then(lambda: retries.retry(w.db, run_id, types=FIXABLE, by=None))
        slow.commit()
        assert again.result().run.status == "queued"
    assert w.status_of(right.id) == "submitted"
    w.advance(60)
    w.sweep()
    receipt = Receipt(status="accepted", action_id=right.id)
    finish(w, run_id, right, receipt, plant, fx)


def test_many_retries_and_many_answers_at_once(plant: Plant) -> None:
    """One retry takes the tree, one answer the wait, whatever is beside them."""
    fx = Counters()
    w, run_id, right = failed(plant, fx)

    def tries() -> int:
        taken = 0
        for _ in range(3):
            try:
                retry(w.services, run_id)
                taken += 1
            except Exception:
                continue
        return taken

    def answers() -> list[str]:
        return [answering(w, right, f"answer {number}").status for number in range(6)]

    taken, said = both(tries, answers)
    assert taken == 1
    assert said.count("accepted") <= 1
    accepted = "accepted" in said
    finish(w, run_id, right, Receipt(status="accepted" if accepted else "late", action_id=right.id), plant, fx)
