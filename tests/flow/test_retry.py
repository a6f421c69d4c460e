"""A run that failed because of what lies outside it goes on after a fix, with all that it has recorded."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Limits, Sequential, WaitPoint, tool
from adjourn.schemas.errors import ModelRequestError, NotRetryableError
from adjourn.schemas.records.messages import ModelRequest, ResultTurn, UserTurn
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import Counters, World, scripted

YES = {"approved": True}


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


class Stricter(BaseModel):
    approved: bool
    note: str


def gate(fx: Counters, name: str = "gate", resume: Any = Verdict, **options: Any) -> Any:
    point = WaitPoint("approval", suspend=Ask, resume=resume)

    @tool(name=name, wait_points=[point], **options)
    def gate(ctx: Context) -> str:
        """Ask."""
        said = ctx.ask(point, Ask(prompt=f"{name}?"))
        fx.bump(name)
        return f"{name} {said.approved}"

    return gate


def go_on(w: World, run_id: str, **fields: Any) -> None:
    retry(w.services, run_id, **fields)
    w.settle()


def test_the_kept_answer_is_used_and_the_sibling_waits_again(plant: Any) -> None:
    fx = Counters()

    def build(resume: Any = Verdict) -> Agent:
        requests: list[ModelRequest] = []

        def last(request: ModelRequest) -> Any:
            requests.append(request)
            said = [turn.content for turn in request.conversation if isinstance(turn, ResultTurn)]
            return say(", ".join(said))

        model = scripted([call("left"), call("right")], last, counters=fx)
        return Agent("agent", model=model, tools=[gate(fx, "left", resume), gate(fx, "right")])

    w = plant(build())
    run_id = w.start(agent="agent")
    left, right = sorted(w.pending(run_id), key=lambda action: action.name)
    w.deploy(App(blocks=[build(Stricter)]))
    assert w.answer(left, YES).status == "accepted"
    assert w.run(run_id).error.type == "ToolChangedError"
    assert w.answer(right, YES).status == "late"

    w.deploy(App(blocks=[build()]))
    go_on(w, run_id)
    assert (w.run(run_id).status, fx["left"], fx["right"]) == ("parked", 1, 0)
    assert w.the_action(run_id).id == right.id
    assert w.answer(right, YES, answer_id="once-more").status == "accepted"
    run = w.run(run_id)
    assert (run.status, run.output, run.error) == ("completed", "left True, right True", None)
    assert fx.seen == {"model": 2, "left": 1, "right": 1}


def test_a_retry_without_a_fix_fails_as_before_and_can_be_tried_again(plant: Any) -> None:
    fx = Counters()
    old = Agent("agent", model=ScriptedModel([call("gate"), say("done")]), tools=[gate(fx)])
    new = Agent("agent", model=ScriptedModel([call("gate"), say("done")]), tools=[gate(fx, resume=Stricter)])
    w = plant(old)
    run_id = w.start(agent="agent")
    w.deploy(App(blocks=[new]))
    w.answer(w.the_action(run_id), YES)
    first = w.run(run_id).error
    go_on(w, run_id)
    assert w.run(run_id).error == first
    w.deploy(App(blocks=[old]))
    go_on(w, run_id)
    assert w.run(run_id).status == "completed"
    kinds = [item.body.kind for item in w.items(run_id)]
    assert [kind for kind in kinds if kind in ("end", "retry")] == ["end", "retry", "end", "retry", "end"]


def test_a_raised_limit_lets_it_go_on(plant: Any) -> None:
    fx = Counters()

    @tool
    def step() -> str:
        """Step."""
        fx.bump("step")
        return "stepped"

    def build(turns: int) -> Agent:
        model = scripted(call("step"), call("step"), say("done"), counters=fx)
        return Agent("agent", model=model, tools=[step], limits=Limits(turns=turns))

    w = plant(build(1))
    run_id = w.start(agent="agent")
    assert w.run(run_id).error.type == "LimitExceededError"
    w.deploy(App(blocks=[build(3)]))
    go_on(w, run_id)
    assert (w.run(run_id).output, fx["model"], fx["step"], w.run(run_id).turns) == ("done", 3, 2, 3)
    own = w.start(agent="agent", limits=Limits(turns=1))
    go_on(w, own)
    assert w.run(own).error.type == "LimitExceededError", "its own limits are not the agent's"
    go_on(w, own, limits=Limits(turns=3))
    assert w.run(own).output == "done"


def test_a_model_that_is_back_is_asked_again_as_often_as_at_first(plant: Any) -> None:
    fx = Counters()
    up: list[bool] = []

    def first(request: ModelRequest) -> Any:
        fx.bump("asked")
        if not up:
            raise ModelRequestError("m", "is down", retryable=True)
        return say("done")

    w = plant(Agent("agent", model=ScriptedModel([first])))
    run_id = w.start(agent="agent")
    for _ in range(20):
        if w.run(run_id).status == "failed":
            break
        w.advance(10_000)
        w.sweep()
    assert (w.run(run_id).status, fx["asked"]) == ("failed", w.tuning.model_retries + 1)
    retry(w.services, run_id)
    w.settle()
    assert (w.run(run_id).status, fx["asked"]) == ("queued", w.tuning.model_retries + 2)
    up.append(True)
    w.advance(10_000)
    w.sweep()
    assert w.run(run_id).output == "done"


def test_a_sequence_goes_on_in_its_middle_when_its_step_is_back(plant: Any) -> None:
    fx = Counters()

    @tool
    def draft(text: str) -> str:
        fx.bump("draft")
        return text.upper()

    def build(second: str) -> Sequential:
        point = WaitPoint("approval", suspend=Ask, resume=Verdict)

        @tool(name=second, wait_points=[point])
        def body(ctx: Context, text: str) -> str:
            return f"{text} {ctx.ask(point, Ask(prompt=text)).approved}"

        return Sequential("pipeline", [draft, body])

    w = plant(build("gate"))
    run_id = w.start("x", agent="pipeline")
    w.deploy(App(blocks=[build("renamed")]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"
    w.deploy(App(blocks=[build("gate")]))
    go_on(w, run_id)
    assert (w.run(run_id).output, fx["draft"]) == ("X True", 1)


def test_what_a_run_came_to_by_itself_is_not_retried(plant: Any) -> None:
    @tool
    def broken(text: str) -> str:
        raise OSError("no")

    w = plant(broken)
    run_id = w.start("x", agent="broken")
    assert w.run(run_id).error.type == "BlockFailedError"
    with pytest.raises(NotRetryableError, match="BlockFailedError"):
        retry(w.services, run_id)


def test_later_runs_of_the_thread_read_the_failed_one_as_it_went_on(plant: Any) -> None:
    fx = Counters()
    seen: list[ModelRequest] = []

    def remember(request: ModelRequest) -> Any:
        seen.append(request)
        return say("second")

    def build(resume: Any = Verdict) -> list[Agent]:
        return [
            Agent("agent", model=ScriptedModel([call("gate"), say("first")]), tools=[gate(fx, resume=resume)]),
            Agent("reader", model=ScriptedModel([remember])),
        ]

    w = plant(*build())
    run_id = w.start(agent="agent")
    w.deploy(App(blocks=build(Stricter)))
    w.answer(w.the_action(run_id), YES)
    w.deploy(App(blocks=build()))
    go_on(w, run_id)
    w.start("and now?", agent="reader", thread_id=w.run(run_id).thread_id)
    said = [turn.text for turn in seen[0].conversation if not isinstance(turn, ResultTurn)]
    results = [turn.content for turn in seen[0].conversation if isinstance(turn, ResultTurn)]
    assert (said, results) == (["go", "", "first", "and now?"], ["gate True"])
    assert isinstance(seen[0].conversation[-1], UserTurn)
