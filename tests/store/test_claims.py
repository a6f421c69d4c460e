"""Claims: who holds a run, and what a claim shows."""

from __future__ import annotations

import importlib
import pkgutil
from functools import partial

import pytest
import sqlalchemy as sa

import adjourn.store
from adjourn.schemas.errors import StaleClaimError
from adjourn.schemas.internal.state import Park, Requeue
from adjourn.schemas.internal.state_version import STATE_VERSION
from adjourn.schemas.records.ids import new_claim_token
from adjourn.schemas.records.items import MessageItem, stored
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.runs.claims import CLAIM
from tests.store.steps import (
    LEASE_SECONDS,
    WAKEUP_RETRY_SECONDS,
    Steps,
    at_once,
    output,
    response,
    slow_transaction,
    tuned,
    usage,
)

SHOW = sa.text("select current_setting('synchronous_commit') as setting")


def test_a_claim_holds_everything_the_next_step_needs(db: Database, steps: Steps) -> None:
    claim = steps.claimed(text="hello")
    assert claim.run.status == "running"
    assert (claim.revision, claim.earlier, claim.actions) == (0, (), ())
    assert [item.body for item in claim.items] == [MessageItem(text="hello")]
    steps.write(claim, response("call_1"), usage=usage(5), turns=1, tool_calls=1)
    (action_id,), _ = steps.open(claim, becomes=Park(), call_id="call_1")
    steps.answer(action_id)
    again = steps.claim(claim.run.id)
    assert [item.body.kind for item in again.items] == ["message", "response", "suspension", "resolution"]
    assert [item.seq for item in again.items] == [1, 2, 3, 4]
    assert (again.run.usage, again.run.turns, again.run.tool_calls) == (usage(5), 1, 1)
    assert again.revision == 1
    assert again.actions == (actions.get(db, action_id),)


def test_earlier_runs_of_the_thread_come_in_order_and_without_those_that_wait(steps: Steps) -> None:
    first = steps.claimed(thread_id="thread-1", text="eins, ä")
    steps.write(first, response())
    steps.end(first)
    second = steps.claimed(thread_id="thread-1", text="two")
    runs.cancel(steps.db, second.run.id, reason=None, by=None)
    third = steps.start(thread_id="thread-1", text="three")
    steps.start(thread_id="thread-1", text="four", enqueue=True)
    claim = steps.claim(third.run_id)
    assert [(item.run_id, item.body.kind) for item in claim.earlier] == [
        (first.run.id, "message"),
        (first.run.id, "response"),
        (first.run.id, "end"),
        (second.run.id, "message"),
        (second.run.id, "end"),
    ]
    assert [item.body for item in claim.items] == [MessageItem(text="three")]
    bodies = [stored(item.body) for item in (*claim.earlier, *claim.items)]
    assert claim.history_bytes == sum(len(body.encode()) for body in bodies)


def test_of_many_claims_one_wins(steps: Steps) -> None:
    for _ in range(30):
        run_id = steps.start().run_id
        claims = at_once(*[partial(steps.try_claim, run_id)] * 5)
        (winner,) = [claim for claim in claims if claim]
        assert steps.row(run_id).token == winner.token


def test_a_run_that_is_not_due_is_not_claimed(steps: Steps) -> None:
    assert steps.try_claim("run-nobody-has") is None
    running = steps.claimed()
    assert steps.try_claim(running.run.id) is None
    parked, _ = steps.parked()
    assert steps.try_claim(parked) is None
    ended = steps.claimed()
    steps.end(ended)
    assert steps.try_claim(ended.run.id) is None


def test_a_claim_with_a_token_that_holds_the_run_returns_what_it_holds(steps: Steps) -> None:
    """So a claim may be sent again when the connection broke under it."""
    claim = steps.claimed()
    steps.write(claim, response())
    again = steps.claim(claim.run.id, token=claim.token)
    assert [item.body.kind for item in again.items] == ["message", "response"]


def test_a_delayed_run_is_claimed_when_its_time_has_come(steps: Steps) -> None:
    claim = steps.claimed()
    steps.write(claim, pause_seconds=10, becomes=Requeue(after_pause=True))
    assert steps.try_claim(claim.run.id) is None
    steps.advance(10.1)
    steps.claim(claim.run.id)


def test_suspects_are_claimed_by_their_own_kind_only(steps: Steps) -> None:
    run_id = steps.start().run_id
    assert steps.try_claim(run_id, suspect=True) is None
    claim = steps.claim(run_id)
    steps.write(claim, becomes=Requeue(due="suspect"))
    assert steps.try_claim(run_id) is None
    steps.claim(run_id, suspect=True)


def test_reload_shows_what_came_since(steps: Steps) -> None:
    claim = steps.claimed()
    (action_id,), _ = steps.open(claim)
    steps.answer(action_id)
    again = runs.reload(steps.db, claim)
    assert again.token == claim.token
    assert (claim.revision, again.revision) == (0, 1)
    (state,) = again.actions
    assert state.resolution is not None


