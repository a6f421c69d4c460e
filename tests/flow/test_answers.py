"""The door, judged against real Postgres and Valkey, without a queue in front of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import StoreUnavailableError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, Receipt
from adjourn.schemas.records.credentials import sign
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import ResolutionItem
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.faulty import Act, FaultyStore
from adjourn.store.postgres.answers import actions, dead_letters, early_answers
from adjourn.store.postgres.database import CLOCK, Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.store.redis.parking import Parking
from adjourn.store.results import DeadLetter
from adjourn.tasks.answers import answering as answers
from adjourn.tasks.answers.answering import receive, receive_answer, receive_kept
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.sweep import sweep
from tests.cases.clock import StoppedClock
from tests.flow.answering import BAD, GOOD, forged, park, status_of
from tests.flow.worker_app import app
from tests.world import WakeUpList


class Desk:
    """A door, and who stands in front of it."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self.db = Database(database_url)
        self.store = FaultyStore(PostgresStore(self.db))
        self.redis = connect(redis_url)
        self.wakeups = WakeUpList()
        self.door = Door(
            store=self.store,
            parking=Parking(self.redis, self.db.signing_key),
            events=Events(self.redis, self.db.signing_key),
            wakeups=self.wakeups,
            tuning=Tuning(),
            app=app,
        )

    def ask(self, body: dict[str, Any] | bytes, **options: Any) -> Receipt:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return receive(self.door, raw, channel="test", **options)

    def letters(self) -> list[DeadLetter]:
        return list(dead_letters.list(self.db))

    def resolutions(self, action: PendingAction) -> list[ResolutionItem]:
        items = runs.items(self.db, action.origin.run_id)
        return [item.body for item in items if isinstance(item.body, ResolutionItem)]

    def close(self) -> None:
        self.db.dispose()
        self.redis.close()


@pytest.fixture
def desk(database_url: str, redis_url: str) -> Iterator[Desk]:
    made = Desk(database_url, redis_url)
    yield made
    made.close()


def good(action: PendingAction, **fields: Any) -> dict[str, Any]:
    return {"action_id": action.id, "data": GOOD, **fields}


# --- what an answer says -------------------------------------------------------------------------


def test_a_bad_answer_is_refused_with_its_reason_and_changes_nothing(desk: Desk) -> None:
    (action,) = park(desk.db)
    for bad in BAD:
        receipt = desk.ask(bad.body(action.id))
        assert (bad.name, receipt.status) == (bad.name, bad.status)
        assert bad.says in receipt.detail, bad.name
        assert not receipt.ok
        letter = desk.letters()[0]
        assert (letter.channel, letter.status, letter.issues) == ("test", bad.status, receipt.issues), bad.name
    assert len(desk.letters()) == len(BAD)
    assert status_of(desk.db, action) == "pending"
    assert not desk.wakeups.published
    assert desk.ask(good(action)).status == "accepted"


def test_refusals_name_the_field_and_leave_id_and_deadline_as_they_were(desk: Desk) -> None:
    (action,) = park(desk.db, timeout_seconds=3600)
    for data, path in (({}, "/approved"), ({"approved": "maybe"}, "/approved")):
        receipt = desk.ask(good(action, data=data))
        assert receipt.status == "invalid"
        assert "approved" in receipt.detail
        assert [issue.path for issue in receipt.issues] == [path]
    assert actions.pending(desk.db) == [action]
    assert desk.ask(good(action)).status == "accepted"
    assert [wakeup.due for wakeup in desk.wakeups.published] == ["reentry"]


