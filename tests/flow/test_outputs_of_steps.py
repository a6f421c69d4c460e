"""The output of a step that the next one cannot read: the run fails, the output is kept, and a retry takes it up."""

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from adjourn import Agent, App, Context, Parallel, Router, Sequential, SubAgent, WaitPoint, call, say, tool
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.lifecycle.retry import retry
from tests.world import Counters, World, scripted


class Report(BaseModel):
    text: str


class Dated(BaseModel):
    text: str
    date: str


point: WaitPoint[Any, Any] = WaitPoint("ok", suspend=Report, resume=bool)


def worker(counters: Counters) -> Block:
    """A child that does some work."""

    @tool
    def dig(text: str) -> Report:
        """Dig."""
        return Report(text=f"{text} {counters.bump('dug')}")

    return SubAgent(dig)


def reading(type_: Any, name: str = "publish") -> Block:
    @tool(name=name)
    def publish(report: type_) -> str:  # type: ignore[valid-type]
        """Publish."""
        return f"published {report!r}"

    return publish


def asking(type_: Any) -> Block:
    """Its answer must not be lost either."""

    @tool(name="publish", wait_points=[point])
    def publish(ctx: Context, report: type_) -> str:  # type: ignore[valid-type]
        """Publish."""
        return f"published {report!r}"

    return publish


def agent(type_: Any) -> Block:
    def user(report: Any) -> str:
        return f"published {report!r}"

    return Agent("publish", model=scripted(say("done")), input_type=type_, prompt=user)


FORMS: dict[str, Any] = {
    "a tool": reading,
    "a tool that waits": asking,
    "an agent": agent,
    "a child": lambda of: SubAgent(reading(of), name="publish"),
    "a sequence": lambda of: Sequential("publish", [reading(of, "inner")]),
    "a router": lambda of: Router("publish", {"a": reading(of, "inner")}, lambda _: "a"),
    "a router with an input of its own": lambda of: Router(
        "publish", {"a": reading(of, "inner")}, lambda _: "a", input=dict[str, Any]
    ),
    "branches": lambda of: Parallel("publish", [reading(of, "inner")]),
    "branches with an input of their own": lambda of: Parallel(
        "publish", {"one": reading(of, "inner"), "two": reading(of, "other")}, input=dict[str, Any]
    ),
}


def app(counters: Counters, next_step: Block) -> App:
    return App(blocks=[Sequential("pipeline", {"dig": worker(counters), "publish": next_step})])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_output_that_the_next_step_cannot_read_fails_the_run_and_a_retry_uses_it(
    plant: Any, counters: Counters, form: Any
) -> None:
    w: World = plant(*app(counters, form(Dated)).blocks.values())
    run_id = w.start("whales", agent="pipeline")
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "StoredValueError"
    assert "the output of step 'dig'" in error.message
    assert "/date" in error.message
    w.deploy(app(counters, form(Report)))
    retry(w.services, run_id)
    w.settle()
    run = w.run(run_id)
    assert (run.status, counters["dug"]) == ("completed", 1), run.error


def test_the_output_of_any_step_is_kept_not_only_that_of_a_child(plant: Any, counters: Counters) -> None:
    @tool
    def plain(text: str) -> Report:
        """Write."""
        counters.bump("written")
        return Report(text=text)

    @tool
    def shout(report: Report) -> Report:
        """Shout."""
        return Report(text=report.text.upper())

    def build(of: Any) -> App:
        inner = Sequential("inner", [plain, shout])
        return App(blocks=[Sequential("pipeline", {"inner": inner, "publish": reading(of)})])

    w: World = plant(*build(Dated).blocks.values())
    run_id = w.start("whales", agent="pipeline")
    error = w.run(run_id).error
    assert error is not None
    assert (error.type, error.data["what"]) == ("StoredValueError", "the output of step 'inner'")
    w.deploy(build(Report))
    retry(w.services, run_id)
    w.settle()
    assert (w.run(run_id).output, counters["written"]) == ("published Report(text='WHALES')", 1)


def test_inside_a_tool_of_an_agent_it_fails_the_run_too(plant: Any, counters: Counters) -> None:
    def build(of: Any) -> App:
        pipeline = Sequential("pipeline", {"dig": worker(counters), "publish": reading(of)}, description="Dig.")
        model = scripted(call("pipeline", input="whales"), say("done"))
        return App(agents=[Agent("agent", model=model, tools=[pipeline])])

    w: World = plant(*build(Dated).blocks.values())
    run_id = w.start()
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "StoredValueError"
    w.deploy(build(Report))
    retry(w.services, run_id)
    w.settle()
    assert (w.run(run_id).status, counters["dug"]) == ("completed", 1)


def test_what_a_model_or_the_run_gives_to_the_first_step_is_still_an_error_of_that_step(plant: Any) -> None:
    w: World = plant(Sequential("pipeline", [reading(Dated)]))
    run_id = w.enqueue(agent="pipeline", data={"text": "x"}).run_id
    w.settle()
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "BlockFailedError"


def test_the_check_before_a_deploy_lists_a_run_whose_next_step_cannot_read_what_is_there(
    plant: Any, counters: Counters
) -> None:
    """A parked run: the next step has asked, and the deploy changes what it is handed."""

    def build(of: Any) -> App:
        @tool(name="publish", wait_points=[point])
        def publish(ctx: Context, report: of) -> str:  # type: ignore[valid-type]
            """Publish."""
            return str(ctx.ask(point, Report(text="?")))

        return app(counters, publish)

    def strict(value: Report) -> Report:
        raise ValueError("never")

    w: World = plant(*build(Report).blocks.values())
    run_id = w.start("whales", agent="pipeline")
    w.answer(w.the_action(run_id), True, settle=False)
    w.deploy(build(Annotated[Report, AfterValidator(strict)]))
    (found,) = [check(log, w.app.blocks) for log in logs.unfinished(w.db)]
    w.settle()
    error = w.run(run_id).error
    assert error is not None
    assert found.error == error
    assert error.data["what"] == "the output of step 'dig'"


def test_a_validator_that_changes_its_mind_between_two_looks_loses_no_answer(plant: Any) -> None:
    looks = 0

    def moody(value: int) -> int:
        nonlocal looks
        looks += 1
        if looks in refused:
            raise ValueError("not now")
        return value

    refused: set[int] = set()

    @tool(wait_points=[point])
    def pay(ctx: Context, amount: Annotated[int, AfterValidator(moody)]) -> str:
        """Pay."""
        return str(ctx.ask(point, Report(text="?")))

    w: World = plant(Agent("agent", model=scripted(call("pay", amount=1), say("done")), tools=[pay]))
    run_id = w.start()
    first = looks
    refused.add(first + 2)  # the second look of the next pass
    w.answer(w.the_action(run_id), True)
    error = w.run(run_id).error
    assert error is not None
    assert error.type == "StoredValueError"
    retry(w.services, run_id)
    w.settle()
    assert w.outputs(run_id)[0].content == "True"
