"""Duplicate, early and late answers; cancellation: each takes effect once, or says why it does not."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Any

import pytest

from adjourn import Context, Receipt, ScriptedModel, tool
from adjourn.schemas.errors import RunIdClashError
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.ids import new_run_id, new_thread_id
from adjourn.schemas.records.items import OutputItem
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ModelRequest
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.host.wakeups import CeleryWakeUps
from adjourn.tasks.models.scripted import call, say
from adjourn.worker.broker.celery_app import make_celery
from tests.cases.conftest import Build
from tests.cases.races import at_once, collide
from tests.cases.tools import WAYS, YES, Question, Reader, asking, asking_twice, number_asked, q
from tests.deployment import Deployment
from tests.waiting import wait_until
from tests.world import Counters, World, scripted

NO: dict[str, Any] = {"approved": False}
ROUNDS = 5


def two_workers(build: Build, *tools: Any, model: Any) -> tuple[World, World]:
    """Two processes of one deployment, as far as they can be told apart: nothing is shared but the servers."""
    return build(*tools, model=model), build(*tools, model=model)


# --- the same answer at two workers -----------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        ({"data": YES}, "duplicate"),
        ({"data": YES, "answer_id": "mine"}, "late"),
        ({"data": NO}, "late"),
        ({"kind": "cancel"}, "late"),
    ],
    ids=["same", "same said by another", "other", "cancel"],
)
def test_every_sender_of_an_answer_gets_a_final_outcome(build: Build, second: dict[str, Any], outcome: str) -> None:
    fx = Counters()
    one, two = two_workers(build, asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = one.start()
    action = one.the_action(run_id)
    receipts: list[Receipt] = collide(
        one,
        run_id,
        [partial(one.answer, action, settle=False, data=YES), partial(two.answer, action, settle=False, **second)],
    )
    statuses = [receipt.status for receipt in receipts]
    assert sorted(statuses) == sorted(["accepted", outcome])
    yes_won = statuses[0] == "accepted" or second.get("data") == YES
    for w in (one, two):
        w.settle()
    assert (one.run(run_id).status, fx["fx"]) == ("completed", int(yes_won))
    assert {receipt.action_status for receipt in receipts} == {one.status_of(action.id)}


@pytest.mark.parametrize("way", WAYS)
def test_many_senders_and_many_workers_apply_an_answer_once(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    for _ in range(ROUNDS):
        run_id = w.start()
        action = w.the_action(run_id)
        receipts = at_once([partial(w.answer, action, YES, settle=False)] * 4)
        assert sorted(receipt.status for receipt in receipts) == ["accepted"] + ["duplicate"] * 3
        w.wakeups.waiting.clear()
        at_once([partial(drive, w.services, WakeUp(run_id=run_id, due="reentry"))] * 4)
        assert w.run(run_id).status == "completed"
    assert (fx["fx"], fx["model"]) == (ROUNDS, 2 * ROUNDS)


def test_an_answer_sent_again_after_the_run_has_ended_is_still_a_duplicate(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    sent = [w.answer(action, YES, answer_id="mine").status for _ in range(3)]
    assert sent == ["accepted", "duplicate", "duplicate"]
    assert w.answer(action, NO, answer_id="mine").status == "late"
    assert (fx["fx"], w.run(run_id).status) == (1, "completed")


def test_a_short_answer_sent_many_times_gets_a_final_outcome_each_time(build: Build) -> None:
    """By the id that the tool chose: who comes second is told so, and not that there is no such action."""

    @tool(wait_points=[q])
    def ask(ctx: Context) -> str | None:
        """Ask under an id of its own."""
        return ctx.ask(q, Question(prompt="May I?"), request_id="req-1").note

    w = build(ask, model=scripted(call("ask"), say("done")))
    run_id = w.start()
    yes = json.dumps({"id": "req-1", "ok": True, "data": {"approved": True, "note": "n"}})
    at_the_row = collide(w, run_id, [partial(w.send, yes, settle=False)] * 2)
    assert sorted(receipt.status for receipt in at_the_row) == ["accepted", "duplicate"]
    w.settle()
    assert w.send(yes).status == "duplicate"
    assert w.send(json.dumps({"id": "req-1", "ok": False})).status == "late"
    assert [output.content for output in w.outputs(run_id)] == ["n"]


def test_one_answer_published_many_times_to_two_workers_gets_a_receipt_each_time(live: Deployment) -> None:
    live.effects.release("behind-gate")
    live.worker()
    live.ready_worker()
    run = live.parked("asker")
    (action,) = live.client.pending(run_id=run.id)
    answer = Answer(action_id=action.id, data=YES)
    receipts = at_once([partial(live.client.publish, answer, 30)] * 4)
    assert sorted(receipt.status for receipt in receipts) == ["accepted"] + ["duplicate"] * 3
    assert live.ended(run).status == "completed"
    assert [live.effects.count(name) for name in ("fx", "model")] == [1, 2]


# --- the wake-up overtakes the answer -----------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_wake_up_before_its_answer_and_two_after_it_change_nothing(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    run_id = w.start()
    action, parked = w.the_action(run_id), w.run(run_id)
    revision = [WakeUp(run_id=run_id, due=due) for due in ("reentry", "turn", "suspect")]
    for wake in revision:
        drive(w.services, wake)
    assert (w.run(run_id), w.the_action(run_id), fx["fx"]) == (parked, action, 0)

    w.answer(action, YES, settle=False)
    w.wakeups.waiting.clear()
    for wake in revision * 2:
        drive(w.services, wake)
    assert (w.run(run_id).status, fx["fx"], fx["model"]) == ("completed", 1, 2)


def test_a_wake_up_while_the_answer_is_being_stored_loses_nothing(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    for _ in range(ROUNDS):
        run_id = w.start()
        wake = partial(drive, w.services, WakeUp(run_id=run_id, due="reentry"))
        collide(w, run_id, [partial(w.answer, w.the_action(run_id), YES, settle=False), wake, wake], waiting=1)
        w.settle()
        assert w.run(run_id).status == "completed"
    assert fx["fx"] == ROUNDS


def test_a_start_wakeup_before_its_run_is_dropped(build: Build) -> None:
    w = build(model=scripted(say("done")))
    w.wakeups.publish(WakeUp(run_id="run_1", due="turn"))
    w.settle()
    assert w.start(run_id="run_1") == "run_1"
    assert w.run("run_1").status == "completed"


# --- equal answers to different questions ---------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_equal_answers_to_a_tool_that_asks_twice_are_both_applied(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking_twice(way, fx), model=scripted(call("ask_twice"), say("done")))
    sent: tuple[dict[str, Any], ...] = ({}, {"answer_id": "same"})
    for given in sent:
        run_id = w.start()
        first = w.the_action(run_id)
        assert w.answer(first, {"approved": True, "note": "n"}, **given).status == "accepted"
        second = w.the_action(run_id)
        assert second.id != first.id
        assert w.answer(second, {"approved": True, "note": "n"}, **given).status == "accepted"
        assert [output.content for output in w.outputs(run_id)] == [["n", "n"]]


def test_equal_answers_to_side_by_side_and_to_repeated_calls_are_all_applied(build: Build) -> None:
    fx = Counters()
    ask = call("ask", x=1)
    w = build(asking("inline", fx), model=scripted([ask, ask], ask, say("done")))
    run_id = w.start()
    left, right = w.pending(run_id)
    assert [w.answer(each, YES, answer_id="same").status for each in (left, right)] == ["accepted", "accepted"]
    assert w.answer(w.the_action(run_id), YES, answer_id="same").status == "accepted"
    assert (fx["fx"], len(w.outputs(run_id)), w.run(run_id).status) == (3, 3, "completed")


# --- what was cancelled stays so ------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_approval_after_the_cancel_executes_nothing(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted([call("ask", x=1), call("ask", x=2)], say("done"), counters=fx))
    run_id = w.start()
    asked = w.pending(run_id)
    cancelled = runs.cancel(w.db, run_id, reason="stop", by="someone")
    assert cancelled is not None
    assert set(cancelled.closed_action_ids) == {action.id for action in asked}
    for action in asked:
        receipt = w.answer(action, YES)
        assert (receipt.status, receipt.action_status) == ("late", "cancelled")
    assert (w.run(run_id).status, w.pending(), fx["fx"], fx["model"]) == ("cancelled", [], 0, 1)


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_was_accepted_before_the_cancel_executes_nothing_after_it(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    assert w.answer(w.the_action(run_id), YES, settle=False).status == "accepted"
    runs.cancel(w.db, run_id, reason=None, by=None)
    w.settle()
    assert (w.run(run_id).status, fx["fx"]) == ("cancelled", 0)


def test_a_cancel_and_an_approval_at_once_agree_on_who_came_first(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    for _ in range(ROUNDS):
        run_id = w.start()
        action = w.the_action(run_id)
        cancel = partial(runs.cancel, w.db, run_id, reason=None, by=None)
        receipt, _ = collide(w, run_id, [partial(w.answer, action, YES, settle=False), cancel])
        w.settle()
        assert (w.run(run_id).status, w.pending()) == ("cancelled", [])
        assert w.status_of(action.id) == ("submitted" if receipt.status == "accepted" else "cancelled")
    assert fx["fx"] == 0


def test_a_tool_that_runs_during_the_cancel_records_nothing_and_opens_nothing(build: Build) -> None:
    fx = Counters()
    started, go_on = threading.Event(), threading.Event()

    @tool
    def slow(ctx: Context) -> str:
        """Take a while."""
        started.set()
        assert go_on.wait(30)
        return str(ctx.run_once("after", lambda: fx.bump("after the cancel")))

    w = build(slow, asking("inline", fx), model=scripted([call("slow"), call("ask", x=1)], say("done"), counters=fx))
    w.enqueue(run_id="run_1")
    worker = threading.Thread(target=w.settle)
    worker.start()
    assert started.wait(30)
    runs.cancel(w.db, "run_1", reason=None, by=None)
    go_on.set()
    worker.join(30)
    assert (w.run("run_1").status, w.pending(), fx["model"], fx["fx"]) == ("cancelled", [], 1, 0)
    assert not any(isinstance(item.body, OutputItem) for item in w.items("run_1"))


def test_the_next_run_of_the_thread_reads_that_the_call_was_closed(build: Build) -> None:
    fx, reader = Counters(), Reader()
    steps = {"go": call("ask", x=1), "and?": None}

    def play(request: ModelRequest) -> Any:
        return steps[request.conversation[-1].text] or reader.step(request)  # type: ignore[union-attr]

    w = build(asking("inline", fx), model=ScriptedModel(play))
    run_id = w.start(thread_id="thr_1")
    runs.cancel(w.db, run_id, reason=None, by=None)
    after = w.start("and?", thread_id="thr_1")
    assert w.run(after).status == "completed"
    assert reader.results == [["closed because the run ended before this call had a result"]]


# --- one start, twice ------------------------------------------------------------------------------


def test_one_start_message_at_two_workers_is_one_run_and_one_turn(build: Build) -> None:
    fx = Counters()
    one, two = two_workers(build, asking("inline", fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    for _ in range(ROUNDS):
        run_id = one.enqueue().run_id
        one.wakeups.waiting.clear()
        turn = WakeUp(run_id=run_id, due="turn")
        at_once([partial(drive, w.services, turn) for w in (one, two, one, two)])
        assert (one.run(run_id).status, one.run(run_id).turns) == ("parked", 1)
        assert len(one.pending(run_id)) == 1
    assert (fx["model"], fx["passes"]) == (ROUNDS, ROUNDS)


@pytest.mark.parametrize("threads", ["one thread", "a thread each"])
def test_one_run_id_started_many_times_at_once_is_one_run(build: Build, threads: str) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    for _ in range(ROUNDS):
        run_id, shared = new_run_id(), new_thread_id()

        def start(run_id: str = run_id, shared: str = shared) -> Any:
            thread_id = shared if threads == "one thread" else new_thread_id()
            try:
                return w.enqueue(run_id=run_id, thread_id=thread_id, limits=Limits())
            except RunIdClashError:  # it named another thread
                return None

        started = [each for each in at_once([start] * 4) if each is not None]
        assert len(started) == (4 if threads == "one thread" else 1)
        assert [each.created for each in started].count(True) == 1
        assert len({each.thread_id for each in started}) == 1
        at_once([w.settle] * 2)
        assert [each.id for each in runs.list(w.db, thread_id=started[0].thread_id)] == [run_id]
        assert [item.body.kind for item in w.items(run_id)] == ["message", "response", "suspension"]
    assert fx["model"] == ROUNDS


def test_one_start_message_given_to_two_workers_is_one_run_and_one_turn(live: Deployment) -> None:
    live.effects.release("behind-gate")
    live.worker()
    live.ready_worker()
    wakeups = CeleryWakeUps(make_celery(live.settings))
    started = [live.client.start("asker", "go", run_id=f"run_{n}") for n in range(ROUNDS)]
    for run in started * 3:
        wakeups.publish(WakeUp(run_id=run.id, due="turn"))
    for run in started:
        assert live.client.start("asker", "go", run_id=run.id).id == run.id
        (action,) = wait_until(partial(live.client.pending, run_id=run.id), what="its gate")
        action.cancel()
        assert live.ended(run).turns == 2
    assert live.effects.count("model") == 2 * ROUNDS


# --- one of many ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_cancelling_one_run_leaves_the_others_pending_and_answerable(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    first, second, third = (w.start() for _ in range(3))
    runs.cancel(w.db, first, reason=None, by=None)
    w.settle()
    assert [w.run(each).status for each in (first, second, third)] == ["cancelled", "parked", "parked"]
    assert w.pending(first) == []
    for run_id in (second, third):
        assert w.answer(w.the_action(run_id), YES).status == "accepted"
        assert w.run(run_id).status == "completed"
    assert fx["fx"] == 2


def test_cancelling_a_run_while_another_is_driven_beside_it_leaves_that_one_alone(build: Build) -> None:
    both_run, go_on = threading.Barrier(3), threading.Event()

    @tool
    def wait() -> str:
        """Wait for the test."""
        both_run.wait(30)
        assert go_on.wait(30)
        return "waited"

    w = build(wait, model=scripted(call("wait"), say("done")))
    first, second = w.enqueue().run_id, w.enqueue().run_id
    workers = [threading.Thread(target=drive, args=(w.services, w.wakeups.waiting.popleft())) for _ in (first, second)]
    for worker in workers:
        worker.start()
    both_run.wait(30)
    runs.cancel(w.db, first, reason=None, by=None)
    go_on.set()
    for worker in workers:
        worker.join(30)
    w.settle()
    assert [w.run(each).status for each in (first, second)] == ["cancelled", "completed"]


def test_cancelling_the_busy_run_of_a_thread_starts_the_one_behind_it(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    first = w.start(thread_id="thr_1")
    second = w.start(thread_id="thr_1", enqueue=True)
    third = w.start(thread_id="thr_1", enqueue=True)
    assert [w.run(each).status for each in (second, third)] == ["queued", "queued"]
    cancelled = runs.cancel(w.db, first, reason=None, by=None)
    assert cancelled is not None
    assert cancelled.next_run_id == second
    w.wakeups.publish(WakeUp(run_id=second, due="turn"))
    w.settle()
    assert [w.run(each).status for each in (first, second, third)] == ["cancelled", "parked", "queued"]
    w.answer(w.the_action(second), YES)
    assert [w.run(each).status for each in (second, third)] == ["completed", "parked"]


# --- several inputs at once -------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_answers_that_come_back_to_back_are_all_applied_before_the_next_request(build: Build, way: str) -> None:
    fx, reader = Counters(), Reader()
    w = build(asking(way, fx), model=scripted([call("ask", x=1), call("ask", x=2)], reader.step, counters=fx))
    run_id = w.start()
    for action in reversed(w.pending(run_id)):
        note = f"n{number_asked(action)}"
        assert w.answer(action, {"approved": True, "note": note}, settle=False).status == "accepted"
    assert (fx["fx"], fx["model"]) == (0, 1)
    w.settle()
    assert reader.results == [[{"x": 1, "note": "n1"}, {"x": 2, "note": "n2"}]]
    assert (fx["fx"], fx["passes"], w.run(run_id).status) == (2, 4, "completed")


def test_answers_that_come_while_the_run_is_driven_are_all_applied_and_none_needs_the_sweep(build: Build) -> None:
    """The race of parking against answers: three answers, and two workers that follow wake-ups as they come."""
    fx, reader = Counters(), Reader()
    w = build(asking("inline", fx), model=scripted([call("ask", x=x) for x in (1, 2, 3)], reader.step, counters=fx))
    for _ in range(3 * ROUNDS):
        run_id = w.start()
        answers = [partial(w.answer, action, YES, settle=True) for action in w.pending(run_id)]
        at_once([*answers, w.settle])
        w.settle()
        assert (w.run(run_id).status, w.pending(run_id)) == ("completed", [])
    assert len(reader.results) == 3 * ROUNDS
    assert all(len(read) == 3 for read in reader.results)
    assert (fx["fx"], fx["model"]) == (9 * ROUNDS, 6 * ROUNDS)


def test_an_answer_to_one_gate_while_its_sibling_still_runs_is_applied(build: Build) -> None:
    """The run cannot park on what it has not seen: the answer came after the pass began and before it ended."""
    fx, reader = Counters(), Reader()
    started, go_on = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Take a while."""
        started.set()
        assert go_on.wait(30)
        return "slow"

    w = build(asking("inline", fx), slow, model=scripted([call("ask", x=1), call("slow")], reader.step))
    w.enqueue(run_id="run_1")
    worker = threading.Thread(target=w.settle)
    worker.start()
    assert started.wait(30)
    (action,) = wait_until(lambda: w.pending("run_1"), what="a gate that is open while its sibling runs")
    assert w.answer(action, YES, settle=False).status == "accepted"
    go_on.set()
    worker.join(30)
    assert (w.run("run_1").status, fx["fx"]) == ("completed", 1)
    assert reader.results == [[{"x": 1, "note": None}, "slow"]]


def test_messages_that_come_while_a_run_is_parked_each_get_their_run(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    first = w.start("one", thread_id="thr_1")
    send = partial(w.enqueue, thread_id="thr_1", enqueue=True)
    started = at_once([partial(send, text) for text in ("two", "three", "four")])
    w.settle()
    for _ in range(4):
        (action,) = w.pending()
        w.answer(action, YES)
    ids = [first, *(each.run_id for each in started)]
    assert [w.run(each).status for each in ids] == ["completed"] * 4
    assert (fx["fx"], w.pending()) == (4, [])


def test_two_answers_in_one_body_are_refused_whole(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted([call("ask", x=1), call("ask", x=2)], say("done")))
    run_id = w.start()
    bodies = [json.dumps({"action_id": action.id, "data": YES}) for action in w.pending(run_id)]
    assert w.send("\n".join(bodies)).status == "malformed"
    assert (len(w.pending(run_id)), fx["fx"]) == (2, 0)
    assert [w.send(body).status for body in bodies] == ["accepted", "accepted"]
