"""An answer counts only when the live model has validated it, whichever way it comes; and Redis decides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from adjourn import (
    Answer,
    AnswerRefusedError,
    App,
    Client,
    Context,
    IllegalArgumentError,
    NotFoundError,
    WaitPoint,
    client_tool,
    tool,
)
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.strict_json import dumps
from adjourn.store.postgres.answers import dead_letters, early_answers
from adjourn.tasks.answers.answering import receive, receive_answer, receive_kept
from adjourn.tasks.host.builds import Build
from adjourn.tasks.host.services import Door
from adjourn.worker.config.settings import Settings
from tests.conftest import Deploy
from tests.deployment import Deployment
from tests.flow.one_door_app import Amount, Ask, app
from tests.waiting import LIMIT_SECONDS
from tests.world import World

APP = "tests.flow.one_door_app:app"
ODD = (-2, -4, -6, -8, -10, -12)
NOTHING = Tuning(verdict_seconds=0)


@pytest.fixture
def w(database_url: str, redis_url: str) -> Iterator[World]:
    made = World(app, database_url, redis_url)
    yield made
    made.close()


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    """A client without the app, that does not wait for a worker."""
    with Client(Settings(database_url=database_url, redis_url=redis_url, tuning=NOTHING)) as made:
        yield made


def bare(w: World) -> Door:
    """The door of a process that has no app."""
    s = w.services
    return Door(store=s.store, parking=s.parking, events=s.events, wakeups=s.wakeups, tuning=NOTHING, app=None)


def asked(w: World, agent: str = "gate") -> PendingAction:
    started = w.enqueue(agent=agent, data={})
    w.settle()
    return w.the_action(started.run_id)


# --- only the live model decides -------------------------------------------------------------------


def test_without_the_app_nothing_is_accepted_that_the_live_model_has_not_seen(w: World, client: Client) -> None:
    action = asked(w)
    assert not action.schema_decides
    with pytest.raises(AnswerRefusedError) as refused:
        client.submit(action.id, {"amount": "4"})
    assert refused.value.status == "invalid", "the pinned schema refuses at once"

    odd = client.submit(action.id, {"amount": 3})
    assert (odd.status, odd.action_status) == ("kept", "pending")
    assert w.status_of(action.id) == "pending"
    receive_kept(w.services, action.id)
    assert w.status_of(action.id) == "pending"
    letter = dead_letters.list(w.db)[0]
    assert (letter.status, letter.channel, letter.action_id) == ("invalid", "client", action.id)
    assert [issue.path for issue in letter.issues] == ["/amount"]

    assert client.submit(action.id, {"amount": 4}, answer_id="a1").status == "kept"
    w.sweep()
    shown = client.action(action.id)
    assert (shown.status, shown.resolution and shown.resolution.channel) == ("submitted", "client")
    assert client.submit(action.id, {"amount": 4}, answer_id="a1").status == "duplicate"
    assert early_answers.of_action(w.db, action.id) == ()
    assert w.run(action.origin.run_id).output == {"amount": 4}


def test_where_the_schema_says_it_all_no_worker_is_needed(w: World, client: Client) -> None:
    action = asked(w, "open_gate")
    assert action.schema_decides
    assert client.submit(action.id, {"amount": 3}).status == "accepted"


def test_the_first_accepted_answer_wins_over_one_that_is_kept(w: World, client: Client) -> None:
    action = asked(w)
    assert client.submit(action.id, {"amount": 2}).status == "kept"
    assert w.answer(action, {"amount": 8}, settle=False).status == "accepted"
    assert w.sweep().early == 1
    assert dead_letters.list(w.db)[0].status == "late"
    assert w.run(action.origin.run_id).output == {"amount": 8}


def test_nothing_is_kept_that_comes_after_the_deadline(w: World) -> None:
    @tool(wait_points=[WaitPoint("even", suspend=Ask, resume=Amount, timeout=timedelta(hours=1))])
    def slow(ctx: Context) -> dict[str, Any]:
        ctx.suspend("even", Ask(prompt="?"))

    w.deploy(App(blocks=[slow]))
    action = asked(w, "slow")
    w.advance(7200)
    body = json.dumps({"action_id": action.id, "data": {"amount": 2}})
    assert receive(bare(w), body, channel="t").status == "late"
    assert w.status_of(action.id) == "expired"
    assert early_answers.of_action(w.db, action.id) == ()


def test_a_door_without_the_block_leaves_kept_answers_to_those_that_have_it(w: World) -> None:
    action = asked(w)
    other = replace(w.services, app=App(blocks=[]))
    body = json.dumps({"action_id": action.id, "data": {"amount": 2}})
    assert receive(other, body, channel="t").status == "kept"
    receive_kept(other, action.id)
    assert len(early_answers.of_action(w.db, action.id)) == 1
    receive_kept(w.services, action.id)
    assert w.status_of(action.id) == "submitted"
    w.settle()


def test_where_no_build_has_the_model_any_more_the_newest_lets_the_pinned_schema_decide(w: World) -> None:
    action = asked(w)
    body = json.dumps({"action_id": action.id, "data": {"amount": 2}})
    assert receive(bare(w), body, channel="t").status == "kept"
    w.deploy(App(blocks=[]), Build(w.store, "newest"))
    w.sweep()
    error = w.run(action.origin.run_id).error
    assert error is not None
    assert (error.type, w.status_of(action.id)) == ("UnknownBlockError", "submitted")


def test_who_answers_is_proved_before_an_answer_is_kept(w: World, client: Client) -> None:
    action = asked(w, "anns_gate")
    for who in ({}, {"identity": "bob"}, {"credential": "adj1.forged.forged"}):
        with pytest.raises(AnswerRefusedError) as refused:
            client.submit(action.id, {"amount": 2}, **who)
        assert refused.value.status == "forbidden"
    assert early_answers.of_action(w.db, action.id) == ()
    credential = client.issue_credential("ann", action.id, expires_in=timedelta(hours=1))
    assert client.submit(action.id, {"amount": 2}, credential=credential).status == "kept"
    (kept,) = early_answers.of_action(w.db, action.id)
    assert (kept.answered_by, credential in kept.body) == ("ann", False)
    w.sweep()
    resolution = client.action(action.id).resolution
    assert resolution is not None
    assert resolution.answered_by == "ann"


def test_kept_answers_are_bounded(w: World) -> None:
    action = asked(w)
    door = bare(w)
    statuses = [
        receive_answer(door, Answer(action_id=action.id, data={"amount": 2 * at}), channel="t").status
        for at in range(NOTHING.early_answers_per_action + 1)
    ]
    assert statuses == ["kept"] * NOTHING.early_answers_per_action + ["unknown"]


# --- after a deploy ----------------------------------------------------------------------------------


class Before(BaseModel):
    approved: bool


class After(BaseModel):
    verdict: str


def test_after_a_deploy_the_pinned_schema_decides(w: World) -> None:
    def build(resume: Any) -> App:
        point: Any = WaitPoint("q", suspend=Ask, resume=resume)

        @tool(wait_points=[point])
        def ask(ctx: Context) -> str:
            return str(ctx.ask(point, Ask(prompt="?")))

        return App(blocks=[ask, client_tool("pick", description="Pick.", input=Ask, output=resume)])

    w.deploy(build(Before))
    action = asked(w, "ask")
    picking = w.enqueue(agent="pick", data={"prompt": "Which?"})
    w.settle()
    picked = w.the_action(picking.run_id)
    w.deploy(build(After))
    for each in (action, picked):
        assert w.answer(each, {"verdict": "yes"}).status == "invalid", "the shape that was never shown"
        assert w.answer(each, {"approved": True}).status == "accepted"
        run = w.run(each.origin.run_id)
        assert (run.status, run.error and run.error.type) == ("failed", "ToolChangedError")
        assert w.status_of(each.id) == "submitted", "the answer is kept"


def test_a_live_model_of_the_same_shape_is_still_asked(w: World) -> None:
    """A validator made stricter does not show in the schema: the answer is refused, and the action still waits."""
    action = asked(w)

    class Strict(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def none(cls, amount: int) -> int:
            raise ValueError("nothing is good enough")

    Strict.__name__ = "Amount"
    point: Any = WaitPoint("even", suspend=Ask, resume=Strict)

    @tool(wait_points=[point])
    def gate(ctx: Context) -> dict[str, Any]:
        return {}

    w.deploy(App(blocks=[gate]))
    assert w.answer(action, {"amount": 2}).status == "invalid"


# --- what can be written in Redis ----------------------------------------------------------------------


def _rewritten(w: World, action: PendingAction, change: Callable[[dict[str, Any]], Any]) -> None:
    """Somebody who can write to Redis changes the parking record, and leaves the signature."""
    key = f"adjourn:parking:{action.id}"
    signature, _, text = str(w.redis.get(key)).partition(":")
    record = json.loads(text)
    change(record)
    w.redis.set(key, f"{signature}:{dumps(record)}")


FORGERIES: list[Callable[[dict[str, Any]], Any]] = [
    lambda record: record.update(answerers=None),
    lambda record: record.update(answerers=["bob"]),
    lambda record: record.update(status="submitted", answerers=None),
    lambda record: record.update(resume_schema={}, schema_decides=True, answerers=["bob"]),
    lambda record: record["origin"].update(block_path=["nothing", "nothing"]),
]


@pytest.mark.parametrize("change", FORGERIES)
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_parking_record_that_somebody_wrote_lets_nothing_past(
    w: World, change: Callable[[dict[str, Any]], Any], is_signed: bool
) -> None:
    action = asked(w, "anns_gate")
    key = f"adjourn:parking:{action.id}"
    genuine = w.redis.get(key)
    _rewritten(w, action, change)
    if not is_signed:
        w.redis.set(key, str(w.redis.get(key)).partition(":")[2])
    door = replace(w.services)
    said = json.dumps({"action_id": action.id, "data": {"amount": 1}})
    assert receive(door, said, channel="t", answered_by="bob").status == "forbidden"
    assert w.redis.get(key) == genuine, "put right from PostgreSQL"
    _rewritten(w, action, change)
    assert receive(door, said, channel="t", answered_by="ann").status == "invalid"
    assert w.status_of(action.id) == "pending"


def test_the_record_of_another_action_is_none_of_this_one(w: World) -> None:
    open_to_all, anns = asked(w), asked(w, "anns_gate")
    genuine = w.redis.get(f"adjourn:parking:{open_to_all.id}")
    w.redis.set(f"adjourn:parking:{anns.id}", str(genuine))
    said = json.dumps({"action_id": anns.id, "data": {"amount": 2}})
    assert receive(w.services, said, channel="t", answered_by="bob").status == "forbidden"


def test_events_that_somebody_wrote_are_not_told(w: World, client: Client) -> None:
    action = asked(w)
    thread_id, run_id = action.origin.thread_id, action.origin.run_id
    forged = {"kind": "end", "id": "1-99", "run_id": run_id, "reason": "completed", "output": "paid"}
    w.redis.xadd(f"adjourn:events:{thread_id}", {"events": json.dumps([forged])})
    copied = str(w.redis.xrange(f"adjourn:events:{thread_id}", count=1)[0][1]["events"])
    w.redis.xadd(f"adjourn:events:{thread_id}", {"events": copied.partition(":")[0] + ":" + json.dumps([forged])})
    told = [event.model_dump_json() for event in client.thread(thread_id).events(timeout=1)]
    assert told
    assert not any("paid" in event for event in told)


# --- who answers, for each answer ------------------------------------------------------------------------


def test_who_answers_is_said_for_each_answer(w: World, client: Client) -> None:
    for way in ("submit", "cancel", "fail"):
        (action,) = client.pending(run_id=asked(w, "anns_gate").origin.run_id)
        said = {"submit": {"data": {"amount": 2}}, "cancel": {"reason": "no"}, "fail": {"message": "gone"}}[way]
        for who in ({"identity": "bob"}, {"credential": client.issue_credential("bob")}):
            with pytest.raises(AnswerRefusedError):
                getattr(action, way)(**said, **who)
        with pytest.raises(IllegalArgumentError):
            getattr(client, way)(action.id, **said, identity="ann", credential=client.issue_credential("ann"))
        receipt = getattr(client, way)(action.id, **said, identity="ann", answer_id="a1")
        assert receipt.status == ("kept" if way == "submit" else "accepted")
        w.sweep()
        again = getattr(action, way)(**said, identity="ann", answer_id="a1")
        assert again.status == "duplicate"
        ended = client.action(action.id).resolution
        assert ended is not None
        assert ended.answered_by == "ann"


def test_a_credential_is_for_its_action_and_its_time(w: World, client: Client) -> None:
    first, second = asked(w, "anns_gate"), asked(w, "anns_gate")
    one = client.issue_credential("ann", first.id, expires_in=timedelta(minutes=5))
    with pytest.raises(AnswerRefusedError) as refused:
        client.submit(second.id, {"amount": 2}, credential=one)
    assert (refused.value.status, one in str(refused.value)) == ("forbidden", False)
    w.advance(301)
    with pytest.raises(AnswerRefusedError):
        client.submit(first.id, {"amount": 2}, credential=one)
    assert client.submit(first.id, {"amount": 2}, credential=client.issue_credential("ann")).status == "kept"
    with pytest.raises(NotFoundError):
        client.issue_credential("ann", new_action_id(b"another key"))
    for wrong in ({"identity": ""}, {"identity": "a" * 501}, {"identity": "a\0"}):
        with pytest.raises(IllegalArgumentError):
            client.issue_credential(**wrong)
    for span in (timedelta(0), timedelta(-1), 5):
        with pytest.raises(IllegalArgumentError):
            client.issue_credential("ann", expires_in=span)  # type: ignore[arg-type]


# --- validators that raise anything ----------------------------------------------------------------------


@pytest.mark.parametrize("amount", sorted({*ODD} - {-10}))  # in the main thread, -10 is a user's Ctrl-C
def test_whatever_a_validator_raises_costs_the_answer_a_rejection(w: World, amount: int) -> None:
    action = asked(w)
    receipt = w.answer(action, {"amount": amount})
    assert (receipt.status, [issue.path for issue in receipt.issues]) == ("invalid", ["/amount"])
    assert w.answer(action, {"amount": 2}).status == "accepted"


class Bomb(BaseModel):
    made: int = Field(default_factory=lambda: exit(4))


def test_a_default_that_breaks_costs_the_answer_a_rejection(w: World) -> None:
    point: Any = WaitPoint("q", suspend=Ask, resume=Bomb)

    @tool(wait_points=[point])
    def bomb(ctx: Context) -> str:
        return str(ctx.ask(point, Ask(prompt="?")))

    w.deploy(App(blocks=[bomb]))
    assert w.answer(asked(w, "bomb"), {}).status == "invalid"


# --- the same on every pass -------------------------------------------------------------------------------


class Stamped(BaseModel):
    note: str | None = None
    other: str = "x"
    number: str = Field(default_factory=lambda: new_action_id(b"any"))


def test_a_value_that_a_default_makes_is_made_once(w: World, client: Client) -> None:
    seen: list[Stamped] = []
    points: Any = [WaitPoint(name, suspend=Ask, resume=Stamped) for name in ("one", "two")]

    @tool(wait_points=points)
    def stamp(ctx: Context) -> str:
        first = ctx.ask(points[0], Ask(prompt="?"))
        seen.append(first)
        ctx.ask(points[1], Ask(prompt="?"))
        return first.number

    w.deploy(App(blocks=[stamp]))
    action = asked(w, "stamp")
    assert w.answer(action, {"note": None}, answer_id="a").status == "accepted"
    assert client.submit(w.the_action(action.origin.run_id).id, {}).status == "kept", "only a worker can make it"
    w.sweep()
    assert w.run(action.origin.run_id).output == seen[0].number
    assert {each.number for each in seen} == {seen[0].number}
    assert all("other" not in each.model_fields_set and "note" in each.model_fields_set for each in seen)
    assert w.answer(action, {"note": None}, answer_id="a").status == "duplicate", "by what its sender sent"


# --- with real workers --------------------------------------------------------------------------------------


@pytest.fixture
def live(deploy: Deploy) -> Iterator[Deployment]:
    with deploy(app=APP, concurrency=2, resume_threads=2) as made:
        yield made


def _action(live: Deployment, agent: str = "gate") -> Any:
    run = live.client.start(agent, {})
    live.client.wait(run.id, until=("parked",), timeout=LIMIT_SECONDS)
    (action,) = live.client.pending(run_id=run.id)
    return action


def test_a_client_without_the_app_is_told_what_a_worker_made_of_its_answer(live: Deployment) -> None:
    live.ready_worker()
    action = _action(live)
    with pytest.raises(AnswerRefusedError) as refused:
        action.submit({"amount": 3})
    assert (refused.value.status, refused.value.issues[0].path) == ("invalid", "/amount")
    assert live.client.publish(Answer(action_id=action.id, data={"amount": 3})).status == "invalid"
    assert action.submit({"amount": 4}, answer_id="a").status == "accepted"
    assert live.ended(action.origin.run_id).output == {"amount": 4}
    assert live.db.one(early_answers.FOR_OPEN_ACTIONS, {"after": 0, "limit": 1}) is None


def test_validators_that_raise_anything_end_no_reader_of_the_queue(live: Deployment) -> None:
    worker = live.ready_worker()
    actions = [_action(live), _action(live)]
    for action in actions:
        for amount in ODD:
            said = live.client.publish(Answer(action_id=action.id, data={"amount": amount}))
            assert said.status == "invalid", amount
        with pytest.raises(AnswerRefusedError):
            action.submit({"amount": -2})
    for action in actions:
        assert live.client.publish(Answer(action_id=action.id, data={"amount": 2})).status == "accepted"
        assert live.ended(action.origin.run_id).status == "completed"
    assert worker.exit_code is None


def test_without_a_worker_the_receipt_says_that_nothing_is_accepted_yet(live: Deployment) -> None:
    worker = live.ready_worker()
    action = _action(live)
    worker.kill()
    with Client(live.settings.model_copy(update={"tuning": NOTHING})) as hasty:
        receipt = hasty.submit(action.id, {"amount": 6})
    assert (receipt.status, receipt.ok) == ("kept", True)
    live.ready_worker()
    assert live.ended(action.origin.run_id).output == {"amount": 6}
