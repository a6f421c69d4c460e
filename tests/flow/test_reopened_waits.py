"""An answer that only the body could judge, and cannot read: a retry puts the same question again."""

from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from adjourn import (
    Agent,
    App,
    Context,
    NotRetryableError,
    Question,
    RequireApproval,
    Resume,
    SubAgent,
    WaitPoint,
    call,
    client_tool,
    say,
    tool,
)
from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.items import ReopeningItem
from adjourn.store.postgres.answers import actions
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.host.builds import Build
from adjourn.tasks.lifecycle.retry import retry
from adjourn.worker.text.timeline import timeline
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted

HOUR = timedelta(hours=1)


def few(value: int) -> int:
    if value > 10:
        raise ValueError("at most 10")
    return value


Few = Annotated[int, AfterValidator(few)]


class Ask(BaseModel):
    prompt: str


def undeclared(seen: Counters, of: Any = Few, **terms: Any) -> Block:
    @tool(name="gate")
    def gate(ctx: Context) -> str:
        """Ask, and hide whatever goes wrong."""
        try:
            amount = ctx.ask(reason="amount", message="How much?", resume=of, **terms)
        except Exception:
            return "hidden"
        return f"{amount} {seen.bump('paid')}"

    return gate


def once(seen: Counters, of: Any = Few) -> Block:
    """As `undeclared`, of a tool that is not repeatable."""

    @tool(name="gate", repeatable=False)
    def gate(ctx: Context) -> str:
        """Ask."""
        return f"{ctx.ask(reason='amount', message='How much?', resume=of)} {seen.bump('paid')}"

    return gate


def inline(seen: Counters, of: Any = Few) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("amount", suspend=Ask, resume=of)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context) -> str:
        """Ask."""
        return f"{ctx.ask(point, Ask(prompt='How much?'))} {seen.bump('paid')}"

    return gate


def entry(seen: Counters, of: Any = Few) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("amount", suspend=Ask, resume=of)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context) -> str:
        """Ask."""
        at = ctx.entry
        if isinstance(at, Resume):
            return f"{at.resume} {seen.bump('paid')}"
        ctx.suspend(point, Ask(prompt="How much?"))

    return gate


def first_of_two(seen: Counters, of: Any = Few) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("amount", suspend=Ask, resume=of)
    other: WaitPoint[Any, Any] = WaitPoint("other", suspend=Ask, resume=bool)

    @tool(name="gate", wait_points=[point, other])
    def gate(ctx: Context) -> str:
        """Ask two."""
        first = ctx.ask_any(Question(point, Ask(prompt="How much?")), Question(other, Ask(prompt="?")))
        return f"{first.answer} {seen.bump('paid')}"

    return gate


def by_client(_: Counters, of: Any = Few) -> Block:
    return client_tool("gate", description="Ask.", input=dict[str, Any], output=of)


KINDS: dict[str, tuple[Any, bool]] = {
    "undeclared": (undeclared, False),
    "undeclared, in a tool that is not repeatable": (once, False),
    "undeclared, in a tool of the run": (undeclared, True),
    "inline, in a tool of the run": (inline, True),
    "entry, in a tool of the run": (entry, True),
    "the first of two, in a tool of the run": (first_of_two, True),
    "a client tool of the run": (by_client, True),
}
"""How the tool asks, and whether it is made by a `tools=` function."""


def agent(gate: Block, of_run: bool = False) -> Agent:
    tools: Any = (lambda _: [gate]) if of_run else [gate]
    return Agent("agent", model=scripted(call("gate"), say("done")), tools=tools)


def unread(w: World, run_id: str, answer: Any = 20) -> PendingAction:
    """Answer what nobody but the body can refuse, and have the run fail for it."""
    action = next(each for each in w.pending(run_id) if each.origin.wait_point not in ("other",))
    assert w.answer(action, answer).status == "accepted"
    error = w.run(run_id).error
    assert error is not None
    assert (error.type, error.data["action_id"]) == ("StoredValueError", action.id)
    return action


def retried(w: World, run_id: str) -> None:
    retry(w.services, run_id)
    w.settle()


def reopenings(w: World, run_id: str) -> list[ReopeningItem]:
    return [item.body for item in w.items(run_id) if isinstance(item.body, ReopeningItem)]


@pytest.mark.parametrize(("kind", "of_run"), KINDS.values(), ids=KINDS)
def test_a_retry_opens_the_wait_again_and_keeps_the_answer_in_its_history(
    plant: Plant, counters: Counters, kind: Any, of_run: bool
) -> None:
    w = plant(agent(kind(counters), of_run))
    run_id = w.start()
    before = {action.id for action in w.pending(run_id)}
    action = unread(w, run_id)
    retried(w, run_id)
    assert w.run(run_id).status == "parked"
    assert {each.id for each in w.pending(run_id)} == before, "the same waits, under the same ids"
    again = next(each for each in w.pending(run_id) if each.id == action.id)
    assert again.note is not None
    assert "at most 10" in again.note
    kept = next(each for each in reopenings(w, run_id) if each.action_id == action.id)
    assert kept.answer is not None
    assert (kept.answer.resume, kept.answer.channel) == (20, "test")
    shown = "\n".join(timeline(w.items(run_id)))
    assert f"{action.id} is open again" in shown
    assert "the answer via test could not be read" in shown
    assert "→ 20" in shown

    assert w.answer(again, 5).status == "accepted"
    assert w.run(run_id).status == "completed"
    (output,) = w.outputs(run_id)
    assert str(output.content) in ("5 1", "5")
    assert counters["paid"] in (0, 1)