@pytest.mark.parametrize(
    ("type_", "data"), [(bool, False), (int, 0), (str, ""), (list[int], []), (int | None, None)], ids=str
)
def test_an_empty_answer_is_an_answer(desk: Desk, type_: Any, data: Any) -> None:
    (action,) = park(desk.db, resume_schema=Contract.of(type_).json_schema)
    door = replace(desk.door, app=None)
    missing = receive(door, json.dumps({"action_id": action.id}), channel="test")
    assert (missing.status, missing.detail) == ("invalid", "data is missing (null has to be said)")
    assert receive(door, json.dumps({"action_id": action.id, "data": data}), channel="test").status == "accepted"
    state = actions.get(desk.db, action.id)
    assert state is not None
    assert state.resolution is not None
    assert (state.resolution.resume, type(state.resolution.resume)) == (data, type(data))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"kind": "cancel", "reason": "not now"}, "cancelled"),
        ({"kind": "fail", "message": "nobody is here"}, "failed"),
        ({"kind": "submit", "data": {"approved": False, "note": None}}, "submitted"),
    ],
)
def test_every_kind_of_answer_resolves_the_action(desk: Desk, fields: dict[str, Any], status: str) -> None:
    (action,) = park(desk.db)
    receipt = desk.ask({"action_id": action.id, **fields})
    assert (receipt.status, receipt.action_status) == ("accepted", status)
    state = actions.get(desk.db, action.id)
    assert state is not None
    assert state.resolution is not None
    assert state.resolution.status == status
    assert state.resolution.reason == fields.get("reason")
    assert state.resolution.message == fields.get("message")
    assert state.resolution.resume == fields.get("data")


def test_the_pinned_schema_decides_where_the_live_model_is_another(desk: Desk) -> None:
    (action,) = park(desk.db, resume_schema={})
    changed = desk.ask(good(action, data={"approved": "yes"}))
    assert changed.status == "accepted", "the live model is another one: the schema that the action shows decides"
    (stricter,) = park(desk.db, resume_schema={"type": "object", "required": ["reference"]})
    assert desk.ask(good(stricter)).status == "invalid"


def test_an_answer_as_an_object_is_held_to_the_same_rules(desk: Desk) -> None:
    (action,) = park(desk.db)
    for data, status in (
        ({"approved": float("nan")}, "malformed"),
        ({"approved": True, "note": "a\0b"}, "malformed"),
        ({"approved": True, "note": "\ud800"}, "malformed"),
        ({"approved": True, "note": "x" * 1_000_001}, "too_large"),
        ({"approved": "yes"}, "invalid"),
    ):
        receipt = receive_answer(desk.door, Answer(action_id=action.id, data=data), channel="test")
        assert receipt.status == status
    assert receive_answer(desk.door, Answer(action_id=action.id, data=GOOD), channel="test").status == "accepted"


# --- which action ----------------------------------------------------------------------------------


def test_the_short_form_is_accepted_by_request_id(desk: Desk) -> None:
    (yes,) = park(desk.db, request_id="approve-17")
    (no,) = park(desk.db, request_id="approve-18")
    assert desk.ask({"id": "approve-17", "ok": True, "data": GOOD}).action_id == yes.id
    assert desk.ask({"id": "approve-18", "ok": False, "reason": "no"}).action_status == "cancelled"
    assert status_of(desk.db, no) == "cancelled"


def test_a_short_answer_that_comes_again_is_a_duplicate(desk: Desk) -> None:
    """What a queue does to an answer whose reader died before it could say that it was done."""
    park(desk.db, request_id="approve-17")
    body = {"id": "approve-17", "ok": True, "data": GOOD}
    assert [desk.ask(body).status for _ in range(2)] == ["accepted", "duplicate"]
    assert desk.ask({"id": "approve-17", "ok": False}).status == "late"


@pytest.mark.parametrize("form", [{"action_id": "approve-17"}, {"id": "approve-17", "ok": True}], ids=["long", "short"])
def test_an_answer_that_comes_again_does_not_take_the_next_action_of_its_request_id(
    desk: Desk, form: dict[str, Any]
) -> None:
    park(desk.db, request_id="approve-17")
    body = {**form, "answer_id": "mail-1", "data": GOOD}
    assert desk.ask(body).status == "accepted"
    (second,) = park(desk.db, request_id="approve-17")
    assert desk.ask(body).status == "duplicate"
    assert status_of(desk.db, second) == "pending"
    assert desk.ask({**body, "answer_id": "mail-2"}).action_id == second.id


