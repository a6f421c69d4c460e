"""A deploy that puts another kind of block in the place of one that a run is inside of: by name, no answer lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Parallel, Router, Sequential, tool
from adjourn.store.postgres.threads import histories as logs
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.engine.preflight import check
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.flow.report_tools import Prompt, approval
from tests.world import Counters

YES = {"approved": True}


class Form(BaseModel):
    """A form of output."""

    word: str


def gate(name: str = "gate") -> Block:
    @tool(name=name, wait_points=[approval])
    def gate(ctx: Context, text: str) -> str:
        """Ask."""
        return f"{text}: {ctx.ask(approval, Prompt(prompt=text)).approved}"

    return gate


def plain(name: str, counters: Counters | None = None) -> Block:
    @tool(name=name)
    def plain(text: str) -> str:
        """Ask nobody."""
        if counters is not None:
            counters.bump(name)
        return text

    return plain


def inner() -> Agent:
    return Agent("inner", ScriptedModel([call("gate", text="x"), say("in")]), tools=[gate()])


def outer(*tools: Block, arg: str) -> Agent:
    return Agent("agent", ScriptedModel([call("inner", **{arg: "x"}), say("done")]), tools=tools)


KINDS: dict[str, Callable[[], Block]] = {
    "tool": lambda: gate("inner"),
    "sequence": lambda: Sequential("inner", [gate()]),
    "agent": inner,
    "router": lambda: Router("inner", [gate()], lambda text: "gate"),
}


@pytest.mark.parametrize(("was", "later"), [each for each in product(KINDS, (None, *KINDS)) if each[0] != each[1]])
def test_a_block_as_a_tool_that_is_gone_or_another_fails_the_run_by_name(
    plant: Any, was: str, later: str | None
) -> None:
    arg = "text" if was == "tool" else "input"
    build = outer(*([] if later is None else [KINDS[later]()]), arg=arg)
    w = plant(outer(KINDS[was](), arg=arg))
    run_id = w.start(agent="agent")
    (found,) = [check(log, App(blocks=[build]).blocks) for log in logs.unfinished(w.db)]
    w.deploy(App(blocks=[build]))
    assert w.answer(w.the_action(run_id), YES).status == "accepted"
    run = w.run(run_id)
    error = "ToolChangedError" if later is None else "BlockChangedError"
    assert (run.status, run.error.type) == ("failed", error)
    assert found.error == run.error, "the check says what the deploy then does"


def test_a_branch_that_is_finished_does_not_run_again_as_another_block(plant: Any) -> None:
    counters = Counters()
    w = plant(Parallel("both", {"done": plain("done", counters), "gate": gate()}))
    run_id = w.start("x", agent="both")
    again = Sequential("done", [plain("again", counters)])
    w.deploy(App(blocks=[Parallel("both", {"done": again, "gate": gate()})]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"
    assert counters.seen == {"done": 1}


def test_a_finished_branch_that_is_gone_is_not_left_out_of_the_output(plant: Any) -> None:
    w = plant(Parallel("both", {"done": plain("done"), "gate": gate()}))
    run_id = w.start("x", agent="both")
    w.deploy(App(blocks=[Parallel("both", {"gate": gate()})]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"
    assert "no step 'done'" in w.run(run_id).error.message


def test_a_step_that_waits_and_becomes_a_block_made_of_blocks_fails_the_run_by_name(plant: Any) -> None:
    w = plant(Sequential("pipeline", [gate(), plain("last")]))
    run_id = w.start("x", agent="pipeline")
    w.deploy(App(blocks=[Sequential("pipeline", {"gate": Sequential("gate", [plain("step")]), "last": plain("last")})]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"


@pytest.mark.parametrize(
    ("was", "later", "last"), [(str, Form, "a word"), (Form, str, call("final_result", word="a"))], ids=["text", "form"]
)
def test_a_finished_agent_whose_form_of_output_changed_fails_the_run_by_name(
    plant: Any, was: Any, later: Any, last: Any
) -> None:
    def build(output: Any) -> Parallel:
        return Parallel("both", [Agent("first", ScriptedModel([last]), output_type=output), gate()])

    w = plant(build(was))
    run_id = w.start("x", agent="both")
    changed = App(blocks=[build(later)])
    (found,) = [check(log, changed.blocks) for log in logs.unfinished(w.db)]
    w.deploy(changed)
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"
    assert found.error == w.run(run_id).error