def test_a_retry_reads_the_kept_answer_before_it_asks_again(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters)))
    run_id = w.start()
    unread(w, run_id)
    w.deploy(App(agents=[agent(undeclared(counters, int))]))
    retried(w, run_id)
    assert (w.outputs(run_id)[0].content, reopenings(w, run_id)) == ("20 1", [])


def test_each_answer_that_cannot_be_read_fails_the_run_once(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters)))
    run_id = w.start()
    ids = set()
    for amount in (20, 30, 30):
        ids.add(unread(w, run_id, amount).id)
        retried(w, run_id)
    assert len(ids) == 1
    assert [each.answer and each.answer.resume for each in reopenings(w, run_id)] == [20, 30, 30]
    w.answer(w.the_action(run_id), 5)
    assert w.outputs(run_id)[0].content == "5 1"


def test_what_the_live_model_has_validated_is_not_asked_again(plant: Plant, counters: Counters) -> None:
    """Code that refuses what it had accepted has to be put right: the person has done nothing wrong."""
    w = plant(agent(inline(counters, int)))
    run_id = w.start()
    w.answer(w.the_action(run_id), 20, settle=False)
    w.deploy(App(agents=[agent(inline(counters, Few))]))
    w.settle()
    for _ in range(2):
        error = w.run(run_id).error
        assert error is not None
        assert error.type == "StoredValueError"
        retried(w, run_id)
    assert (w.pending(run_id), reopenings(w, run_id)) == ([], [])


def test_the_wait_has_its_whole_time_again(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters, timeout=HOUR)))
    run_id = w.start()
    w.advance(3000)
    unread(w, run_id)
    w.advance(3000)
    retried(w, run_id)
    w.sweep()
    assert w.run(run_id).status == "parked"
    w.advance(3599)
    assert w.answer(w.the_action(run_id), 5).status == "accepted"
    assert w.run(run_id).status == "completed"


def test_a_default_that_cannot_be_read_is_nobodys_to_say_again(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters, int, timeout=HOUR, default=20)))
    run_id = w.start()
    w.deploy(App(agents=[agent(undeclared(counters, Few))]))
    w.advance(3601)
    w.sweep()
    for _ in range(2):
        error = w.run(run_id).error
        assert error is not None
        assert error.type == "StoredValueError"
        retried(w, run_id)
    assert w.pending(run_id) == []


def test_an_edit_of_an_approval_that_the_tool_cannot_read_is_asked_for_again(plant: Plant, counters: Counters) -> None:
    @tool(name="gate")
    def gate(ctx: Context, amount: Few) -> str:
        """Pay."""
        counters.bump("paid")
        return str(amount)

    model = scripted(call("gate", amount=1), say("done"))
    policies = [lambda called: RequireApproval(edit=True)]
    w = plant(Agent("agent", model=model, tools=lambda _: [gate], policies=policies))
    run_id = w.start()
    action = unread(w, run_id, {"approved": True, "args": {"amount": 20}})
    retried(w, run_id)
    assert w.the_action(run_id).id == action.id
    w.answer(action, {"approved": True, "args": {"amount": 5}})
    assert (w.outputs(run_id)[0].content, counters["paid"]) == ("5", 1)


def test_a_wait_of_a_child_is_opened_again_by_a_retry_of_the_root(plant: Plant, counters: Counters) -> None:
    child = Agent("child", model=scripted(call("gate"), say("dug")), tools=[undeclared(counters)])
    parent = Agent(
        "parent",
        model=scripted(call("child", task="dig"), say("done")),
        tools=[SubAgent(child, on_failure="end_parent")],
    )
    w = plant(parent)
    run_id = w.start(agent="parent")
    action = w.the_action(run_id)
    w.answer(action, 20)
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "ChildFailedError"
    retried(w, run_id)
    assert w.the_action(run_id).id == action.id
    w.answer(action, 5)
    assert (w.run(run_id).status, counters["paid"]) == ("completed", 1)


def test_an_outdated_build_asks_nobody_again(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters)))
    run_id = w.start()
    unread(w, run_id)
    old, new = Build(w.store, "old"), Build(w.store, "new")
    w.deploy(w.app, old)
    retried(w, run_id)
    assert (w.run(run_id).status, w.pending(run_id)) == ("queued", [])
    w.deploy(App(agents=[agent(undeclared(counters, int))]), new)
    w.sweep()
    w.advance(3600)
    new.renew()
    w.sweep()
    assert w.outputs(run_id)[0].content == "20 1"


def test_siblings_are_not_touched(plant: Plant, counters: Counters) -> None:
    @tool(name="other")
    def other(ctx: Context) -> str:
        """Ask."""
        return str(ctx.ask(reason="other", message="?", resume=bool))

    model = scripted([call("gate"), call("other")], say("done"))
    w = plant(Agent("agent", model=model, tools=[undeclared(counters), other]))
    run_id = w.start()
    waits = {action.origin.wait_point: action for action in w.pending(run_id)}
    unread(w, run_id)
    retried(w, run_id)
    assert {each.id for each in w.pending(run_id)} == {each.id for each in waits.values()}
    w.answer(waits["other"], True)
    w.answer(waits["amount"], 5)
    assert sorted(str(each.content) for each in w.outputs(run_id)) == ["5 1", "True"]


def test_a_run_that_ends_while_the_wait_is_open_again_closes_it(plant: Plant, counters: Counters) -> None:
    w = plant(agent(undeclared(counters, timeout=HOUR)))
    run_id = w.start()
    action = unread(w, run_id)
    retried(w, run_id)
    w.advance(3601)
    w.sweep()
    state = actions.get(w.db, action.id)
    assert state is not None
    assert (w.run(run_id).status, state.action.status) == ("failed", "expired")
    with pytest.raises(NotRetryableError):
        retry(w.services, run_id)