def test_an_ambiguous_request_id_is_refused(desk: Desk) -> None:
    both = [park(desk.db, request_id="same")[0] for _ in range(2)]
    receipt = desk.ask({"id": "same", "ok": True, "data": GOOD})
    assert receipt.status == "unknown"
    assert "ambiguous" in receipt.detail
    assert {status_of(desk.db, action) for action in both} == {"pending"}
    assert desk.ask(good(both[0])).status == "accepted"
    assert desk.ask({"id": "same", "ok": True, "data": GOOD}).action_id == both[1].id


def test_a_forged_id_is_unknown_whatever_it_names(desk: Desk) -> None:
    (action,) = park(desk.db)
    key = desk.db.signing_key()
    for action_id in (forged(action.id), action.id.upper(), new_action_id(key + b"x"), "act_", "é", "x" * 200):
        assert desk.ask(good(action, action_id=action_id)).status == "unknown"
    assert status_of(desk.db, action) == "pending"


def test_redis_need_not_remember_an_action(desk: Desk) -> None:
    (action,) = park(desk.db)
    desk.redis.flushdb()
    assert desk.ask(good(action, data={})).status == "invalid"
    assert desk.door.parking.get(action.id) == action, "the record was not put back"
    assert desk.ask(good(action)).status == "accepted"
    assert desk.door.parking.get(action.id) is None


def test_a_stale_record_does_not_make_an_ended_action_answerable(desk: Desk) -> None:
    (action,) = park(desk.db)
    assert desk.ask(good(action)).status == "accepted"
    desk.door.parking.put([action])
    assert desk.ask(good(action, data={"approved": False})).status == "late"
    desk.door.parking.put([action])
    assert desk.ask(good(action, data={})).status == "late", "nobody may be told that it still waits"
    assert desk.door.parking.get(action.id) is None
    assert len(desk.resolutions(action)) == 1


# --- first answer wins -----------------------------------------------------------------------------


def test_an_answer_without_an_id_is_known_by_its_content(desk: Desk) -> None:
    (action,) = park(desk.db)
    assert desk.ask(good(action)).status == "accepted"
    assert desk.ask({"data": dict(GOOD), "action_id": action.id}).status == "duplicate"
    assert desk.ask({"action_id": action.id, "data": {"approved": False}}).status == "late"


def test_an_answer_id_may_be_used_again_after_a_refusal(desk: Desk) -> None:
    (action,) = park(desk.db)
    assert desk.ask(good(action, data={}, answer_id="a1")).status == "invalid"
    assert desk.ask(good(action, answer_id="a1")).status == "accepted"


def test_an_answer_id_belongs_to_its_action(desk: Desk) -> None:
    """The same id and the same payload for two actions are two answers."""
    first, second = park(desk.db, 2)
    assert desk.ask(good(first, answer_id="a1")).status == "accepted"
    assert desk.ask(good(second, answer_id="a1")).status == "accepted"


def test_of_many_answers_at_once_one_wins_and_all_are_told(desk: Desk) -> None:
    (action,) = park(desk.db)
    together, receipts = Barrier(8), []

    def answer(number: int) -> None:
        together.wait()
        receipts.append(desk.ask(good(action, answer_id=f"a{number % 2}")))

    threads = [Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receipt.status for receipt in receipts) == ["accepted", *["duplicate"] * 3, *["late"] * 4]
    assert len(desk.resolutions(action)) == 1


