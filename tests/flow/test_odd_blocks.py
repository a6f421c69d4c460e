"""Blocks whose inputs are not what one would expect, and trees of odd forms."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from adjourn import (
    Agent,
    Context,
    Limits,
    ModelRequest,
    Parallel,
    Router,
    ScriptedModel,
    Sequential,
    call,
    require_approval,
    tool,
)
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.wait_points import WaitPoint
from adjourn.tasks.blocks.block import Block


@tool
def noon() -> str:
    return "noon"


@tool
def echo(text: str) -> str:
    return text


@tool
def unread(ctx: Context) -> str:
    return f"noon {ctx.input.model_dump()}"


@tool(input=dict[str, int])
def whole(ctx: Context) -> int:
    return sum(ctx.input.values())


def leave(*_: Any) -> Any:
    sys.exit(3)


@tool(resolver=leave)
def asking(ctx: Context, text: str) -> str:
    return str(ctx.ask(reason="gate", message=text, resume=str))


@pytest.mark.parametrize(
    ("block", "output"),
    [
        (noon, "noon"),
        (Sequential("block", [noon, echo]), "noon"),
        (Sequential("block", [unread]), "noon {}"),
        (Sequential("block", {"a": Sequential("inner", [noon]), "b": Parallel("inner", [noon])}), {"noon": "noon"}),
        (Parallel("block", {"time": noon, "text": echo}), {"time": "noon", "text": "go"}),
        (Router("block", {"time": noon, "text": echo}, lambda text: "text"), "go"),
    ],
)
def test_a_step_without_parameters_is_handed_whatever_comes(plant: Any, block: Block, output: Any) -> None:
    w = plant(block)
    run = w.run(w.start("go", agent=block.name))
    assert (run.status, run.output) == ("completed", output), run.error


def test_a_step_that_reads_its_input_from_the_context_is_handed_it(plant: Any) -> None:
    @tool
    def counts(text: str) -> dict[str, int]:
        return {"a": 1, "b": 2}

    w = plant(Sequential("block", [counts, whole]))
    assert w.run(w.start("go", agent="block")).output == 3


def test_a_model_calls_a_tool_whose_input_is_no_object_as_it_is_offered(plant: Any) -> None:
    summed: list[list[int]] = []

    @tool(input=list[int], cacheable=True)
    def total(numbers: list[int]) -> int:
        summed.append(numbers)
        return sum(numbers)

    assert total.spec.input_schema["required"] == ["input"]
    w = plant(
        Agent("agent", ScriptedModel([call("total", input=[1, 2]), call("total", input=[1, 2]), "done"]), tools=[total])
    )
    run_id = w.start("go", agent="agent")
    assert [(output.outcome, output.content) for output in w.outputs(run_id)] == [("success", 3)] * 2
    assert summed == [[1, 2]]


def test_what_would_let_every_call_pass_or_nobody_answer_is_refused_at_definition() -> None:
    with pytest.raises(DefinitionError, match="give the names of the tools"):
        require_approval(noon)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="give a list of who may answer"):
        WaitPoint("gate", suspend=dict, resume=dict, answerers="ada")


def test_blocks_within_blocks_without_end_are_an_error_that_the_model_reads(plant: Any) -> None:
    def once(request: ModelRequest) -> Any:
        if len(request.conversation) == 1:
            return call("again", input="go")
        came = request.conversation[-1].content
        return came if isinstance(came, str) else came["agent"]

    agent = Agent("agent", ScriptedModel(once), tools=lambda run: [Parallel("again", {"agent": agent})])
    w = plant(agent)
    run = w.run(w.start("go", agent="agent", limits=Limits(turns=1_000)))
    assert run.status == "completed", run.error
    assert "the tree of blocks has 101 levels, the limit is 100 levels" in run.output


def test_a_prompt_that_was_not_returned_is_not_told(plant: Any) -> None:
    w = plant(Agent("agent", ScriptedModel(["done"]), prompt=lambda text: None))  # type: ignore[arg-type, return-value]
    run = w.run(w.start("go", agent="agent"))
    assert (run.status, run.error.type) == ("failed", "PromptError")
    assert "prompt returned NoneType, not text" in run.error.message


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (Router("block", [echo], leave), "SelectorError"),
        (Agent("block", ScriptedModel(["done"]), tools=leave), "ToolResolverError"),
        (Agent("block", ScriptedModel(["done"]), prompt=leave), "PromptError"),
    ],
)
def test_code_that_leaves_the_process_fails_its_run_by_name(plant: Any, block: Block, error: str) -> None:
    w = plant(block)
    run = w.run(w.start("go", agent="block"))
    assert (run.status, run.error.type) == ("failed", error)
    assert "SystemExit: 3" in run.error.message


def test_a_policy_or_a_resolver_that_leaves_the_process_has_not_let_anything_pass(plant: Any) -> None:
    model = ScriptedModel([call("echo", text="go"), "done"])
    w = plant(Agent("judged", model, tools=[echo], policies=[leave]), asking)
    (output,) = w.outputs(w.start("go", agent="judged"))
    assert output.content == "a policy could not judge this call: SystemExit: 3"
    assert w.run(w.start("go", agent="asking")).status == "parked"
