"""What an approver is shown where not all of a call has JSON, and what they edit has the shape that is shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainSerializer

from adjourn import Agent, Context, PolicyCall, call, require_approval, say, tool
from tests.flow.conftest import Plant
from tests.world import World, scripted

Starred = Annotated[int, PlainSerializer(lambda value: "***")]


class Account(BaseModel):
    owner: str = "me"
    pin: Annotated[str, Field(exclude=True)] = "1234"


ACCOUNT = Account(pin="4321")


def partly_shown(plant: Plant, ran: list[Any], judged: list[Any], **given: Any) -> World:
    @tool
    def pay(
        ctx: Context,
        amount: int,
        urgent: bool = True,
        within: timedelta = timedelta(days=1),
        pin: Annotated[str, Field(exclude=True)] = "1234",
        account: Account = ACCOUNT,
        starred: Starred = 5,
    ) -> str:
        """Pay somebody."""
        ran.append((amount, urgent, within, pin, account.owner, account.pin, starred))
        return "paid"

    def judge(judging: PolicyCall) -> None:
        judged.append(judging.args)

    model = scripted(call("pay", amount=3, **given), say("done"))
    return plant(Agent("agent", model=model, tools=[pay], policies=[judge, require_approval(edit=True)]))


def test_a_default_without_json_hides_no_other_and_is_named(plant: Plant) -> None:
    ran: list[Any] = []
    judged: list[Any] = []
    world = partly_shown(plant, ran, judged)
    run_id = world.start()
    action = world.the_action(run_id)
    assert action.input["args"] == {"amount": 3, "urgent": True, "within": "P1D"} == judged[0]
    assert action.input["not_shown"] == ["pin", "account", "starred"]
    world.answer(action, {"approved": True})
    assert ran == [(3, True, timedelta(days=1), "1234", "me", "4321", 5)]
    assert world.run(run_id).status == "completed"


def test_a_default_inside_what_was_given_is_named_by_its_parameter(plant: Plant) -> None:
    world = partly_shown(plant, [], [], account={"owner": "you"}, starred=7, pin="0")
    action = world.the_action(world.start())
    assert action.input["args"] == {
        "amount": 3,
        "account": {"owner": "you"},
        "starred": 7,
        "pin": "0",
        "urgent": True,
        "within": "P1D",
    }
    assert action.input["not_shown"] == ["account"]


def test_a_default_that_is_never_written_is_named(plant: Plant) -> None:
    @tool(input=Account)
    def open_account(ctx: Context, account: Account) -> str:
        """Open it."""
        return account.pin

    model = scripted(call("open_account"), say("done"))
    world = plant(Agent("agent", model=model, tools=[open_account], policies=[require_approval()]))
    shown = world.the_action(world.start()).input
    assert (shown["args"], shown["not_shown"]) == ({"owner": "me"}, ["pin"])


def test_the_approval_of_a_partly_shown_call_is_asked_for_once(plant: Plant) -> None:
    ran: list[Any] = []
    world = partly_shown(plant, ran, [])
    run_id = world.start()
    shown = world.the_action(run_id).input["args"]
    world.answer(world.the_action(run_id), {"approved": True, "args": {**shown, "amount": 4}})
    if world.pending(run_id):  # the edit is another call, which has to be approved as well
        world.answer(world.the_action(run_id), {"approved": True})
    assert [each[0] for each in ran] == [4]


@pytest.mark.parametrize(
    ("answer", "runs_with"),
    [
        ({}, 5),
        ({"args": None}, 5),
        ({"args": {"input": None}}, None),
        ({"args": {"input": 7}}, 7),
    ],
)
def test_an_edit_has_the_shape_that_was_shown_and_null_is_a_value(plant: Plant, answer: Any, runs_with: Any) -> None:
    ran: list[Any] = []

    @tool(input=int | None)  # type: ignore[arg-type]
    def level(ctx: Context, value: Any) -> str:
        """Set a level."""
        ran.append(value)
        return "set"

    model = scripted(call("level", input=5), say("done"))
    world = plant(Agent("agent", model=model, tools=[level], policies=[require_approval(edit=True, when=first(ran))]))
    run_id = world.start()
    action = world.the_action(run_id)
    assert action.input["args"] == {"input": 5}
    for wrong in (7, {"input": "7"}, {}, {"input": 7, "other": 1}):
        assert world.answer(action, {"approved": True, "args": wrong}).status == "invalid"
    assert world.answer(action, {"approved": True, **answer}).status == "accepted"
    assert ran == [runs_with]
    assert world.run(run_id).status == "completed"


def first(ran: list[Any]) -> Any:
    """Demand an approval of the call as the model made it."""
    return lambda judging: judging.args["input"] == 5
