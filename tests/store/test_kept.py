"""What is kept beside the runs: answers that came early, and messages that were refused."""

from __future__ import annotations

from adjourn.schemas.records.answers import Issue
from adjourn.store.postgres.answers import dead_letters, early_answers
from adjourn.store.postgres.database import Database
from tests.store.steps import Steps, tuned


def keep(db: Database, action_id: str, body: str = "{}") -> bool:
    return early_answers.keep(db, action_id=action_id, body=body, answered_by="ann") is not None


def test_early_answers_come_back_in_order_until_they_are_dropped(db: Database) -> None:
    assert keep(db, "act_1", '{"n": 1}')
    assert keep(db, "act_1", '{"n": 2}')
    assert keep(db, "act_2")
    kept = early_answers.of_action(db, "act_1")
    assert [(early.body, early.answered_by) for early in kept] == [('{"n": 1}', "ann"), ('{"n": 2}', "ann")]
    assert early_answers.of_action(db, "act_1") == kept
    early_answers.drop(db, [kept[0].id])
    assert early_answers.of_action(db, "act_1") == kept[1:]
    early_answers.drop(db, [kept[0].id])
    assert len(early_answers.of_action(db, "act_2")) == 1


def test_early_answers_are_bounded_per_action_and_in_all(db: Database) -> None:
    db = tuned(db, early_answers_per_action=2, early_answers_kept=4)
    assert [keep(db, "act_1") for _ in range(3)] == [True, True, False]
    assert [keep(db, f"act_other_{number}") for number in range(3)] == [True, True, False]


def test_early_answers_are_found_once_their_action_is_there(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    action = steps.new_action(claim)
    assert keep(db, action.id)
    keep(db, "act_never_opened")
    assert early_answers.for_open_actions(db, 10) == ()
    (action_id,), _ = steps.open(claim, id=action.id)
    assert [early.action_id for early in early_answers.for_open_actions(db, 10)] == [action_id]
    steps.answer(action_id)
    (early,) = early_answers.for_open_actions(db, 10)
    early_answers.drop(db, [early.id])
    assert early_answers.for_open_actions(db, 10) == ()


def test_early_answers_whose_action_never_opens_go_after_some_days(db: Database, steps: Steps) -> None:
    db = tuned(db, early_answer_days=2)
    _, (opened,) = steps.parked()
    keep(db, opened)
    keep(db, "act_never_opened")
    assert early_answers.prune(db) == 0
    steps.advance(2 * 86_400 + 1)
    keep(db, "act_new")
    assert early_answers.prune(db) == 1
    assert early_answers.of_action(db, "act_never_opened") == ()
    assert len(early_answers.of_action(db, opened)) == len(early_answers.of_action(db, "act_new")) == 1


def test_dead_letters_are_kept_whole_and_read_newest_first(db: Database) -> None:
    issues = (Issue(path="/a", message="is missing"), Issue(path="", message="\x00 \ud800"))
    dead_letters.add(db, channel="queue", status="malformed", detail="first", body=b"\x00\xff{")
    dead_letters.add(
        db, channel="http", status="invalid", detail="second", body=b"{}", action_id="act_1", issues=issues
    )
    second, first = dead_letters.list(db)
    assert (first.channel, first.status, first.detail, first.body) == ("queue", "malformed", "first", b"\x00\xff{")
    assert (first.action_id, first.issues) == (None, ())
    assert (second.action_id, second.issues) == ("act_1", issues)
    assert second.at >= first.at
    assert dead_letters.list(db, limit=1) == (second,)


def test_a_dead_letter_is_kept_whatever_was_in_the_message(db: Database) -> None:
    dead_letters.add(
        tuned(db, dead_letter_bytes=10),
        channel="queue",
        status="unknown",
        detail="no \x00 \ud800",
        body=b"x" * 100,
        action_id="\udfff\x00",
    )
    (letter,) = dead_letters.list(db)
    assert (letter.detail, letter.action_id, letter.body) == ("no \ufffd ?", "?\ufffd", b"x" * 10)


def test_dead_letters_are_capped_and_the_oldest_go(db: Database) -> None:
    db = tuned(db, dead_letters_kept=2)
    for number in range(5):
        dead_letters.add(db, channel="queue", status="unknown", detail=str(number), body=b"")
    assert dead_letters.prune(db) == 3
    assert [letter.detail for letter in dead_letters.list(db)] == ["4", "3"]
    assert dead_letters.prune(db) == 0
