"""An approval means what the approver saw: policies together, edits, defaults, and what the model reads of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import AliasChoices, BaseModel, Field

from adjourn import (
    Agent,
    App,
    Context,
    Deny,
    ModelRequest,
    PolicyCall,
    RequireApproval,
    Tool,
    WaitPoint,
    call,
    require_approval,
    say,
    tool,
)
from adjourn.schemas.records.messages import ModelTurn, ResultTurn
from adjourn.store.postgres.runs import forks
from adjourn.tasks.engine.conversation import conversation
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted

YES = {"approved": True}


def paying(counters: Counters) -> Tool[..., Any]:
    @tool
    def pay(ctx: Context, amount: int, to: str = "me", urgent: bool = True) -> str:
        """Pay somebody."""
        counters.bump(f"{amount} to {to}")
        return f"paid {amount}"

    return pay


def cap(most: int) -> Callable[[PolicyCall], Any]:
    def too_much(judged: PolicyCall) -> Any:
        return Deny(f"over {most}") if judged.args["amount"] > most else None

    return too_much


def silent(judged: PolicyCall) -> None:
    return None


def grown(plant: Plant, counters: Counters, *policies: Any, amount: int = 500, **args: Any) -> World:
    model = scripted(call("pay", amount=amount, **args), say("done"))
    return plant(Agent("agent", model=model, tools=[paying(counters)], policies=policies))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_strictest_of_all_policies_holds_in_any_order(
    plant: Plant, counters: Counters, order: tuple[int, ...]
) -> None:
    policies = [silent, require_approval("pay"), cap(100)]
    world = grown(plant, counters, *[policies[each] for each in order])
    run_id = world.start()
    assert world.pending(run_id) == []
    assert [(each.outcome, each.content) for each in world.outputs(run_id)] == [
        ("declined", "declined by policy: over 100")
    ]
    assert counters.seen == {}


def test_all_policies_are_asked(plant: Plant, counters: Counters) -> None:
    def noting(name: str) -> Any:
        def note(judged: PolicyCall) -> Any:
            counters.bump(name)
            return Deny(name) if name == "first" else None

        return note

    world = grown(plant, counters, noting("first"), noting("second"), noting("third"))
    world.start()
    assert counters.seen == {"first": 1, "second": 1, "third": 1}


@pytest.mark.parametrize("order", [0, 1])
def test_a_policy_that_raises_is_no_silence_beside_an_approval(plant: Plant, counters: Counters, order: int) -> None:
    policies: list[Any] = [require_approval("pay"), lambda judged: 1 / 0]
    world = grown(plant, counters, *(policies if order else reversed(policies)))
    run_id = world.start()
    assert [each.outcome for each in world.outputs(run_id)] == ["error"]
    assert counters.seen == {}


@pytest.mark.parametrize("order", [0, 1])
def test_an_edit_is_held_to_every_policy_again(plant: Plant, counters: Counters, order: int) -> None:
    policies = [cap(1000), require_approval("pay", edit=True)]
    world = grown(plant, counters, *(policies if order else reversed(policies)))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 50_000}})
    assert counters.seen == {}
    assert [each.outcome for each in world.outputs(run_id)] == ["declined"]
    assert world.run(run_id).status == "completed"


def big(judged: PolicyCall) -> Any:
    return RequireApproval(prompt="That much?", answerers=["boss"]) if judged.args["amount"] > 1000 else None


def test_an_edit_that_another_policy_wants_approved_is_asked_about_as_edited(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", edit=True), big)
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 50_000}})
    second = world.the_action(run_id)
    assert second.prompt == "That much?"
    assert second.input["args"] == {"amount": 50_000, "to": "me", "urgent": True}
    assert second.answerers == ("boss",)
    assert counters.seen == {}
    world.deploy(world.app)
    client = world.answer_as("boss", second, YES)
    assert client.status == "accepted"
    assert counters.seen == {"50000 to me": 1}


def test_the_policy_that_let_a_person_edit_is_content_with_the_edit(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", edit=True))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 7}})
    assert world.run(run_id).status == "completed"
    assert counters.seen == {"7 to me": 1}


def test_different_people_are_asked_one_after_the_other(plant: Plant, counters: Counters) -> None:
    def of(who: str) -> Any:
        def demand(judged: PolicyCall) -> Any:
            return RequireApproval(prompt=f"{who}?", edit=True, answerers=[who])

        demand.__qualname__ = f"demand_of_{who}"
        return demand

    world = grown(plant, counters, of("ann"), of("bob"))
    run_id = world.start()
    first = world.the_action(run_id)
    assert world.answer_as("bob", first, YES).status == "forbidden"
    world.answer_as("ann", first, YES)
    second = world.the_action(run_id)
    assert counters.seen == {}
    # Bob changes what Ann has approved, so Ann is asked about what it is now.
    world.answer_as("bob", second, {**YES, "args": {"amount": 9}})
    third = world.the_action(run_id)
    assert (third.prompt, third.input["args"]["amount"]) == ("ann?", 9)
    assert counters.seen == {}
    world.answer_as("ann", third, YES)
    assert counters.seen == {"9 to me": 1}


def test_two_demands_of_the_same_people_are_one_question_as_strict_as_both(plant: Plant, counters: Counters) -> None:
    def quick(judged: PolicyCall) -> Any:
        return RequireApproval(prompt="Quick?", edit=True, timeout=timedelta(minutes=1))

    def strict(judged: PolicyCall) -> Any:
        return RequireApproval(prompt="Strict?", timeout=timedelta(hours=1), on_timeout="fail_run")

    world = grown(plant, counters, quick, strict)
    run_id = world.start()
    action = world.the_action(run_id)
    assert action.prompt == "Quick?; Strict?"
    assert world.answer(action, {**YES, "args": {"amount": 1}}).status == "invalid"
    world.advance(61)
    world.sweep()
    assert world.run(run_id).status == "failed"


def test_an_approval_shows_the_call_with_its_defaults(plant: Plant, counters: Counters) -> None:
    judged: list[dict[str, Any]] = []
    world = grown(plant, counters, lambda call: judged.append(call.args), require_approval("pay"))
    action = world.the_action(world.start())
    assert action.input["args"] == {"amount": 500, "to": "me", "urgent": True}
    assert judged == [{"amount": 500, "to": "me", "urgent": True}]


class Inner(BaseModel):
    level: int = 3


class Transfer(BaseModel):
    amount: int = Field(alias="sum")
    token: UUID = Field(default_factory=uuid4)
    inner: Inner = Inner()


def test_what_is_shown_of_a_default_that_differs_each_time_is_what_runs(plant: Plant) -> None:
    ran: list[Transfer] = []

    @tool(input=Transfer)
    def transfer(ctx: Context, given: Transfer) -> str:
        """Transfer a sum."""
        ran.append(given)
        return "sent"

    model = scripted(call("transfer", sum=5), say("done"))
    world = plant(Agent("agent", model=model, tools=[transfer], policies=[require_approval()]))
    run_id = world.start()
    action = world.the_action(run_id)
    assert action.input["args"]["inner"] == {"level": 3}
    world.answer(action, YES)
    assert [str(each.token) for each in ran] == [action.input["args"]["token"]]


def turns(world: World, run_id: str) -> tuple[list[ModelTurn], list[ResultTurn]]:
    state = world.snapshot(world.run(run_id).thread_id)
    said = conversation(state[1])
    return [t for t in said if isinstance(t, ModelTurn)], [t for t in said if isinstance(t, ResultTurn)]


def test_the_model_reads_what_was_run_and_who_changed_it(plant: Plant, counters: Counters) -> None:
    seen: list[ModelRequest] = []

    def last(request: ModelRequest) -> Any:
        seen.append(request)
        return say("done")

    model = scripted(call("pay", amount=500), last)
    world = plant(Agent("agent", model=model, tools=[paying(counters)], policies=[require_approval("pay", edit=True)]))
    run_id = world.start()
    world.answer_as(
        "ann", world.the_action(run_id), {**YES, "args": {"amount": 7, "to": "you"}, "comment": "Less will do."}
    )
    # Later runs of the thread read the same as this one.
    world.start(thread_id=world.run(run_id).thread_id)
    for request in (seen[0],):
        (asked,) = [turn for turn in request.conversation if isinstance(turn, ModelTurn) and turn.calls]
        (result,) = [turn for turn in request.conversation if isinstance(turn, ResultTurn)]
        assert asked.calls[0].args == {"amount": 7, "to": "you"}
        assert "ann" in (result.note or "")
        assert "changed" in (result.note or "")
        assert "Less will do." in (result.note or "")
        assert result.content == "paid 7"
    models, results = turns(world, run_id)
    assert models[0].calls[0].args == {"amount": 7, "to": "you"}
    assert results[0].note == next(t for t in seen[0].conversation if isinstance(t, ResultTurn)).note


def test_the_comment_of_a_plain_yes_is_read_and_nothing_else(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", edit=True))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "comment": "Only this once."})
    models, results = turns(world, run_id)
    assert models[0].calls[0].args == {"amount": 500}
    assert results[0].note == 'This call was approved by a person and said: "Only this once.".'


def test_a_yes_without_a_word_leaves_no_note(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", edit=True))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 500, "to": "me", "urgent": True}})
    models, results = turns(world, run_id)
    assert (models[0].calls[0].args, results[0].note) == ({"amount": 500}, None)


def test_the_tool_sees_who_approved_and_what_they_said(plant: Plant) -> None:
    seen: list[Any] = []

    @tool
    def pay(ctx: Context, amount: int) -> str:
        """Pay."""
        seen.extend(ctx.approvals)
        return "paid"

    model = scripted(call("pay", amount=5), say("done"))
    world = plant(Agent("agent", model=model, tools=[pay], policies=[require_approval(edit=True)]))
    run_id = world.start()
    world.answer_as("ann", world.the_action(run_id), {**YES, "args": {"amount": 6}, "comment": "six"})
    (approved,) = seen
    assert (approved.by, approved.comment, approved.args) == ("ann", "six", {"amount": 6})


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("endings", "outcome"),
    [
        (({"default": {"approved": True}}, {"on_timeout": "error"}), "expired"),
        (({"default": {"approved": True}}, {"default": {"approved": False}}), "expired"),
        (({"default": {"approved": True}}, {}), "expired"),
        (({"default": {"approved": True}}, {"default": {"approved": True}}), "success"),
    ],
)
def test_a_deadline_of_two_demands_is_as_strict_as_both(
    plant: Plant, counters: Counters, endings: tuple[Any, Any], outcome: str, order: int
) -> None:
    def ending(which: int) -> Any:
        def demand(judged: PolicyCall) -> Any:
            return RequireApproval(timeout=timedelta(minutes=1), **endings[which])

        demand.__qualname__ = f"demand_{which}"
        return demand

    world = grown(plant, counters, ending(order), ending(1 - order))
    run_id = world.start()
    world.advance(61)
    world.sweep()
    assert [each.outcome for each in world.outputs(run_id)] == [outcome]
    assert counters.seen == ({"500 to me": 1} if outcome == "success" else {})


def test_a_crash_between_an_edit_and_the_second_demand_asks_the_same(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", edit=True), big)
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 50_000}}, settle=False)
    # The process that would have asked next dies; another one finds the run.
    world.wakeups.waiting.clear()
    world.deploy(world.app)
    world.advance(600)
    world.sweep()
    second = world.the_action(run_id)
    assert second.input["args"]["amount"] == 50_000
    assert counters.seen == {}
    world.answer_as("boss", second, YES)
    assert counters.seen == {"50000 to me": 1}


def test_a_fork_and_a_later_run_read_what_ran(plant: Plant, counters: Counters) -> None:
    seen: list[ModelRequest] = []

    def last(request: ModelRequest) -> Any:
        seen.append(request)
        return say("done")

    model = scripted(call("pay", amount=500), last)
    world = plant(Agent("agent", model=model, tools=[paying(counters)], policies=[require_approval(edit=True)]))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 7}})
    copy = forks.fork(world.db, thread_id=world.run(run_id).thread_id, run_id=None, seq=None, new_thread_id=None)
    for thread_id in (world.run(run_id).thread_id, copy):
        second = world.start(thread_id=thread_id)
        world.answer(world.the_action(second), YES)
        earlier = [turn for turn in seen[-1].conversation if isinstance(turn, ModelTurn) and turn.calls]
        assert earlier[0].calls[0].args == {"amount": 7}


def test_a_policy_that_a_deploy_adds_holds_for_a_call_that_was_approved_before(
    plant: Plant, counters: Counters
) -> None:
    world = grown(plant, counters, require_approval("pay"))
    run_id = world.start()
    action = world.the_action(run_id)
    agent = Agent(
        "agent",
        model=scripted(call("pay", amount=500), say("done")),
        tools=[paying(counters)],
        policies=[cap(100), require_approval("pay")],
    )
    world.deploy(App(agents=[agent]))
    world.answer(action, YES)
    assert [each.outcome for each in world.outputs(run_id)] == ["declined"]
    assert counters.seen == {}


def test_the_yes_of_one_person_does_not_meet_the_demand_for_another(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, require_approval("pay", answerers=["alice"]))
    run_id = world.start()
    action = world.the_action(run_id)
    agent = Agent(
        "agent",
        model=scripted(call("pay", amount=500), say("done")),
        tools=[paying(counters)],
        policies=[require_approval("pay", answerers=["ceo"])],
    )
    world.deploy(App(agents=[agent]))
    world.answer_as("alice", action, YES)
    assert counters.seen == {}
    second = world.the_action(run_id)
    assert second.answerers == ("ceo",)
    world.answer_as("ceo", second, YES)
    assert counters.seen == {"500 to me": 1}


MADE = iter(range(100))


class Order(BaseModel):
    amount: int = Field(default_factory=lambda: next(MADE))


def test_policies_judge_the_default_that_runs(plant: Plant) -> None:
    judged: list[int] = []
    ran: list[int] = []
    gate = WaitPoint("gate", suspend=dict[str, int], resume=dict[str, bool])

    @tool(input=Order, wait_points=[gate])
    def order(ctx: Context, given: Order) -> str:
        """Order."""
        ran.append(given.amount)
        ctx.ask(gate, {"amount": given.amount})
        return "ordered"

    def watch(asked: PolicyCall) -> None:
        judged.append(asked.args["amount"])

    world = plant(Agent("agent", model=scripted(call("order"), say("done")), tools=[order], policies=[watch]))
    run_id = world.start()
    world.answer(world.the_action(run_id), {"ok": True})
    assert world.run(run_id).status == "completed"
    assert set(judged) == set(ran)
    assert len(set(ran)) == 1


def test_an_edit_that_a_policy_denies_is_not_said_to_have_run(plant: Plant, counters: Counters) -> None:
    world = grown(plant, counters, cap(1000), require_approval("pay", edit=True))
    run_id = world.start()
    world.answer(world.the_action(run_id), {**YES, "args": {"amount": 50_000}})
    _, results = turns(world, run_id)
    assert results[0].outcome == "declined"
    assert "ran" not in (results[0].note or "")


def test_a_yes_of_the_deadline_is_said_to_be_that(plant: Plant, counters: Counters) -> None:
    def demand(judged: PolicyCall) -> Any:
        return RequireApproval(timeout=timedelta(minutes=1), default={"approved": True, "comment": "by default"})

    world = grown(plant, counters, demand)
    run_id = world.start()
    world.advance(61)
    world.sweep()
    _, results = turns(world, run_id)
    assert results[0].note == 'This call was approved by a default at the deadline and said: "by default".'


class Aliased(BaseModel):
    amount: int = Field(validation_alias="readAmount", serialization_alias="writtenAmount")
    to: str = Field("me", validation_alias=AliasChoices("to", "recipient"))


def test_an_approval_shows_the_names_that_an_edit_may_have(plant: Plant) -> None:
    ran: list[Aliased] = []

    @tool(input=Aliased)
    def pay(ctx: Context, given: Aliased) -> str:
        """Pay."""
        ran.append(given)
        return "paid"

    model = scripted(call("pay", readAmount=500), say("done"))
    world = plant(Agent("agent", model=model, tools=[pay], policies=[require_approval(edit=True)]))
    run_id = world.start()
    action = world.the_action(run_id)
    assert action.input["args"] == {"readAmount": 500, "to": "me"}
    assert world.answer(action, {**YES, "args": {**action.input["args"], "readAmount": 7}}).status == "accepted"
    assert [each.amount for each in ran] == [7]
