"""Trees of blocks: what suspends anywhere in them goes on there, and nothing that is done is done again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Limits, Parallel, Router, Sequential, WaitPoint, tool
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.items import CorrectionItem, ResponseItem, RouteItem
from adjourn.schemas.records.messages import ModelRequest, ResultTurn, UserTurn
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import ScriptedModel, call, call_raw, say
from tests.world import Counters


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Verdict)
YES, NO = {"approved": True}, {"approved": False}


def drafting(counters: Counters) -> Block:
    @tool
    def draft(topic: str) -> str:
        counters.bump("draft")
        return f"On {topic}."

    return draft


def gate(counters: Counters, name: str = "gate") -> Block:
    @tool(name=name, wait_points=[approval])
    def gate(ctx: Context, text: str) -> str:
        counters.bump(f"{name} entered")
        if not ctx.ask(approval, Ask(prompt=text)).approved:
            return "refused"
        counters.bump(name)
        return f"{text} ({name} passed)"

    return gate


def publishing(counters: Counters) -> Block:
    @tool
    def publish(text: str) -> str:
        counters.bump("publish")
        return f"published: {text}"

    return publish


def test_a_sequence_parks_in_its_middle_and_goes_on_there(plant: Any, counters: Counters) -> None:
    pipeline = Sequential("pipeline", [drafting(counters), gate(counters), publishing(counters)])
    w = plant(pipeline)
    run_id = w.start("whales", agent="pipeline")
    assert w.run(run_id).status == "parked"
    action = w.the_action(run_id)
    assert action.input == {"prompt": "On whales."}
    assert action.origin.block_path == ("pipeline", "gate")
    w.deploy(w.app)  # a fresh process
    w.answer(action, YES)
    run = w.run(run_id)
    assert (run.status, run.output) == ("completed", "published: On whales. (gate passed)")
    assert counters.seen == {"draft": 1, "gate entered": 2, "gate": 1, "publish": 1}


def test_a_handler_is_a_run_of_its_own(plant: Any, counters: Counters) -> None:
    w = plant(gate(counters))
    run_id = w.start("text", agent="gate")
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).output == "text (gate passed)"


def test_parallel_branches_wait_on_their_own_and_join(plant: Any, counters: Counters) -> None:
    both = Parallel("both", {"legal": gate(counters, "legal"), "press": gate(counters, "press")})
    w = plant(Sequential("pipeline", [drafting(counters), both]))
    run_id = w.start("whales", agent="pipeline")
    legal, press = sorted(w.pending(run_id), key=lambda action: action.origin.block_path)
    assert legal.origin.block_path == ("pipeline", "both", "legal")
    assert legal.name == "legal.approval"
    w.answer(press, YES)
    assert w.run(run_id).status == "parked"
    w.answer(legal, NO)
    run = w.run(run_id)
    assert run.output == {"legal": "refused", "press": "On whales. (press passed)"}
    assert counters["press entered"] == 2, "a branch that has ended does not run again for its sibling's answer"
    assert counters["draft"] == 1


def router(counters: Counters, select: Any) -> Router:
    return Router("triage", {"auto": publishing(counters), "human": gate(counters)}, select)


def test_a_router_keeps_its_route_across_the_wait(plant: Any, counters: Counters) -> None:
    w = plant(router(counters, lambda text: "human" if "risk" in text else "auto"))
    run_id = w.start("a risk", agent="triage")
    assert [item.body.route for item in w.items(run_id) if isinstance(item.body, RouteItem)] == ["human"]
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).output == "a risk (gate passed)"
    assert counters["publish"] == 0


def test_a_selector_that_changes_its_mind_fails_the_run_and_runs_nothing_of_the_other_route(
    plant: Any, counters: Counters
) -> None:
    minds = ["human"]
    w = plant(router(counters, lambda _: minds[0]))
    run_id = w.start("text", agent="triage")
    minds[0] = "auto"
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", "RouteUnavailableError")
    assert (run.error.data["taken"], run.error.data["chosen"]) == ("human", "auto")
    assert counters["publish"] == 0
    assert counters["gate"] == 0


@pytest.mark.parametrize(
    ("select", "problem"), [(lambda _: "nowhere", "chose 'nowhere'"), (lambda _: 1 / 0, "raised ZeroDivisionError")]
)
def test_a_selector_that_cannot_choose_fails_the_run(plant: Any, counters: Counters, select: Any, problem: str) -> None:
    w = plant(router(counters, select))
    run = w.run(w.start("text", agent="triage"))
    assert run.error.type == "SelectorError"
    assert problem in run.error.message


def test_a_route_that_is_gone_fails_the_run(plant: Any, counters: Counters) -> None:
    w = plant(router(counters, lambda _: "human"))
    run_id = w.start("text", agent="triage")
    w.deploy(App(blocks=[Router("triage", {"auto": publishing(counters)}, lambda _: "auto")]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "RouteUnavailableError"
    assert "does not have route 'human' any more" in w.run(run_id).error.message
    assert "chooses" not in w.run(run_id).error.message
    assert counters["publish"] == 0


def test_a_step_that_was_renamed_fails_the_run(plant: Any, counters: Counters) -> None:
    steps = {"draft": drafting(counters), "gate": gate(counters)}
    w = plant(Sequential("pipeline", steps))
    run_id = w.start("whales", agent="pipeline")
    w.deploy(App(blocks=[Sequential("pipeline", {"draft": steps["draft"], "gateway": steps["gate"]})]))
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", "BlockChangedError")
    assert "'gate'" in run.error.message
    assert counters["gate"] == 0


def test_steps_in_another_order_fail_the_run(plant: Any, counters: Counters) -> None:
    steps = {"draft": drafting(counters), "gate": gate(counters), "publish": publishing(counters)}
    w = plant(Sequential("pipeline", steps))
    run_id = w.start("whales", agent="pipeline")
    w.deploy(App(blocks=[Sequential("pipeline", {name: steps[name] for name in ("publish", "draft", "gate")})]))
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).error.type == "BlockChangedError"
    assert counters["publish"] == 0


def test_a_step_that_fails_ends_its_sequence(plant: Any, counters: Counters) -> None:
    @tool
    def broken(text: str) -> str:
        raise ValueError("no ink")

    w = plant(Sequential("pipeline", [broken, publishing(counters)]))
    run = w.run(w.start("whales", agent="pipeline"))
    assert (run.status, run.error.type) == ("failed", "BlockFailedError")
    assert "no ink" in run.error.message
    assert counters["publish"] == 0


def test_what_does_not_fit_the_next_step_is_an_error_that_names_it(plant: Any, counters: Counters) -> None:
    @tool
    def count(text: str) -> int:
        return len(text)

    w = plant(Sequential("pipeline", [count, publishing(counters)]))
    run = w.run(w.start("whales", agent="pipeline"))
    assert run.status == "failed"
    assert "publish" in run.error.message
    assert "/text" in run.error.message


# --- agents in trees ---------------------------------------------------------------------------


def test_agents_are_steps_with_conversations_of_their_own(plant: Any, counters: Counters) -> None:
    heard: list[ModelRequest] = []

    def hear(request: ModelRequest) -> None:
        heard.append(request)
        counters.bump("model")

    writer = Agent(
        "writer", ScriptedModel([call("gate", text="draft"), "A draft."], on_request=hear), tools=[gate(counters)]
    )
    critic = Agent("critic", ScriptedModel(["Too short."], on_request=hear))
    w = plant(Sequential("pipeline", [writer, critic]))
    run_id = w.start("whales", agent="pipeline")
    assert w.the_action(run_id).origin.block_path == ("pipeline", "writer", "gate")
    w.deploy(w.app)
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.output, run.turns, run.usage.requests) == ("completed", "Too short.", 3, 3)
    assert counters["model"] == 3
    assert heard[-1].conversation == (UserTurn(text="A draft."),)
    assert [turn.text for turn in heard[0].conversation if isinstance(turn, UserTurn)] == ["whales"]


def test_any_block_is_a_tool_of_an_agent(plant: Any, counters: Counters) -> None:
    pipeline = Sequential("pipeline", [drafting(counters), gate(counters)], description="Write and have it approved.")
    results: list[Any] = []

    def done(request: ModelRequest) -> str:
        results.extend(turn.content for turn in request.conversation if isinstance(turn, ResultTurn))
        return "Done."

    editor = Agent(
        "editor",
        ScriptedModel([[call("pipeline", input="whales"), call("pipeline", input="bees")], done]),
        tools=[pipeline],
    )
    w = plant(editor)
    run_id = w.start("go", agent="editor")
    first, second = sorted(w.pending(run_id), key=lambda action: str(action.input), reverse=True)
    assert first.origin.block_path == ("editor", "pipeline", "gate")
    assert first.input == {"prompt": "On whales."}
    w.answer(second, NO)
    w.answer(first, YES)
    assert w.run(run_id).output == "Done."
    assert results == ["On whales. (gate passed)", "refused"]
    assert counters["draft"] == 2


def test_an_agent_in_an_agent_is_asked_for_its_own_turns_only(plant: Any, counters: Counters) -> None:
    inner = Agent("helper", ScriptedModel([call("gate", text="inner"), "helped"]), tools=[gate(counters)])
    outer = Agent("boss", ScriptedModel([call("helper", input="help me"), "Thanks."]), tools=[inner])
    w = plant(outer)
    run_id = w.start("go", agent="boss")
    assert w.the_action(run_id).origin.block_path == ("boss", "helper", "gate")
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.output, run.turns) == ("Thanks.", 4)
    asked = [item.body.call_id for item in w.items(run_id) if isinstance(item.body, ResponseItem)]
    assert asked[0] == asked[3] == "root"
    assert asked[1] == asked[2] != "root"


def test_side_by_side_agents_are_asked_in_one_task(plant: Any, counters: Counters) -> None:
    def agent(name: str) -> Agent:
        return Agent(name, ScriptedModel([f"{name} speaks"]))

    w = plant(Parallel("panel", [agent("a"), agent("b")]))
    run_id = w.start("go", agent="panel")
    assert w.run(run_id).output == {"a": "a speaks", "b": "b speaks"}
    assert len(w.wakeups.published) == 1


def test_the_limits_of_an_inner_agent_are_a_result_for_the_outer_one(plant: Any, counters: Counters) -> None:
    inner = Agent("helper", ScriptedModel(lambda _: [call("look")]), tools=[_look(counters)], limits=Limits(turns=2))
    outer = Agent("boss", ScriptedModel([call("helper", input="help me"), "Never mind."]), tools=[inner])
    w = plant(outer)
    run_id = w.start("go", agent="boss")
    assert w.run(run_id).output == "Never mind."
    assert [(output.tool, output.outcome) for output in w.outputs(run_id)][-1] == ("helper", "error")
    assert counters["look"] == 2


def _look(counters: Counters) -> Block:
    @tool
    def look() -> str:
        counters.bump("look")
        return "nothing"

    return look


# --- output with a form ------------------------------------------------------------------------


class Report(BaseModel):
    title: str
    pages: int


def test_an_agent_with_a_form_of_output_ends_with_a_value_of_it(plant: Any) -> None:
    model = ScriptedModel(
        [call("final_result", title="Whales", pages="3"), call("final_result", title="Whales", pages=3)]
    )
    w = plant(Agent("reporter", model, output_type=Report))
    run_id = w.start("go", agent="reporter")
    assert w.run(run_id).output == {"title": "Whales", "pages": 3}
    wrong, right = w.outputs(run_id)
    assert wrong.outcome == "error"
    assert "/pages" in str(wrong.content)
    assert right.outcome == "success"


def test_text_where_a_form_was_asked_for_is_corrected_or_read(plant: Any) -> None:
    model = ScriptedModel(lambda request: _after_correction(request))
    w = plant(Agent("reporter", model, output_type=Report))
    run_id = w.start("go", agent="reporter")
    assert w.run(run_id).output == {"title": "Whales", "pages": 3}
    (correction,) = [item.body for item in w.items(run_id) if isinstance(item.body, CorrectionItem)]
    assert "final_result" in correction.text


def _after_correction(request: ModelRequest) -> Any:
    told = [turn.text for turn in request.conversation if isinstance(turn, UserTurn)]
    return say("Here you are.") if len(told) == 1 else say('{"title": "Whales", "pages": 3}')


def test_other_calls_of_the_last_turn_are_finished_first(plant: Any, counters: Counters) -> None:
    model = ScriptedModel([[call("gate", text="x"), call("final_result", title="Whales", pages=3)]])
    w = plant(Agent("reporter", model, tools=[gate(counters)], output_type=Report))
    run_id = w.start("go", agent="reporter")
    assert w.run(run_id).status == "parked"
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).output == {"title": "Whales", "pages": 3}
    assert counters["gate"] == 1


# --- tools by resolver -------------------------------------------------------------------------


def test_tools_may_be_a_function_of_the_run(plant: Any, counters: Counters) -> None:
    gated = gate(counters)
    agent = Agent("agent", ScriptedModel([call("gate", text="x"), "done"]), tools=lambda run: [gated])
    w = plant(agent)
    run_id = w.start("go", agent="agent")
    w.answer(w.the_action(run_id), YES)
    assert w.run(run_id).output == "done"


@pytest.mark.parametrize(
    ("later", "error"), [(lambda run: [], "ToolChangedError"), (lambda run: 1 / 0, "ToolResolverError")]
)
def test_a_resolver_that_drops_the_tool_that_waits_fails_the_run(
    plant: Any, counters: Counters, later: Any, error: str
) -> None:
    gated = gate(counters)
    model = ScriptedModel([call("gate", text="x"), "done"])
    w = plant(Agent("agent", model, tools=lambda run: [gated]))
    run_id = w.start("go", agent="agent")
    w.deploy(App(blocks=[Agent("agent", model, tools=later)]))
    w.answer(w.the_action(run_id), YES)
    run = w.run(run_id)
    assert (run.status, run.error.type) == ("failed", error)
    assert counters["gate"] == 0


def test_a_model_that_invents_a_tool_reads_which_there_are(plant: Any, counters: Counters) -> None:
    model = ScriptedModel([[call("nothing"), call_raw("gate", "{", id="x")], "sorry"])
    w = plant(Agent("agent", model, tools=[gate(counters)]))
    run_id = w.start("go", agent="agent")
    assert w.run(run_id).output == "sorry"
    assert ["gate" in str(output.content) for output in w.outputs(run_id)] == [True, False]


def test_an_input_that_no_prompt_can_be_made_of_fails_the_run_by_name(plant: Any) -> None:
    w = plant(Agent("agent", ScriptedModel(["never asked"]), prompt=lambda text: 1 / 0))  # type: ignore[arg-type]
    run = w.run(w.start("go", agent="agent"))
    assert (run.status, run.error.type) == ("failed", "PromptError")
    assert "ZeroDivisionError" in run.error.message


def test_a_word_that_is_nested_too_deep_for_a_form_is_corrected(plant: Any) -> None:
    def reply(request: ModelRequest) -> Any:
        told = [turn for turn in request.conversation if isinstance(turn, UserTurn)]
        return say("[" * 100_000) if len(told) == 1 else call("final_result", approved=True)

    w = plant(Agent("agent", ScriptedModel(reply), output_type=Verdict))
    run = w.run(w.start("go", agent="agent"))
    assert (run.status, run.output) == ("completed", YES), run.error


class Touchy(str):
    """Compares to nothing."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("no truth in it")

    __hash__ = str.__hash__


def test_a_choice_that_cannot_be_compared_fails_the_run_by_name(plant: Any, counters: Counters) -> None:
    w = plant(Router("router", [drafting(counters)], lambda text: Touchy("draft"), input=str))
    run = w.run(w.start("go", agent="router"))
    assert (run.status, run.error.type) == ("failed", "SelectorError")


class Plain:
    """Its `request` is no coroutine function."""

    name = "plain"

    def request(self, request: ModelRequest) -> Any:
        raise ZeroDivisionError("before there is anything to await")


@pytest.mark.parametrize("model", ["nonsense", Plain()])
def test_a_model_that_cannot_be_asked_fails_the_run_by_name(plant: Any, model: Any) -> None:
    w = plant(Agent("agent", model))
    run = w.run(w.start("go", agent="agent"))
    assert (run.status, run.error.type) == ("failed", "ModelRequestError")


def test_what_is_no_model_is_refused_at_definition() -> None:
    with pytest.raises(DefinitionError, match="its model is 7"):
        Agent("agent", 7)  # type: ignore[arg-type]