def test_reload_of_a_lost_claim(steps: Steps) -> None:
    claim = steps.claimed()
    runs.put_back(steps.db, [(claim.run.id, claim.token)])
    steps.claim(claim.run.id)
    with pytest.raises(StaleClaimError) as caught:
        runs.reload(steps.db, claim)
    assert caught.value.run_id == claim.run.id


def test_renew_keeps_what_is_held_and_tells_what_is_not(steps: Steps) -> None:
    kept, lost = steps.claimed(), steps.claimed()
    runs.cancel(steps.db, lost.run.id, reason=None, by=None)
    before = steps.row(kept.run.id).lease_until
    held = [(kept.run.id, kept.token), (lost.run.id, lost.token), (kept.run.id, new_claim_token())]
    assert runs.renew(tuned(steps.db, lease_seconds=2 * LEASE_SECONDS), held) == {kept.run.id}
    assert (steps.row(kept.run.id).lease_until - before).total_seconds() > LEASE_SECONDS / 2
    assert steps.row(lost.run.id).lease_until is None


def test_put_back_makes_runs_due_and_counts_no_death(steps: Steps) -> None:
    mine, lost = steps.claimed(), steps.claimed()
    suspect = steps.claimed()
    steps.write(suspect, becomes=Requeue(due="suspect"))
    suspect = steps.claim(suspect.run.id, suspect=True)
    steps.end(lost)
    wakeups = runs.put_back(steps.db, [(claim.run.id, claim.token) for claim in (mine, lost, suspect)])
    assert sorted(wakeups, key=lambda wakeup: wakeup.due) == [
        WakeUp(run_id=mine.run.id, due="reentry"),
        WakeUp(run_id=suspect.run.id, due="suspect"),
    ]
    assert (steps.row(mine.run.id).deaths, steps.run(lost.run.id).status) == (0, "completed")
    with pytest.raises(StaleClaimError):
        steps.write(mine, output())
    steps.claim(mine.run.id)
    steps.claim(suspect.run.id, suspect=True)


def test_a_claim_that_waited_for_an_answer_does_not_pair_its_counter_with_older_actions(
    db: Database, database_url: str, steps: Steps
) -> None:
    """The claim's snapshot is older than the answer it waited for. Seen with the new counter, the open
    action of that snapshot would let the run park on an answer that nobody has read.
    """
    run_id, (first, second) = steps.parked(count=2)
    steps.answer(first)
    with slow_transaction(db, database_url) as slow:
        slow.run(actions.ANSWER, answer_params(second))
        waiting = slow.then(lambda: steps.claim(run_id))
        slow.commit()
        claim = waiting.result()
    states = {state.action.id: state.action.status for state in claim.actions}
    assert (states[second], claim.revision) == ("pending", 1)
    assert steps.write(claim, becomes=Park()).status == "running"
    again = runs.reload(db, claim)
    assert {state.action.status for state in again.actions} == {"submitted"}


def answer_params(action_id: str) -> dict[str, object]:
    return {
        "action_id": action_id,
        "status": "submitted",
        "resume": "1",
        "reason": None,
        "message": None,
        "answer_id": "answer-of-the-slow-one",
        "digest": "d",
        "answered_by": None,
        "channel": None,
        "fits": True,
        "received_at": None,
        "wakeup_retry_seconds": WAKEUP_RETRY_SECONDS,
    }


def test_a_thousand_items_come_back_whole(db: Database, steps: Steps) -> None:
    claim = steps.claimed()
    content = {"text": 'a "quoted" line\n', "list": [1, 2.5, None, True], "nul": "\x00", "wide": "\N{GRINNING FACE}"}
    items = [output(f"call_{number}", content) for number in range(1000)]
    steps.write(claim, *items)
    loaded = runs.reload(db, claim).items
    assert [item.body for item in loaded[1:]] == items
    assert [item.seq for item in loaded] == [*range(1, 1002)]


def test_a_claim_commits_without_waiting_for_the_disk_and_an_answer_does_not(
    db: Database, database_url: str, steps: Steps
) -> None:
    _, (action_id,) = steps.parked()
    run_id = steps.start().run_id
    claim = {
        "run_id": run_id,
        "token": new_claim_token(),
        "suspect": False,
        "lease_seconds": LEASE_SECONDS,
        "state_version": STATE_VERSION,
        "place": None,
    }
    with slow_transaction(db, database_url) as slow:
        slow.run(sa.text("select set_config('synchronous_commit', 'local', false)"), {})
        assert slow.run(CLAIM, claim).id == run_id
        assert slow.run(SHOW, {}).setting == "off"
        slow.commit()
        assert slow.run(SHOW, {}).setting == "local"
        assert slow.run(actions.ANSWER, answer_params(action_id)).accepted
        assert slow.run(SHOW, {}).setting == "local"


def test_no_other_statement_touches_how_it_commits() -> None:
    statements = {
        (module.name, name): value.text
        for module in pkgutil.walk_packages(adjourn.store.__path__, "adjourn.store.")
        if "migrations" not in module.name
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, sa.TextClause)
    }
    assert len(statements) > 20
    assert [name for name, text in statements.items() if "synchronous_commit" in text] == [
        ("adjourn.store.postgres.runs.claims", "CLAIM")
    ]
