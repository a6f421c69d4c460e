"""Timeouts and clocks: waiting is free, deadlines are the database's, and no zone moves them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from adjourn import Context, DefinitionError, PendingAction, WaitPoint, tool
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Answer
from adjourn.store.postgres.answers import actions
from adjourn.tasks.models.scripted import call, say
from tests.cases.clock import StoppedClock
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, Question, Verdict, asking
from tests.cases.typed import Keeper
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.waiting import LIMIT_SECONDS, wait_until
from tests.world import Counters, World, scripted

YES = {"approved": True}
DAY = 24 * 3600.0


def gate(seconds: float, **options: Any) -> WaitPoint[Question, Verdict]:
    return WaitPoint("q", suspend=Question, resume=Verdict, timeout=timedelta(seconds=seconds), **options)


# --- waiting does not count ---------------------------------------------------------------


@pytest.mark.parametrize("limit", ["tool", "tuning"])
@pytest.mark.parametrize("way", WAYS)
def test_the_execution_limit_does_not_count_the_waiting(build: Build, way: str, limit: str) -> None:
    fx = Counters()
    of_tool = {"timeout": timedelta(seconds=1)} if limit == "tool" else {}
    tuning = Tuning(tool_timeout_seconds=1) if limit == "tuning" else Tuning()
    w = build(
        asking(way, fx, **of_tool), model=scripted(call("ask", x=1), call("ask", x=2), say("done")), tuning=tuning
    )
    run_id = w.start()
    for waited in (5, 90 * DAY):
        w.advance(waited)
        w.sweep()
        assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert [output.outcome for output in w.outputs(run_id)] == ["success", "success"]
    assert (w.run(run_id).status, w.run(run_id).deaths, fx["fx"]) == ("completed", 0, 2)


def test_a_parked_run_loses_no_lease_however_long_it_waits(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done"), counters=fx))
    run_id = w.start()
    for _ in range(3):
        w.advance(100 * w.tuning.lease_seconds)
        swept = w.sweep()
        assert (swept.abandoned, swept.unsent, swept.overdue) == (0, 0, 0)
    assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert (w.run(run_id).status, w.run(run_id).deaths, fx["model"], fx["passes"]) == ("completed", 0, 2, 2)


# --- a deadline fires when it is due --------------------------------------------------------

BY_DEFAULT = Verdict(approved=True, note="by default")
TIMED_OUT: dict[str, tuple[Any, str, list[tuple[str, Any]]]] = {
    "fail_run": ({"on_timeout": "fail_run"}, "failed", []),
    "error": ({"on_timeout": "error"}, "completed", [("expired", "ask.q expired before anybody answered: May 1 be?")]),
    "default": ({"default": BY_DEFAULT}, "completed", [("success", {"x": 1, "note": "by default"})]),
}


@pytest.mark.parametrize("on_timeout", TIMED_OUT)
@pytest.mark.parametrize("way", WAYS)
def test_a_gate_of_two_seconds_expires_at_two_seconds(build: Build, way: str, on_timeout: str) -> None:
    deadline, status, outputs = TIMED_OUT[on_timeout]
    fx = Counters()
    w = build(asking(way, fx, point=gate(2, **deadline)), model=scripted(call("ask", x=1), say("done"), counters=fx))
    clock = StoppedClock(w.db)
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.opened_at, action.expires_at) == (clock.now, clock.now + timedelta(seconds=2))

    clock.advance(1.999)
    assert w.sweep().overdue == 0
    assert w.the_action(run_id) == action
    clock.advance(0.001)
    assert w.sweep().overdue == 1
    assert (w.status_of(action.id), w.run(run_id).status) == ("expired", status)
    assert [(output.outcome, output.content) for output in w.outputs(run_id)] == outputs
    assert w.answer(action, YES).status == "late"
    assert fx["fx"] == (on_timeout == "default")


@pytest.mark.parametrize("seconds", [0.001, 0.25, 1, 5, 59.9, 60, 3_600, 90 * DAY, 400 * DAY, 36_525 * DAY])
def test_every_span_is_kept_as_it_was_given(build: Build, seconds: float) -> None:
    w = build(asking("inline", Counters(), point=gate(seconds)), model=scripted(call("ask", x=1), say("done")))
    clock = StoppedClock(w.db)
    action = w.the_action(w.start())
    assert action.expires_at == clock.now + timedelta(seconds=seconds)
    clock.advance(seconds - 0.001)
    assert w.sweep().overdue == 0
    clock.advance(0.001)
    assert w.sweep().overdue == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_just_in_time_counts_and_one_just_late_expires_the_gate(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx, point=gate(2, on_timeout="error")), model=scripted(call("ask", x=1), say("done")))
    clock = StoppedClock(w.db)
    in_time, late = w.start(), w.start()
    actions = w.the_action(in_time), w.the_action(late)
    clock.advance(1.999)
    assert w.answer(actions[0], YES).status == "accepted"
    clock.advance(0.001)
    receipt = w.answer(actions[1], YES)
    assert (receipt.status, receipt.action_status) == ("late", "expired")
    assert [w.status_of(action.id) for action in actions] == ["submitted", "expired"]
    assert [w.run(id).status for id in (in_time, late)] == ["completed", "completed"]
    assert fx["fx"] == 1


def test_each_wait_of_a_call_has_a_deadline_of_its_own(build: Build) -> None:
    points = [
        WaitPoint(name, suspend=Question, resume=Verdict, timeout=timedelta(seconds=2), on_timeout="error")
        for name in ("q1", "q2")
    ]

    @tool(wait_points=points)
    def twice(ctx: Context) -> str:
        """Ask twice."""
        for point in points:
            ctx.ask(point, Question(prompt="?"))
        return "both"

    w = build(twice, model=scripted(call("twice"), say("done")))
    clock = StoppedClock(w.db)
    run_id = w.start()
    clock.advance(1.5)
    w.answer(w.the_action(run_id), YES)
    clock.advance(1.5)
    assert w.sweep().overdue == 0, "the second wait was given the first one's deadline"
    assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert w.outputs(run_id)[0].content == "both"


# --- zones ----------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"])
def test_the_zone_of_the_database_moves_no_deadline(build: Build, zone: str) -> None:
    w = build(asking("inline", Counters(), point=gate(60)), model=scripted(call("ask", x=1), say("done")))
    name = w.db.one(sa.text("select current_database() as name"), {}).name
    w.db.execute(sa.text(f"alter database {name} set timezone to '{zone}'"), {})
    w.db.dispose()  # the next connections are of the new zone
    clock = StoppedClock(w.db)
    run_id = w.start()
    action = w.the_action(run_id)
    assert action.opened_at == clock.now
    assert action.expires_at == clock.now + timedelta(seconds=60)
    assert action.opened_at.utcoffset() == timedelta(0)
    expires_on_the_second(w, clock, run_id, 60)


def expires_on_the_second(w: World, clock: StoppedClock, run_id: str, seconds: float) -> None:
    clock.advance(seconds - 1)
    assert w.sweep().overdue == 0
    assert w.run(run_id).status == "parked"
    clock.advance(1)
    assert w.sweep().overdue == 1
    assert w.run(run_id).status == "failed"


NO_SPANS: tuple[Any, ...] = (
    datetime(2030, 1, 1),
    datetime(2030, 1, 1, tzinfo=UTC),
    datetime(2030, 1, 1).date(),
    "60",
    "PT60S",
    60,
    60.0,
    True,
    timedelta(0),
    timedelta(seconds=-1),
    timedelta.max,
)


@pytest.mark.parametrize("timeout", NO_SPANS, ids=repr)
def test_a_deadline_that_is_no_span_of_time_cannot_be_given(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="give a timedelta above zero"):
        WaitPoint("q", suspend=Question, resume=Verdict, timeout=timeout)
    with pytest.raises(DefinitionError, match="give a timedelta above zero"):
        tool(name="t", timeout=timeout)(lambda: None)


def test_nor_where_a_tool_asks_ad_hoc(build: Build) -> None:
    @tool
    def adhoc(ctx: Context) -> bool:
        """Ask with a naive deadline."""
        naive: Any = datetime(2030, 1, 1)
        return ctx.ask(reason="ok", message="OK?", resume=bool, timeout=naive)

    w = build(adhoc, model=scripted(call("adhoc"), say("noted")))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert "give a timedelta above zero" in output.content
    assert (w.pending(run_id), w.run(run_id).status) == ([], "completed")


def test_a_typed_datetime_keeps_its_own_zone(build: Build) -> None:
    kathmandu = datetime.fromisoformat("2026-03-29T02:30:00+05:45")
    supervisor = Keeper("inline", "keep", suspend=datetime, data=kathmandu, resume=datetime)
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    assert w.answer(action, "2026-03-29T02:30:00+05:45").status == "accepted"
    (kept,) = supervisor.kept
    assert (kept.answer, kept.asked) == (kathmandu, kathmandu)
    assert kept.answer.utcoffset() == kept.asked.utcoffset() == timedelta(hours=5, minutes=45)


# --- on real workers ------------------------------------------------------------------------------


def timed(d: Deployment, seconds: int) -> PendingAction:
    """The action of a run that waits for so many seconds."""
    (action,) = d.client.pending(run_id=d.parked(f"timed{seconds}").id)
    assert action.expires_at == action.opened_at + timedelta(seconds=seconds)
    return action


def status_of(d: Deployment, action: PendingAction) -> str:
    state = actions.get(d.db, action.id)
    assert state is not None
    return state.action.status


def expired(d: Deployment, action: PendingAction) -> datetime:
    """Wait until a worker's sweep has expired it, and say when that was by the database's clock."""
    wait_until(lambda: status_of(d, action) == "expired", what="the end of a deadline")
    state = actions.get(d.db, action.id)
    assert state is not None
    assert state.resolution is not None
    return state.resolution.resolved_at


@pytest.mark.timeout(300)
def test_a_real_worker_expires_a_gate_of_two_seconds_at_its_next_sweep(deploy: Deploy) -> None:
    with deploy() as d:
        d.ready_worker()
        clock = StoppedClock(d.db)
        gate, canary = timed(d, 2), timed(d, 1)
        clock.advance(1.9)
        # A sweep that expires the one has looked at the other as well.
        assert expired(d, canary) == clock.now
        assert status_of(d, gate) == "pending"
        clock.advance(0.1)
        assert expired(d, gate) == gate.opened_at + timedelta(seconds=2)
        for action in (gate, canary):
            assert d.ended(action.origin.run_id).status == "completed"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns"])
def test_a_real_worker_in_another_zone_fires_at_sixty_seconds(deploy: Deploy, zone: str) -> None:
    with deploy() as d:
        d.ready_worker(TZ=zone)
        clock = StoppedClock(d.db)
        gate, in_time, canary = timed(d, 60), timed(d, 60), timed(d, 30)
        assert gate.opened_at == clock.now
        clock.advance(59)
        assert expired(d, canary) == clock.now
        assert [status_of(d, each) for each in (gate, in_time)] == ["pending", "pending"]
        assert d.client.publish(Answer(action_id=in_time.id, data=YES), LIMIT_SECONDS).status == "accepted"
        clock.advance(1)
        assert expired(d, gate) == gate.opened_at + timedelta(seconds=60)
        late = d.client.publish(Answer(action_id=gate.id, data=YES), LIMIT_SECONDS)
        assert (late.status, late.action_status) == ("late", "expired")
        for action in (gate, in_time, canary):
            assert d.ended(action.origin.run_id).status == "completed"
