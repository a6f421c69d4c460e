"""An accepted answer, or another recorded value, that the code cannot read: the run fails, and a retry takes it up."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, FutureDatetime

from adjourn import Agent, App, Context, Parallel, Resume, WaitPoint, tool
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.lifecycle import retry
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import AGENT, World


class Old(BaseModel):
    amount: int


class New(BaseModel):
    amount: int
    currency: str


def lenient(value: int) -> int:
    return value


def strict(value: int) -> int:
    if value > 10:
        raise ValueError("at most 10")
    return value


def agent(tool: Block, **args: Any) -> Agent:
    return Agent(AGENT, ScriptedModel([call("gate", **args), say("done")]), tools=[tool])


def inline(resume: Any, **options: Any) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("amount", suspend=str, resume=resume)

    @tool(name="gate", wait_points=[point], **options)
    def gate(ctx: Context) -> str:
        """Ask, and hide whatever goes wrong."""
        try:
            return str(ctx.ask(point, "How much?"))
        except Exception:
            return "hidden"

    return gate


def entry(resume: Any, **options: Any) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("amount", suspend=str, resume=resume)

    @tool(name="gate", wait_points=[point], **options)
    def gate(ctx: Context) -> str:
        """Ask, and hide whatever goes wrong."""
        try:
            at = ctx.entry
        except Exception:
            return "hidden"
        if isinstance(at, Resume):
            return str(at.resume)
        ctx.suspend(point, "How much?")

    return gate


def adhoc(resume: Any, **options: Any) -> Block:
    @tool(name="gate", **options)
    def gate(ctx: Context) -> str:
        """Ask, and hide whatever goes wrong."""
        try:
            return str(ctx.ask(reason="amount", message="How much?", resume=resume))
        except Exception:
            return "hidden"

    return gate


def remembering(returns: Any) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=str, resume=bool)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context) -> str:
        """Remember, ask, and hide whatever goes wrong."""
        try:
            kept: Any = ctx.run_once("charge", lambda: {"amount": 20}, returns=returns)
            ctx.ask(point, "Well?")
        except Exception:
            return "hidden"
        return str(kept)

    return gate


def told(w: World, run_id: str) -> str:
    (output,) = w.outputs(run_id)
    return str(output.content)


STYLES = [inline, entry, adhoc]


@pytest.mark.parametrize("gate", STYLES)
def test_an_answer_that_a_stricter_validator_refuses_fails_the_run_and_a_retry_uses_it(plant: Any, gate: Any) -> None:
    first, later = (Annotated[int, AfterValidator(each)] for each in (lenient, strict))
    w = plant(agent(gate(first)))
    run_id = w.start()
    assert w.answer(w.the_action(run_id), 20, settle=False).status == "accepted"
    w.deploy(App(agents=[agent(gate(later))]))
    (found,) = [check(log, w.app.blocks) for log in logs.unfinished(w.db)]
    w.settle()
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", "StoredValueError")
    assert "amount" in run.error.message
    assert "at most 10" in run.error.message
    assert gate is adhoc or found.error == run.error, "the check says what the deploy then does"
    w.deploy(App(agents=[agent(gate(first))]))
    retry.retry(w.services, run_id)
    w.settle()
    assert (w.run(run_id).status, told(w, run_id)) == ("completed", "20")


@pytest.mark.parametrize("gate", [inline, entry])
def test_a_tool_that_takes_over_waits_whose_answers_it_cannot_read_fails_the_run(plant: Any, gate: Any) -> None:
    w = plant(agent(gate(Old, version="1")))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"amount": 20}, settle=False)
    w.deploy(App(agents=[agent(gate(New, version="2", resumes_from=["1"]))]))
    w.settle()
    assert w.run(run_id).error.type == "StoredValueError"
    assert "currency" in w.run(run_id).error.message


def test_a_remembered_result_that_has_another_type_now_fails_the_run_and_a_retry_reads_it(plant: Any) -> None:
    w = plant(agent(remembering(Old)))
    run_id = w.start()
    w.deploy(App(agents=[agent(remembering(New))]))
    w.answer(w.the_action(run_id), True)
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", "StoredValueError")
    assert "'charge'" in run.error.message
    w.deploy(App(agents=[agent(remembering(Old))]))
    retry.retry(w.services, run_id)
    w.settle()
    assert told(w, run_id) == "amount=20"


@pytest.mark.parametrize("gate", [inline, entry])
def test_a_date_is_not_compared_with_the_clock_again(plant: Any, gate: Any) -> None:
    """The earlier build takes a date of the past: it stands for one that was in the future when it was accepted."""
    w = plant(agent(gate(datetime, version="1")))
    run_id = w.start()
    w.answer(w.the_action(run_id), "2001-01-01T00:00:00Z", settle=False)
    w.deploy(App(agents=[agent(gate(FutureDatetime, version="2", resumes_from=["1"]))]))
    w.settle()
    assert (w.run(run_id).status, told(w, run_id)) == ("completed", "2001-01-01 00:00:00+00:00")


def test_the_input_of_a_call_that_has_waited_fails_the_run_if_it_cannot_be_read(plant: Any) -> None:
    point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=str, resume=bool)

    def build(rule: Any) -> Agent:
        def body(ctx: Context, amount: int) -> str:
            """Ask."""
            return str(ctx.ask(point, "Well?"))

        body.__annotations__["amount"] = Annotated[int, AfterValidator(rule)]
        return agent(tool(name="gate", wait_points=[point])(body), amount=20)

    w = plant(build(lenient))
    run_id = w.start()
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(App(agents=[build(strict)]))
    w.settle()
    assert w.run(run_id).error.type == "StoredValueError"
    assert "the input" in w.run(run_id).error.message


def test_the_input_of_a_block_that_has_begun_fails_the_run_if_it_cannot_be_read(plant: Any) -> None:
    point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=str, resume=bool)

    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context, amount: int) -> str:
        """Ask."""
        return f"{amount} {ctx.ask(point, 'Well?')}"

    @tool(name="double")
    def double(amount: int) -> int:
        """Double."""
        return 2 * amount

    def build(rule: Any) -> Block:
        return Parallel("both", [double, gate], input=Annotated[int, AfterValidator(rule)])

    w = plant(build(lenient))
    run_id = w.enqueue("20", agent="both", data=20).run_id
    w.settle()
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(App(blocks=[build(strict)]))
    w.settle()
    assert w.run(run_id).error.type == "StoredValueError"