@pytest.mark.parametrize("data", [GOOD, {}], ids=["of its shape", "of another shape"])
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not swept"])
def test_an_answer_past_the_deadline_is_late_and_wakes_the_run(desk: Desk, swept: bool, data: Any) -> None:
    (action,) = park(desk.db, timeout_seconds=0)
    if swept:
        assert sweep(desk.door).overdue == 1
    receipt = desk.ask(good(action, data=data))
    assert (receipt.status, receipt.action_status) == ("late", "expired")
    assert desk.wakeups.published == [WakeUp(run_id=action.origin.run_id, due="reentry")]


def test_an_answer_to_a_cancelled_run_is_late(desk: Desk) -> None:
    (action,) = park(desk.db)
    runs.cancel(desk.db, action.origin.run_id, reason=None, by=None)
    receipt = desk.ask(good(action))
    assert (receipt.status, receipt.action_status) == ("late", "cancelled")
    assert not desk.wakeups.published


# --- early answers -----------------------------------------------------------------------------------


def test_too_many_early_answers_are_refused(desk: Desk) -> None:
    action_id = new_action_id(desk.db.signing_key())
    limit = desk.door.tuning.early_answers_per_action
    statuses = [desk.ask({"action_id": action_id, "data": n}).status for n in range(limit + 1)]
    assert statuses == ["early"] * limit + ["unknown"]


def test_early_answers_are_judged_in_order_when_the_action_opens(desk: Desk) -> None:
    action_id = new_action_id(desk.db.signing_key())
    for data in ({}, GOOD, {"approved": False}):
        assert desk.ask({"action_id": action_id, "data": data}).status == "early"
    (action,) = park(desk.db, action_id=action_id)
    receive_kept(desk.door, action_id)
    state = actions.get(desk.db, action_id)
    assert state is not None
    assert state.resolution is not None
    assert state.resolution.resume == GOOD
    assert [letter.status for letter in desk.letters()] == ["late", "invalid"]
    assert early_answers.of_action(desk.db, action.id) == ()


def test_an_action_that_opens_while_an_answer_is_kept_gets_it(desk: Desk) -> None:
    action_id = new_action_id(desk.db.signing_key())

    def open_first(act: Act) -> None:
        if act.name == "early_answers.keep":
            park(desk.db, action_id=action_id)

    desk.store.before = open_first
    assert desk.ask({"action_id": action_id, "data": GOOD}).status == "accepted"
    assert sweep(desk.door).early == 1
    assert not desk.letters()


def test_who_sent_an_early_answer_is_remembered_and_its_credential_is_not(desk: Desk) -> None:
    action_id = new_action_id(desk.db.signing_key())
    credential = sign("ann", desk.db.signing_key(), scope=action_id)
    assert desk.ask({"action_id": action_id, "data": GOOD, "credential": credential}).status == "early"
    (kept,) = early_answers.of_action(desk.db, action_id)
    assert (kept.answered_by, credential in kept.body) == ("ann", False)
    (action,) = park(desk.db, action_id=action_id, answerers=("ann",))
    receive_kept(desk.door, action_id)
    assert status_of(desk.db, action) == "submitted"


# --- who answers ---------------------------------------------------------------------------------------


def test_only_those_who_may_answer_do(desk: Desk) -> None:
    (action,) = park(desk.db, answerers=("ann", "bob"))
    (other,) = park(desk.db)
    key = desk.db.signing_key()
    soon = desk.db.clock() + timedelta(minutes=1)
    refused = {
        "nobody": None,
        "another": sign("eve", key, scope=action.id),
        "for another action": sign("ann", key, scope=other.id),
        "run out": sign("ann", key, expires_at=soon - timedelta(hours=1)),
        "forged": sign("ann", b"another key"),
        "no credential": "ann",
        "text": "adj1.é.é",
    }
    for what, credential in refused.items():
        receipt = desk.ask(good(action, **({} if credential is None else {"credential": credential})))
        assert (what, receipt.status) == (what, "forbidden")
    assert status_of(desk.db, action) == "pending"
    kept = b"".join(letter.body for letter in desk.letters()) + "".join(r.detail for r in desk.letters()).encode()
    assert not [c for c in refused.values() if c and c.startswith("adj1.") and c.encode() in kept]
    credential = sign("bob", key, scope=action.id, expires_at=soon)
    assert desk.ask(good(action, credential=credential)).status == "accepted"
    (resolution,) = desk.resolutions(action)
    assert resolution.answered_by == "bob"


