"""Callbacks from elsewhere: sent again, forged, refused, and each for its own user.

What a page or a status line says of it is the gateway's; these are the answers behind them.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Answer, Context, PendingAction, WaitPoint, tool
from adjourn.schemas.records.credentials import sign
from adjourn.tasks.models.scripted import call, say
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, YES, asking
from tests.world import Counters, World, scripted


class Consent(BaseModel):
    user: str


class Token(BaseModel):
    value: str


PROVIDER = "provider"
consent = WaitPoint("consent", suspend=Consent, resume=Token, answerers=[PROVIDER])
anybodys = WaitPoint("token", suspend=Consent, resume=Token)


def state_of(w: World, action: PendingAction) -> str:
    """What a provider sends back with its callback: a credential for this action, and no other."""
    return sign(PROVIDER, w.db.signing_key(), scope=action.id)


# --- a provider that sends an event again ----------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_one_event_three_times_is_one_answer(build: Build, way: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    before = [w.answer(action, YES, answer_id="evt-1", settle=False) for _ in range(2)]
    w.settle()
    assert w.run(run_id).status == "completed"
    after = w.answer(action, YES, answer_id="evt-1")
    assert [receipt.status for receipt in (*before, after)] == ["accepted", "duplicate", "duplicate"]
    assert all(receipt.ok for receipt in (*before, after)), "a provider would send it once more"
    assert (fx["fx"], [o.content for o in w.outputs(run_id)]) == (1, [{"x": 1, "note": None}])


def test_an_event_that_says_something_else_is_no_repetition(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    assert w.answer(action, YES, answer_id="evt-1").status == "accepted"
    assert w.answer(action, {"approved": False}, answer_id="evt-1").status == "late"
    assert w.answer(action, YES, answer_id="evt-2").status == "late"
    assert fx["fx"] == 1


# --- a state that does not fit, and an error of the provider ---------------------------------


def connecting(seen: Counters, point: WaitPoint[Consent, Token] = consent) -> Any:
    @tool(wait_points=[point])
    def connect(ctx: Context, user: str) -> str:
        """Have a user connect an account, and use its token."""
        token = ctx.ask(point, Consent(user=user)).value
        seen.bump(f"{user}:{token}")
        return f"connected {user}"

    return connect


def test_a_state_that_does_not_fit_resolves_nothing(build: Build) -> None:
    seen = Counters()
    w = build(connecting(seen), model=scripted(call("connect", user="ann"), say("done")))
    run_id, other_id = w.start(), w.start()
    action, other = w.the_action(run_id), w.the_action(other_id)
    states = {
        "none": {},
        "made up": {"credential": "adj1.e30.AAAA"},
        "of another request": {"credential": state_of(w, other)},
        "of somebody else": {"credential": sign("mallory", w.db.signing_key(), scope=action.id)},
    }
    for what, fields in states.items():
        receipt = w.answer(action, {"value": "t"}, **fields)
        assert (receipt.ok, receipt.status) == (False, "forbidden"), what
        assert w.answer(action, kind="fail", message="access_denied", **fields).status == "forbidden", what
    assert (w.status_of(action.id), seen.seen) == ("pending", {})
    for each in (action, other):
        assert w.answer(each, {"value": "t"}, credential=state_of(w, each)).status == "accepted"
    assert w.run(run_id).status == w.run(other_id).status == "completed"


def test_an_error_of_the_provider_ends_the_action_and_its_state(build: Build) -> None:
    seen = Counters()
    w = build(connecting(seen), model=scripted(call("connect", user="ann"), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    state = state_of(w, action)
    assert w.answer(action, kind="fail", message="access_denied", credential=state).status == "accepted"
    assert w.status_of(action.id) == "failed"
    late = w.answer(action, {"value": "t"}, credential=state)
    assert (late.status, late.ok, w.status_of(action.id)) == ("late", False, "failed")
    (output,) = w.outputs(run_id)
    assert output.outcome == "failed"
    assert "access_denied" in str(output.content)
    assert seen.seen == {}


# --- users share a worker, and no credentials ------------------------------------------------


def test_each_user_is_asked_and_each_tool_sees_its_own_token(build: Build) -> None:
    seen = Counters()
    model = scripted(lambda request: say("", call("connect", user=request.conversation[0].text)), say("done"))
    w = build(connecting(seen), model=model)
    ann, bob = w.start("ann"), w.start("bob")
    first, second = w.the_action(ann), w.the_action(bob)
    assert w.answer(first, {"value": "token of ann"}, credential=state_of(w, first)).status == "accepted"
    assert (w.run(ann).status, w.run(bob).status) == ("completed", "parked")
    assert w.the_action(bob) == second, "the second user is still asked"
    assert w.answer(second, {"value": "token of bob"}, credential=state_of(w, second)).status == "accepted"
    assert seen.seen == {"ann:token of ann": 1, "bob:token of bob": 1}


def test_a_token_that_the_worker_knows_is_its_users_alone(build: Build) -> None:
    """A resolver of this process knows the token of one user: the other is asked all the same."""
    seen = Counters()

    def known(action: PendingAction) -> Answer | None:
        return Answer(action_id=action.id, data={"value": "kept"}) if action.input["user"] == "ann" else None

    model = scripted(lambda request: say("", call("connect", user=request.conversation[0].text)), say("done"))
    w = build(connecting(seen, anybodys), model=model, resolver=known)
    ann, bob, ann_again = (w.start(user) for user in ("ann", "bob", "ann"))
    assert [w.run(run_id).status for run_id in (ann, bob, ann_again)] == ["completed", "parked", "completed"]
    assert w.answer(w.the_action(bob), {"value": "token of bob"}).status == "accepted"
    assert seen.seen == {"ann:kept": 2, "bob:token of bob": 1}
