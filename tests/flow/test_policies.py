"""Before-tool policies: what an agent's owner says of a call, without touching its tool."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from adjourn import (
    Agent,
    Answer,
    App,
    Context,
    Deny,
    PolicyCall,
    RequireApproval,
    Tool,
    WaitPoint,
    require_approval,
    tool,
)
from adjourn import Sequential as Steps
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.items import ResponseItem
from adjourn.tasks.models.scripted import call
from tests.world import AGENT, Counters, World, scripted, world


def paying(counters: Counters) -> Tool[..., Any]:
    @tool
    def pay(ctx: Context, amount: int, to: str = "me") -> str:
        counters.bump(f"paid {amount} to {to}")
        return f"paid {amount}"

    return pay


def the_outcome(w: World, run_id: str) -> str:
    """Of the one call of a run."""
    (output,) = w.outputs(run_id)
    return output.outcome


def test_a_call_waits_for_an_approval_and_runs_as_it_was_shown(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    model = scripted(call("pay", amount=7), "done", counters=counters)
    with world(database_url, redis_url, paying(counters), model=model, policies=[require_approval("pay")]) as w:
        run_id = w.start()
        action = w.the_action(run_id)
        assert (action.name, action.kind) == ("pay.call_approval", "approval")
        assert action.input == {"prompt": "May pay run?", "tool": "pay", "args": {"amount": 7, "to": "me"}}
        assert counters["paid 7 to me"] == 0
        w.deploy(w.app)
        w.answer(action, {"approved": True})
        assert w.run(run_id).status == "completed"
        assert counters.seen == {"model": 2, "paid 7 to me": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"data": {"approved": False, "comment": "too much"}}, "declined: May pay run? (reason: too much)"),
        ({"data": {"approved": False}}, "declined: May pay run?"),
        ({"kind": "cancel", "reason": "closed"}, "declined: May pay run? (reason: closed)"),
    ],
)
def test_a_refusal_is_a_denial_that_the_model_reads(
    database_url: str, redis_url: str, counters: Counters, answer: dict[str, Any], said: str
) -> None:
    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[require_approval()]) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), **answer)
        assert w.run(run_id).output == "done"
        (output,) = w.outputs(run_id)
        assert (output.outcome, output.content) == ("declined", said)
        assert counters.seen == {}


def test_an_approval_never_sticks_to_a_later_call(database_url: str, redis_url: str, counters: Counters) -> None:
    model = scripted(call("pay", amount=7), call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[require_approval("pay")]) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), {"approved": True})
        second = w.the_action(run_id)
        assert counters["paid 7 to me"] == 1
        w.answer(second, {"approved": True})
        assert counters["paid 7 to me"] == 2


def test_arguments_can_be_edited_only_where_the_policy_says_so(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[require_approval("pay")]) as w:
        run_id = w.start()
        receipt = w.answer(w.the_action(run_id), {"approved": True, "args": {"amount": 5}})
        assert receipt.status == "invalid"
        assert w.run(run_id).status == "parked"


def test_an_edit_has_to_fit_the_schema_of_the_tool(database_url: str, redis_url: str, counters: Counters) -> None:
    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[require_approval(edit=True)]) as w:
        run_id = w.start()
        action = w.the_action(run_id)
        for wrong in ({"amount": "5"}, {"amount": 5, "by": "air"}, {}):
            assert w.answer(action, {"approved": True, "args": wrong}).status == "invalid"
        assert w.answer(action, {"approved": True, "args": {"amount": 5, "to": "you"}}).status == "accepted"
        assert counters.seen == {"paid 5 to you": 1}
        (asked,) = [i.body for i in w.items(run_id) if isinstance(i.body, ResponseItem) and i.body.calls]
        assert asked.calls[0].args == {"amount": 7}, "what the model said is not rewritten"


def by_argument(judged: PolicyCall) -> Any:
    return RequireApproval() if judged.args["amount"] > 10 else None


def by_use(judged: PolicyCall) -> Any:
    return Deny("enough") if judged.run.tool_calls > 1 else None


def test_policies_judge_by_argument_and_by_what_was_used(database_url: str, redis_url: str, counters: Counters) -> None:
    model = scripted(call("pay", amount=7), call("pay", amount=8), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[by_argument, by_use]) as w:
        run_id = w.start()
        assert w.run(run_id).output == "done"
        assert [output.outcome for output in w.outputs(run_id)] == ["success", "declined"]
        assert counters.seen == {"paid 7 to me": 1}


@pytest.mark.parametrize("policy", [lambda judged: 1 / 0, lambda judged: True], ids=["raises", "no verdict"])
def test_what_cannot_be_judged_does_not_run(database_url: str, redis_url: str, counters: Counters, policy: Any) -> None:
    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[policy]) as w:
        run_id = w.start()
        assert the_outcome(w, run_id) == "error"
        assert counters.seen == {}


def test_a_policy_is_asked_again_before_an_approved_call_runs(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    def policy(judged: PolicyCall) -> Any:
        counters.bump("judged")
        return RequireApproval(timeout=timedelta(hours=1))

    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[policy]) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), {"approved": True})
        assert counters["judged"] == 2
        assert w.run(run_id).status == "completed"


def test_an_approval_that_nobody_gives_in_time_is_a_denial(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    model = scripted(call("pay", amount=7), "done")
    policies: Sequence[Any] = [lambda judged: RequireApproval(timeout=timedelta(hours=1))]
    with world(database_url, redis_url, paying(counters), model=model, policies=policies) as w:
        run_id = w.start()
        w.advance(3601)
        w.sweep()
        assert the_outcome(w, run_id) == "expired"
        assert counters.seen == {}


def test_a_block_is_let_in_by_an_approval_with_its_edited_input(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    shout = Steps("shout", [_upper(counters), _exclaim(counters)])
    agent = Agent(
        AGENT, scripted(call("shout", input="hey"), "done"), tools=[shout], policies=[require_approval(edit=True)]
    )
    w = World(App(agents=[agent]), database_url, redis_url)
    try:
        run_id = w.start()
        assert counters.seen == {}
        w.answer(w.the_action(run_id), {"approved": True, "args": {"input": "ho"}})
        assert [output.content for output in w.outputs(run_id)] == ["HO", "HO!", "HO!"]
        assert w.run(run_id).output == "done"
    finally:
        w.close()


def _upper(counters: Counters) -> Tool[..., Any]:
    @tool
    def upper(text: str) -> str:
        counters.bump("upper")
        return text.upper()

    return upper


def _exclaim(counters: Counters) -> Tool[..., Any]:
    @tool
    def exclaim(text: str) -> str:
        counters.bump("exclaim")
        return text + "!"

    return exclaim


@pytest.mark.parametrize(
    "policy",
    [
        lambda judged: RequireApproval(on_timeout="a word"),
        lambda judged: RequireApproval(timeout=timedelta(0)),
        lambda judged: RequireApproval(prompt=7),  # type: ignore[arg-type]
    ],
    ids=["default", "timeout", "prompt"],
)
def test_an_approval_that_cannot_be_asked_for_does_not_run_the_call(
    database_url: str, redis_url: str, counters: Counters, policy: Any
) -> None:
    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[policy]) as w:
        run_id = w.start()
        assert w.run(run_id).output == "done"
        assert the_outcome(w, run_id) == "error"
        assert counters.seen == {}


def test_a_reason_may_be_any_text(database_url: str, redis_url: str, counters: Counters) -> None:
    model = scripted(call("pay", amount=7), "done")
    policies = [lambda judged: Deny("half \ud800 and \x00")]
    with world(database_url, redis_url, paying(counters), model=model, policies=policies) as w:
        run_id = w.start()
        assert w.run(run_id).output == "done"
        (output,) = w.outputs(run_id)
        assert output.content == "declined by policy: half \ufffd and \ufffd"


def test_what_a_policy_does_to_the_arguments_changes_neither_what_is_shown_nor_what_runs(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    def policy(judged: PolicyCall) -> Any:
        judged.args["amount"] = 1
        return RequireApproval()

    model = scripted(call("pay", amount=7), "done")
    with world(database_url, redis_url, paying(counters), model=model, policies=[policy]) as w:
        run_id = w.start()
        assert w.the_action(run_id).input["args"] == {"amount": 7, "to": "me"}
        w.answer(w.the_action(run_id), {"approved": True})
        assert counters.seen == {"paid 7 to me": 1}


def test_a_result_of_edited_arguments_is_reused_for_those_and_no_others(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    @tool(cacheable=True)
    def look_up(city: str) -> str:
        counters.bump(city)
        return f"in {city}"

    rome = call("look_up", city="Rome")
    model = scripted(rome, rome, rome, "done")
    with world(database_url, redis_url, look_up, model=model, policies=[require_approval(edit=True)]) as w:
        run_id = w.start()
        for city in ("Paris", "Rome", "Paris"):
            w.answer(w.the_action(run_id), {"approved": True, "args": {"city": city}})
        assert [output.content for output in w.outputs(run_id)] == ["in Paris", "in Rome", "in Paris"]
        assert w.run(run_id).output == "done"


def test_a_tool_does_not_approve_its_own_calls(database_url: str, redis_url: str, counters: Counters) -> None:
    @tool(resolver=lambda action: Answer(action_id=action.id, data={"approved": True}))
    def pay(amount: int) -> str:
        counters.bump("paid")
        return "paid"

    with world(
        database_url, redis_url, pay, model=scripted(call("pay", amount=7), "done"), policies=[require_approval()]
    ) as w:
        run_id = w.start()
        assert w.the_action(run_id).name == "pay.call_approval"
        assert counters.seen == {}


def test_no_wait_point_of_a_tool_passes_for_what_is_asked_about_its_calls() -> None:
    def body(ctx: Context) -> None:
        """Never called."""

    for name, kind in (("call_approval", None), ("outcome", "outcome")):
        point: WaitPoint[Any, Any] = WaitPoint(name, suspend=dict, resume=dict, kind=kind)
        with pytest.raises(DefinitionError, match=name):
            tool(wait_points=[point])(body)


def test_an_approval_of_what_is_no_tool_of_the_agent_is_refused_at_definition(counters: Counters) -> None:
    pay, shout = paying(counters), Steps("shout", [_upper(counters)])
    gated = Agent(AGENT, scripted("done"), tools=[pay, shout], policies=[require_approval("pay", "shout")])
    assert gated.by_name == {"pay": pay, "shout": shout}
    own = [lambda judged: None]  # says nothing of whom it is for
    assert Agent(AGENT, scripted("done"), policies=[require_approval(), *own]).by_name == {}
    for typo in ("pya", "upper", "final_result", ""):  # the calls of a step are nobody's to judge
        with pytest.raises(DefinitionError, match=f"approval is demanded for '{typo}', and its tools are: pay, shout"):
            Agent(
                AGENT, scripted("done"), tools=[pay, shout], output_type=int, policies=[require_approval("pay", typo)]
            )
    with pytest.raises(DefinitionError, match="its tools are: none"):
        Agent(AGENT, scripted("done"), policies=[require_approval("pay")])


def test_an_approval_of_what_is_no_tool_in_this_run_fails_the_run(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    agent = Agent(
        AGENT,
        scripted(call("pay", amount=7), "done", counters=counters),
        tools=lambda run: [paying(counters)],
        policies=[require_approval("pya")],
    )
    w = World(App(agents=[agent]), database_url, redis_url)
    try:
        error = w.run(w.start()).error
        assert error is not None
        assert error.type == "ToolResolverError"
        assert "an approval is demanded for 'pya', and its tools are: pay" in error.message
        assert counters.seen == {}, "no model was asked, and nothing ran without the approval"
    finally:
        w.close()


def test_a_yes_to_one_question_does_not_meet_another_that_a_deploy_puts_before_it(
    database_url: str, redis_url: str, counters: Counters
) -> None:
    manager = require_approval("pay", prompt="manager: pay?")
    finance = require_approval("pay", when=lambda call: call.args["amount"] > 100, prompt="finance: pay that much?")

    model = scripted(call("pay", amount=500), "done")
    pay = paying(counters)
    with world(database_url, redis_url, pay, model=model, policies=[manager]) as w:
        run_id = w.start()
        w.deploy(App(agents=[Agent(AGENT, model=model, tools=[pay], policies=[finance, manager])]))
        asked = []
        while w.pending(run_id):
            action = w.the_action(run_id)
            asked.append(action.prompt)
            assert counters["paid 500 to me"] == 0
            w.answer(action, {"approved": True})
        assert asked == ["manager: pay?", "finance: pay that much?"]
        assert counters["paid 500 to me"] == 1


def test_who_may_approve_may_be_given_by_a_generator(database_url: str, redis_url: str, counters: Counters) -> None:
    model = scripted(call("pay", amount=7), "done")
    policy = lambda _: RequireApproval(answerers=(name for name in ["boss"]))  # noqa: E731
    with world(database_url, redis_url, paying(counters), model=model, policies=[policy]) as w:
        action = w.the_action(w.start())
        assert action.answerers == ("boss",)
        assert w.answer_as("boss", action, {"approved": True}).status == "accepted"


@pytest.mark.parametrize("answerers", [[], [1], "boss"], ids=repr)
def test_people_who_cannot_be_asked_are_refused_where_they_are_named(answerers: Any) -> None:
    with pytest.raises(DefinitionError, match="answerers"):
        RequireApproval(answerers=answerers)
    with pytest.raises(DefinitionError, match="answerers"):
        require_approval("pay", answerers=answerers)
