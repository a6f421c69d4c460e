"""A worker dies inside a body: what a tool can say about running again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from adjourn import Context, DefinitionError, Recovered, Tool, WaitPoint, tool
from adjourn.schemas.internal.state import Write
from adjourn.schemas.records.items import ResponseItem, StartItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.models.scripted import call, say
from tests.flow.report_tools import Approval, Prompt, approval
from tests.world import Counters, World, scripted, world

PAYMENT = call("pay", amount=7)


@contextmanager
def died_inside(database_url: str, redis_url: str, pay: Tool[..., Any]) -> Iterator[tuple[World, str]]:
    """A run whose worker died after it wrote down that the body of `pay` began."""
    with world(database_url, redis_url, pay, model=scripted(PAYMENT, say("ok"))) as w:
        run_id = w.enqueue().run_id
        w.wakeups.waiting.clear()
        claim = runs.claim(w.db, run_id, suspect=False, token="dead")
        assert claim is not None
        response = ResponseItem(text="", calls=(ToolCall(id="call_1", tool="pay", args={"amount": 7}),))
        begun = Write(items=(response, StartItem(call_id="call_1")), turns=1)
        runs.write(w.db, run_id, claim.token, claim.revision, begun)
        found_dead(w)
        yield w, run_id


def found_dead(w: World) -> None:
    """The lease of a worker that died runs out."""
    w.advance(w.tuning.lease_seconds + 1)
    w.sweep()


def test_by_default_the_body_runs_again(database_url: str, redis_url: str) -> None:
    seen = Counters()

    @tool
    def pay(amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        assert (seen["paid"], w.run(run_id).status) == (1, "completed")


def test_verify_is_asked_before_anything_runs_again(database_url: str, redis_url: str) -> None:
    seen = Counters()

    def already(ctx: Context) -> Recovered[int]:
        seen.bump(f"asked about {ctx.input.amount}")
        return Recovered(42)

    @tool(verify=already)
    def pay(amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        (output,) = w.outputs(run_id)
        assert (output.outcome, output.content, seen["paid"], seen["asked about 7"]) == ("success", 42, 0, 1)


def test_verify_that_finds_nothing_lets_it_run_again(database_url: str, redis_url: str) -> None:
    seen = Counters()

    async def nothing(ctx: Context) -> None:
        seen.bump("asked")

    @tool(verify=nothing)
    def pay(amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        assert [output.content for output in w.outputs(run_id)] == [1]
        assert (seen["asked"], seen["paid"]) == (1, 1)


def test_verify_that_fails_leaves_the_outcome_unknown(database_url: str, redis_url: str) -> None:
    seen = Counters()

    def broken(ctx: Context) -> None:
        raise ConnectionError("bank is closed")

    @tool(verify=broken)
    def pay(amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        (output,) = w.outputs(run_id)
        assert (output.outcome, seen["paid"]) == ("interrupted", 0)
        assert "bank is closed" in output.content


@pytest.mark.parametrize(
    ("answer", "outcome", "content", "paid"),
    [
        ({"data": {"happened": True, "output": 42}}, "success", 42, 0),
        ({"data": {"happened": False}}, "success", 1, 1),
        ({"kind": "cancel", "reason": "nobody can tell"}, "interrupted", None, 0),
        ({"kind": "fail", "message": "the books burnt"}, "interrupted", None, 0),
    ],
    ids=["happened", "did not happen", "cancelled", "failed"],
)
def test_an_operator_is_asked_about_a_tool_that_is_not_repeatable(
    database_url: str, redis_url: str, answer: dict[str, Any], outcome: str, content: Any, paid: int
) -> None:
    seen = Counters()

    @tool(repeatable=False)
    def pay(ctx: Context, amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        action = w.the_action(run_id)
        assert (action.name, action.kind, action.input["input"]) == ("pay.outcome", "outcome", {"amount": 7})
        assert action.input["idempotency_key"] == f"{run_id}:call_1"
        assert (seen["paid"], w.run(run_id).status) == (0, "parked")
        assert w.answer(action, {"happened": True, "output": "much"}).status == "invalid"
        assert w.answer(action, answer.pop("data", None), **answer).status == "accepted"
        (output,) = w.outputs(run_id)
        assert (output.outcome, seen["paid"], w.run(run_id).status) == (outcome, paid, "completed")
        assert content is None or output.content == content


def test_what_an_operator_said_of_one_death_is_not_said_of_the_next(database_url: str, redis_url: str) -> None:
    seen = Counters()

    @tool(repeatable=False)
    def pay(amount: int) -> int:
        """Pay."""
        return seen.bump("paid")

    with died_inside(database_url, redis_url, pay) as (w, run_id):
        first = w.the_action(run_id)
        w.answer(first, {"happened": False}, settle=False)
        w.wakeups.waiting.clear()
        claim = runs.claim(w.db, run_id, suspect=False, token="dead too")
        assert claim is not None
        begun = Write(items=(StartItem(call_id="call_1"),))
        runs.write(w.db, run_id, claim.token, claim.revision, begun)
        found_dead(w)
        assert w.the_action(run_id).id != first.id
        w.answer(w.the_action(run_id), {"happened": True, "output": 42})
        assert ([output.content for output in w.outputs(run_id)], seen["paid"]) == ([42], 0)


def test_a_wait_of_its_own_is_no_death(database_url: str, redis_url: str) -> None:
    seen = Counters()

    @tool(repeatable=False, wait_points=[approval])
    def pay(ctx: Context, amount: int) -> int:
        """Pay, once somebody has said so."""
        decision = ctx.ask(approval, Prompt(prompt="Pay?"))
        assert len(ctx.suspend_history) == 1
        return seen.bump("paid") if decision.approved else 0

    with world(database_url, redis_url, pay, model=scripted(PAYMENT, say("ok"))) as w:
        run_id = w.start()
        assert w.the_action(run_id).name == "pay.approval"
        w.answer(w.the_action(run_id), {"approved": True})
        assert (seen["paid"], w.run(run_id).status) == (1, "completed")


def test_a_tool_that_is_not_repeatable_has_no_retries() -> None:
    with pytest.raises(DefinitionError, match="not repeatable and has retries"):
        tool(name="pay", repeatable=False, retries=1)(lambda: None)
    point = WaitPoint("outcome", suspend=Prompt, resume=Approval)
    with pytest.raises(DefinitionError, match="where an operator is asked"):
        tool(name="pay", repeatable=False, wait_points=[point])(lambda: None)


def test_a_wakeup_for_an_ordinary_worker_does_not_take_a_suspect_run(database_url: str, redis_url: str) -> None:
    @tool
    def pay(amount: int) -> int:
        """Pay."""
        return amount

    with world(database_url, redis_url, pay, model=scripted(PAYMENT, say("ok"))) as w:
        run_id = w.enqueue().run_id
        w.wakeups.waiting.clear()
        runs.claim(w.db, run_id, suspect=False, token="dead")
        w.advance(w.tuning.lease_seconds + 1)
        w.wakeups.publish(WakeUp(run_id=run_id, due="turn"))
        w.settle()
        assert w.run(run_id).status == "running"
        w.sweep()
        assert w.run(run_id).status == "completed"
