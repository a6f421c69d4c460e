"""Deploys that change the types of a call that waits: a change that no recorded value can break fails nothing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import AfterValidator, BaseModel, Field, FutureDatetime, create_model

from adjourn import (
    Agent,
    App,
    Context,
    Resume,
    StoredValueError,
    SubAgent,
    ToolChangedError,
    WaitPoint,
    client_tool,
    require_approval,
    tool,
)
from adjourn.schemas.contracts import fingerprints
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.blocks import tools
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine import origins
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.lifecycle import retry
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import AGENT, World


class Part(BaseModel):
    n: int


class Verdict(BaseModel):
    ok: bool
    part: Part = Part(n=1)


class Piece(BaseModel):
    """The same as `Part`, under another name."""

    n: int = Field(description="How many")


def verdict(**fields: Any) -> Any:
    return create_model("Verdict", **{"ok": (bool, ...), "part": (Part, Part(n=1)), **fields})


def agent(tool: Block, **args: Any) -> Agent:
    return Agent(AGENT, ScriptedModel([call("gate", **args), say("done")]), tools=[tool])


def inline(resume: Any = Verdict, suspend: Any = str, asked: Any = "Well?", **options: Any) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("yes", suspend=suspend, resume=resume)

    @tool(name="gate", wait_points=[point], **options)
    def gate(ctx: Context) -> Any:
        """Ask, and hide whatever goes wrong."""
        try:
            return ctx.ask(point, asked() if callable(asked) else asked).ok
        except Exception:
            return "hidden"

    return gate


def entry(resume: Any = Verdict, **options: Any) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("yes", suspend=str, resume=resume)

    @tool(name="gate", wait_points=[point], **options)
    def gate(ctx: Context) -> Any:
        """Ask."""
        if isinstance(ctx.entry, Resume):
            return ctx.entry.resume.ok
        ctx.suspend(point, "Well?")

    return gate


def adhoc(resume: Any = Verdict, **options: Any) -> Block:
    @tool(name="gate", **options)
    def gate(ctx: Context) -> Any:
        """Ask."""
        return ctx.ask(reason="yes", message="Well?", resume=resume).ok

    return gate


COMPATIBLE = {
    "an optional field": verdict(note=(str | None, None)),
    "a list made by a function": verdict(tags=(list[str], Field(default_factory=list))),
    "a nested class renamed": verdict(part=(Piece, Piece(n=1))),
    "other words": verdict(ok=(bool, Field(title="Well?", description="yes or no", examples=[True]))),
    "another order": create_model("Verdict", part=(Part, Part(n=1)), ok=(bool, ...)),
    "a wider type": verdict(ok=(bool | Literal["maybe"], ...)),
    "optional now": verdict(ok=(bool, False)),
}
INCOMPATIBLE = {
    "removed": (create_model("Verdict", ok=(bool, ...)), "/part was removed"),
    "renamed": (create_model("Verdict", ok=(bool, ...), piece=(Part, Part(n=1))), "/part was removed"),
    "retyped": (verdict(ok=(str, ...)), "/ok has another type"),
    "required": (verdict(note=(str, ...)), "/note was added and is required"),
    "another default": (verdict(part=(Part, Part(n=2))), "/part has another default"),
    "tightened": (verdict(ok=(Literal[True], ...)), "/ok"),
}


def deployed(w: World, build: Block, run_id: str, answer: Any, *, before: bool) -> Any:
    """Answer before or after a deploy; return what the check says between the two."""
    if before:
        assert w.answer(w.the_action(run_id), answer, settle=False).status == "accepted"
    w.deploy(App(agents=[agent(build)]))
    (found,) = [check(log, w.app.blocks) for log in logs.unfinished(w.db)]
    if before:
        w.settle()
    else:
        assert w.answer(w.the_action(run_id), answer).status == "accepted"
    return found


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("gate", [inline, entry, adhoc])
@pytest.mark.parametrize("case", COMPATIBLE)
def test_a_change_that_no_answer_can_break_fails_nothing(plant: Any, gate: Any, case: str, before: bool) -> None:
    w = plant(agent(gate()))
    run_id = w.start()
    found = deployed(w, gate(COMPATIBLE[case]), run_id, {"ok": True}, before=before)
    assert (w.run(run_id).status, w.run(run_id).error) == ("completed", None)
    assert [each.content for each in w.outputs(run_id)] == [True]
    assert found.fits, "the check says what the deploy then does"


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("gate", [inline, entry, adhoc])
@pytest.mark.parametrize("case", INCOMPATIBLE)
def test_a_change_that_an_answer_may_not_survive_is_named(plant: Any, gate: Any, case: str, before: bool) -> None:
    build, said = INCOMPATIBLE[case]
    w = plant(agent(gate()))
    run_id = w.start()
    found = deployed(w, gate(build), run_id, {"ok": True}, before=before)
    error = w.run(run_id).error
    assert error is not None, "even an answer that both types read: it may mean something else now"
    assert error.type == ToolChangedError.__name__
    assert said in error.message
    # No declaration shows the type of a wait without a point.
    assert gate is adhoc or found.error == error


def test_another_version_fails_though_its_types_are_the_same(plant: Any) -> None:
    w = plant(agent(inline()))
    run_id = w.start()
    deployed(w, inline(version="2"), run_id, {"ok": True}, before=True)
    assert "version changed" in w.run(run_id).error.message


def test_what_has_no_recorded_value_may_change(plant: Any) -> None:
    def build(output: Any, other: Any) -> Block:
        points: list[WaitPoint[Any, Any]] = [
            WaitPoint("yes", suspend=str, resume=bool),
            WaitPoint("other", suspend=str, resume=other),
        ]

        @tool(name="gate", wait_points=points, output=output)
        def gate(ctx: Context) -> Any:
            """Ask."""
            return 1 if ctx.ask("yes", "Well?") else 0

        return gate

    w = plant(agent(build(int, str)))
    run_id = w.start()
    found = deployed(w, build(int | str, int), run_id, True, before=True)
    assert (found.fits, w.run(run_id).status) == (True, "completed")


def taking(fields: dict[str, Any]) -> Block:
    point: WaitPoint[Any, Any] = WaitPoint("yes", suspend=str, resume=bool)

    @tool(name="gate", wait_points=[point], input=create_model("Input", **fields))
    def gate(ctx: Context, value: Any) -> Any:
        """Ask."""
        ctx.ask(point, "Well?")
        return value.model_dump(mode="json")

    return gate


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({"to": (str, ...), "cents": (int, 5), "urgent": (bool, False)}, None),
        ({"to": (str, ...), "cents": (int, 6)}, "input changed (/cents has another default)"),
        ({"to": (str, ...), "cents": (float, 5)}, "input changed"),
        ({"to": (str, ...), "cents": (int, 5), "key": (UUID, Field(default_factory=uuid4))}, "differs each time"),
    ],
)
@pytest.mark.parametrize("approved", [True, False])
def test_the_input_of_a_call_that_waits(plant: Any, later: Any, said: str | None, approved: bool) -> None:
    def build(fields: dict[str, Any]) -> Agent:
        model = ScriptedModel([call("gate", to="Ada"), say("done")])
        return Agent(AGENT, model, tools=[taking(fields)], policies=[require_approval("gate")] if approved else [])

    w = plant(build({"to": (str, ...), "cents": (int, 5)}))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": True} if approved else True, settle=False)
    w.deploy(App(agents=[build(later)]))
    (found,) = [check(log, w.app.blocks) for log in logs.unfinished(w.db)]
    w.settle()
    error = w.run(run_id).error
    assert found.error == error
    if said is None:
        assert error is None
    else:
        assert error is not None
        assert error.type == "ToolChangedError"
        assert said in error.message


@pytest.mark.parametrize(("later", "error"), [(int, "ToolChangedError"), ("strict", "StoredValueError")])
def test_edited_arguments_that_cannot_be_read_fail_the_run_and_a_retry_uses_them(
    plant: Any, later: Any, error: str
) -> None:
    def strict(value: str) -> str:
        if value == "Eve":
            raise ValueError("not Eve")
        return value

    def build(to: Any) -> Agent:
        model = ScriptedModel([call("gate", to="Ada"), say("done")])

        @tool(name="gate", input=create_model("Input", to=(to, ...)))
        def gate(value: Any) -> str:
            """Pay."""
            return str(value.to)

        return Agent(AGENT, model, tools=[gate], policies=[require_approval("gate", edit=True)])

    w = plant(build(str))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": True, "args": {"to": "Eve"}}, settle=False)
    w.deploy(App(agents=[build(Annotated[str, AfterValidator(strict)] if later == "strict" else later)]))
    w.settle()
    assert (w.run(run_id).status, w.run(run_id).error.type) == ("failed", error)
    w.deploy(App(agents=[build(str)]))
    retry.retry(w.services, run_id)
    w.settle()
    assert [each.content for each in w.outputs(run_id)] == ["Eve"]


# --- what is asked ----------------------------------------------------------------------------------


class Ask(BaseModel):
    text: str


class WiderAsk(BaseModel):
    text: str
    level: str = "low"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (WiderAsk(text="Well?"), "completed"),
        (WiderAsk(text="Well?", level="high"), "parked"),
        (WiderAsk(text="Really?"), "parked"),
        ({"text": 7}, "failed"),
    ],
)
def test_an_optional_field_of_a_question_is_no_other_question_until_it_is_set(
    plant: Any, asked: Any, status: str
) -> None:
    w = plant(agent(inline(suspend=Ask, asked=Ask(text="Well?"))))
    run_id = w.start()
    found = deployed(w, inline(suspend=WiderAsk, asked=asked), run_id, {"ok": True}, before=True)
    assert found.fits, "what the body asks is not known before it runs"
    assert w.run(run_id).status == status
    if status == "parked":
        differs = "/level" if asked.level == "high" else "/text"
        assert differs in w.the_action(run_id).note
    if status == "failed":
        assert w.run(run_id).error.type == "ReplayMismatchError", "an error of the body would drop the answer"


class Due(BaseModel):
    at: FutureDatetime


def test_a_date_in_a_question_is_not_compared_with_the_clock_again(plant: Any) -> None:
    """The second pass asks with a date that has passed since: the body builds it without validation."""
    passes = itertools.count()
    past = datetime(2001, 1, 1, tzinfo=UTC)

    class Loose(BaseModel):
        at: datetime

    def asked() -> Any:
        next(passes)
        return Due.model_construct(at=past)

    w = plant(agent(inline(suspend=Loose, asked=Loose(at=past))))
    run_id = w.start()
    # The earlier build stands for one that asked while the date was in the future.
    later = inline(suspend=Due, asked=asked, version="2", resumes_from=["1"])
    deployed(w, later, run_id, {"ok": True}, before=True)
    assert (w.run(run_id).status, [each.content for each in w.outputs(run_id)]) == ("completed", [True])
    assert next(passes) == 1


# --- other answers ----------------------------------------------------------------------------------


def counting(limit: int) -> Any:
    """A validator that does not agree with itself: it accepts the first `limit` values."""
    seen = itertools.count(1)

    def judge(value: bool) -> bool:
        if next(seen) > limit:
            raise ValueError("too often")
        return value

    return Annotated[bool, AfterValidator(judge)]


@pytest.mark.parametrize("gate", [inline, entry])
def test_a_validator_that_does_not_agree_with_itself_fails_the_run_and_is_told(plant: Any, gate: Any) -> None:
    w = plant(agent(gate(verdict(ok=(counting(1), ...)))))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"ok": True})
    error = w.run(run_id).error
    assert (w.run(run_id).status, error.type) == ("failed", StoredValueError.__name__)
    assert "does not agree with itself" in error.message


@pytest.mark.parametrize(("later", "error"), [(int, "ToolChangedError"), ("strict", "StoredValueError")])
def test_the_result_of_a_client_that_cannot_be_read_fails_the_run(plant: Any, later: Any, error: str) -> None:
    def strict(value: str) -> str:
        raise ValueError("never")

    def build(output: Any) -> Agent:
        tool = client_tool("gate", description="Pick.", input=create_model("Input"), output=output)
        return Agent(AGENT, ScriptedModel([call("gate"), say("done")]), tools=[tool])

    w = plant(build(str))
    run_id = w.start()
    w.answer(w.the_action(run_id), "file", settle=False)
    w.deploy(App(agents=[build(Annotated[str, AfterValidator(strict)] if later == "strict" else later)]))
    w.settle()
    assert (w.run(run_id).status, w.run(run_id).error.type) == ("failed", error)


def test_a_call_of_a_sub_agent_survives_an_optional_field_and_not_another_type(plant: Any) -> None:
    def build(task: Any) -> Agent:
        point: WaitPoint[Any, Any] = WaitPoint("yes", suspend=str, resume=bool)

        @tool(name="work", wait_points=[point], input=task)
        def work(ctx: Context, value: Any) -> bool:
            """Ask."""
            return bool(ctx.ask(point, "Well?"))

        model = ScriptedModel([call("helper", task={"n": 1}), say("done")])
        return Agent(AGENT, model, tools=[SubAgent(work, name="helper")])

    for later, status in ((create_model("Task", n=(int, ...), m=(int, 0)), "completed"), (Verdict, "failed")):
        w = plant(build(Part))
        run_id = w.start()
        (action,) = w.pending()
        w.answer(action, True, settle=False)
        w.deploy(App(agents=[build(later)]))
        w.settle()
        assert w.run(run_id).status == status


# --- builds before this one -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (Verdict, None),
        (COMPATIBLE["other words"], None),
        (COMPATIBLE["an optional field"], None),
        (INCOMPATIBLE["removed"][0], "ToolChangedError"),
    ],
)
def test_a_wait_that_an_older_build_opened_is_compared_in_its_way(
    plant: Any, monkeypatch: Any, build: Any, error: str | None
) -> None:
    for module in (tools, origins):
        monkeypatch.setattr(module, "fingerprint", fingerprints.older_fingerprint)
    monkeypatch.setattr(origins, "bare", lambda schema: None)
    w = plant(agent(inline()))
    run_id = w.start()
    monkeypatch.undo()
    found = deployed(w, inline(build), run_id, {"ok": True}, before=True)
    failed = w.run(run_id).error
    assert (failed and failed.type) == error
    assert found.error == failed