def test_a_credential_ends_by_the_clock_of_the_database_which_no_other_answer_asks(desk: Desk) -> None:
    clock = StoppedClock(desk.db)
    clock.advance(-timedelta(days=400).total_seconds())
    first, second = (park(desk.db, answerers=("ann",))[0] for _ in range(2))
    credential = sign("ann", desk.db.signing_key(), expires_at=clock.now + timedelta(seconds=1))
    seen: list[str] = []
    desk.db.watch = seen.append
    assert desk.ask(good(first, credential=credential)).status == "accepted"
    assert seen.count(str(CLOCK)) == 1
    clock.advance(1)
    assert desk.ask(good(second, credential=credential)).status == "forbidden"
    seen.clear()
    assert desk.ask(good(second), answered_by="ann").status == "accepted"
    assert str(CLOCK) not in seen


def test_the_channel_may_know_who_answers(desk: Desk) -> None:
    (action,) = park(desk.db, answerers=("ann",))
    assert desk.ask(good(action), answered_by="eve").status == "forbidden"
    assert desk.ask(good(action, answered_by="ann"), answered_by="eve").status == "malformed"
    assert desk.ask(good(action), answered_by="ann").status == "accepted"


@pytest.mark.parametrize(
    "body",
    [
        b'{"credential": "adj1.secret.x", "tool": 1}',
        b'{"credential": "adj1.secret.x", ',
        b'{"credential": "adj1.secret',
        rb'{"\u0063redential": "adj1.secret.x"}',
    ],
)
def test_a_malformed_message_is_kept_without_its_credential(desk: Desk, body: bytes) -> None:
    assert desk.ask(body).status == "malformed"
    (letter,) = desk.letters()
    assert b"secret" not in letter.body


# --- what goes wrong behind the door -----------------------------------------------------------------


def test_an_answer_that_breaks_its_reader_is_a_dead_letter(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (action,) = park(desk.db)

    def breaks(*_: Any, **__: Any) -> None:
        raise KeyError("a validator of the user's own")

    monkeypatch.setattr(answers, "validated", breaks)
    receipt = desk.ask(good(action))
    assert (receipt.status, receipt.detail) == ("malformed", "could not be judged (KeyError)")
    assert len(desk.letters()) == 1


def test_nothing_is_judged_while_the_store_is_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (action,) = park(desk.db)

    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("PostgreSQL", "away")

    monkeypatch.setattr(Database, "execute", away)
    for body in (good(action), b"junk"):
        with pytest.raises(StoreUnavailableError):
            desk.ask(body)


def test_a_redis_that_is_down_costs_no_answer(desk: Desk, database_url: str) -> None:
    (action,) = park(desk.db)
    nowhere = connect("redis://127.0.0.1:1/0")
    door = replace(
        desk.door, parking=Parking(nowhere, desk.db.signing_key), events=Events(nowhere, desk.db.signing_key)
    )
    assert receive(door, json.dumps(good(action)), channel="test").status == "accepted"


def test_after_a_loss_of_redis_a_sweep_gives_every_wakeup_again(desk: Desk) -> None:
    first, second = (park(desk.db)[0] for _ in range(2))
    assert desk.ask(good(first)).status == "accepted"
    sweep(desk.door)
    desk.redis.flushdb()
    desk.wakeups.published.clear()
    report = sweep(desk.door)
    assert (report.rebuilt, report.unsent) == (1, 1)
    assert desk.wakeups.published == [WakeUp(run_id=first.origin.run_id, due="reentry")]
    assert desk.door.parking.get(second.id) == second
    assert sweep(desk.door).found() == {}
