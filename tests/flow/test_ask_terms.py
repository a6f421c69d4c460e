"""Who may answer one ask, until when, and what happens then; and arguments that would have no effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, DefinitionError, Expired, Resume, Tool, WaitPoint, require_approval, tool
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.world import AGENT, World

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


class Yes(BaseModel):
    approved: bool


point = WaitPoint("gate", suspend=str, resume=Yes)
dated = WaitPoint("gate", suspend=str, resume=Yes, timeout=DAY, on_timeout="error", answerers=["ada"])


def asking(way: str, wait: WaitPoint[Any, Any] = point, **terms: Any) -> Tool[..., Any]:
    """A tool that asks once, in one of the ways that there are, with these terms."""

    @tool(name="act", wait_points=[wait])
    def act(ctx: Context) -> str:
        if way == "ask":
            return f"went on with {ctx.ask(wait, 'May I?', **terms)}"
        if way == "undeclared":
            return f"went on with {ctx.ask(reason='may_i', message='May I?', resume=Yes, **terms)}"
        if isinstance(ctx.entry, Resume):
            return f"went on with {ctx.entry.resume}"
        if way == "suspend":
            ctx.suspend(wait, "May I?", **terms)
        ctx.request(prompt="May I?", **terms)

    return act


def agent(*tools: Tool[..., Any]) -> Agent:
    return Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=tools)


WAYS = ("ask", "undeclared", "suspend", "request")
DEFAULTS: dict[str, Any] = dict.fromkeys(WAYS, Yes(approved=False)) | {"request": {"approved": False}}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_stop_takes_who_may_answer(plant: Any, way: str) -> None:
    w = plant(agent(asking(way, answerers=["ada", "ben"])))
    action = w.the_action(w.start())
    assert action.answerers == ("ada", "ben")
    assert w.answer(action, {"approved": True}).status == "forbidden"
    assert w.status_of(action.id) == "pending"


@pytest.mark.parametrize("way", WAYS)
def test_a_deadline_that_passes_fails_the_run_unless_told_otherwise(plant: Any, way: str) -> None:
    w = plant(agent(asking(way, timeout=MINUTE)))
    run_id = w.start()
    assert w.the_action(run_id).expires_at == w.the_action(run_id).opened_at + MINUTE
    w.advance(61)
    w.sweep()
    assert w.run(run_id).status == "failed"


@pytest.mark.parametrize("way", WAYS)
def test_a_deadline_may_be_an_error(plant: Any, way: str) -> None:
    w = plant(agent(asking(way, timeout=MINUTE, on_timeout="error")))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert [output.outcome for output in w.outputs(run_id)] == ["expired"]


@pytest.mark.parametrize("word", [{}, {"on_timeout": "default"}])
@pytest.mark.parametrize("way", WAYS)
def test_a_deadline_may_have_a_default(plant: Any, way: str, word: dict[str, Any]) -> None:
    w = plant(agent(asking(way, timeout=MINUTE, default=DEFAULTS[way], **word)))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert w.outputs(run_id)[0].content == f"went on with {DEFAULTS[way]}"


@pytest.mark.parametrize("way", ["ask", "suspend"])
def test_what_an_ask_leaves_out_is_as_the_wait_point_says(plant: Any, way: str) -> None:
    w = plant(agent(asking(way, dated, timeout=MINUTE)))
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.answerers, action.expires_at) == (("ada",), action.opened_at + MINUTE)
    w.advance(61)
    w.sweep()
    assert [output.outcome for output in w.outputs(run_id)] == ["expired"]
    assert (dated.timeout, dated.answerers) == (DAY, ("ada",))


BAD_TERMS: dict[str, tuple[dict[str, Any], str]] = {
    "a deadline's end without a deadline": ({"on_timeout": "error"}, "has none"),
    "a default without a deadline": ({"default": Yes(approved=False)}, "has none"),
    "two ends": ({"timeout": MINUTE, "on_timeout": "error", "default": Yes(approved=False)}, "one of the two"),
    "a default of another type": ({"timeout": MINUTE, "default": 7}, "does not fit"),
    "no span of time": ({"timeout": 60}, "its timeout is 60"),
    "one text": ({"answerers": "ada"}, "one text"),
    "an answerer that is not text": ({"answerers": [7]}, "is not text"),
}


@pytest.mark.parametrize("how", BAD_TERMS)
@pytest.mark.parametrize("way", WAYS)
def test_terms_that_do_not_fit_are_refused(plant: Any, way: str, how: str) -> None:
    terms, said = BAD_TERMS[how]
    w = plant(agent(asking(way, **terms)))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert said in output.content
    assert w.pending(run_id) == []


MIXED: dict[str, tuple[Callable[[Context], Any], str]] = {
    "reason": (lambda ctx: ctx.ask(point, "?", reason="r"), "reason="),  # type: ignore[call-overload]
    "message": (lambda ctx: ctx.ask(point, "?", message="m"), "message="),  # type: ignore[call-overload]
    "resume": (lambda ctx: ctx.ask(point, "?", resume=Yes), "resume="),  # type: ignore[call-overload]
    "data": (lambda ctx: ctx.ask(data=1, reason="r", message="m", resume=Yes), "data="),  # type: ignore[call-overload]
    "a declared name": (lambda ctx: ctx.ask(reason="gate", message="m", resume=bool), "beside a wait point"),
}


@pytest.mark.parametrize("how", MIXED)
def test_an_ask_takes_nothing_that_it_would_ignore(plant: Any, how: str) -> None:
    ask, said = MIXED[how]

    @tool(wait_points=[point])
    def act(ctx: Context) -> str:
        return str(ask(ctx))

    w = plant(agent(act))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert (output.outcome, w.pending(run_id)) == ("error", [])
    assert said in output.content


def test_a_wait_point_takes_its_default_by_name() -> None:
    wait = WaitPoint("gate", suspend=str, resume=str, timeout=DAY, default="error")
    assert (wait.on_timeout, wait.default) == ("default", "error")
    with pytest.raises(DefinitionError, match="one of the two"):
        WaitPoint("gate", suspend=str, resume=str, on_timeout="error", default="no")


# --- the type of an undeclared wait -----------------------------------------------------------------


def undeclared(resume: Any, **options: Any) -> Tool[..., Any]:
    @tool(name="act", **options)
    def act(ctx: Context) -> str:
        try:
            return str(ctx.ask(reason="may_i", message="May I?", resume=resume))
        except Exception as error:
            return f"swallowed {error}"

    return act


class Stricter(BaseModel):
    approved: bool
    by: str


class Described(BaseModel):
    """The same answer, described."""

    approved: bool


def redeployed(w: World, act: Tool[..., Any]) -> None:
    w.deploy(App(agents=[agent(act)]))


def test_a_changed_type_of_an_undeclared_wait_fails_the_run_and_keeps_the_answer(plant: Any) -> None:
    w = plant(agent(undeclared(Yes)))
    run_id = w.start()
    action = w.the_action(run_id)
    redeployed(w, undeclared(Stricter))
    assert w.answer(action, {"approved": True}).status == "accepted"
    run = w.run(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert "ToolChangedError" in str(run.error)
    assert "wait may_i resume changed" in str(run.error)
    assert w.status_of(action.id) == "submitted"


def test_words_for_people_do_not_change_the_type_of_an_undeclared_wait(plant: Any) -> None:
    w = plant(agent(undeclared(Yes)))
    run_id = w.start()
    action = w.the_action(run_id)
    redeployed(w, undeclared(Described))
    w.answer(action, {"approved": True})
    assert w.outputs(run_id)[0].content == "approved=True"


def test_a_tool_that_resumes_from_the_earlier_version_reads_the_answer_in_its_new_type(plant: Any) -> None:
    class Wider(BaseModel):
        approved: bool
        by: str = "nobody"

    w = plant(agent(undeclared(Yes, version="1")))
    run_id = w.start()
    action = w.the_action(run_id)
    redeployed(w, undeclared(Wider, version="2", resumes_from=["1"]))
    w.answer(action, {"approved": True})
    assert w.outputs(run_id)[0].content == "approved=True by='nobody'"


def test_an_undeclared_wait_raises_expired_at_a_deadline_that_is_an_error(plant: Any) -> None:
    @tool
    def act(ctx: Context) -> str:
        try:
            return str(ctx.ask(reason="may_i", message="May I?", resume=Yes, timeout=MINUTE, on_timeout="error"))
        except Expired:
            return "too late"

    w = plant(agent(act))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert w.outputs(run_id)[0].content == "too late"


# --- a demanded approval ------------------------------------------------------------------------------


def gated(**terms: Any) -> Agent:
    @tool(name="act")
    def act() -> str:
        return "acted"

    policies = [require_approval("act", **terms)]
    return Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=[act], policies=policies)


def test_a_demanded_approval_takes_who_may_answer_and_until_when(plant: Any) -> None:
    w = plant(gated(answerers=["ada"], timeout=MINUTE))
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.answerers, action.expires_at) == (("ada",), action.opened_at + MINUTE)
    assert w.answer(action, {"approved": True}).status == "forbidden"
    w.advance(61)
    w.sweep()
    assert ([output.outcome for output in w.outputs(run_id)], w.run(run_id).status) == (["expired"], "completed")


def test_a_demanded_approval_may_fail_its_run_at_the_deadline(plant: Any) -> None:
    w = plant(gated(timeout=MINUTE, on_timeout="fail_run"))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert w.run(run_id).status == "failed"


@pytest.mark.parametrize("terms", [{"timeout": 60}, {"answerers": "ada"}, {"timeout": MINUTE, "on_timeout": 7}])
def test_terms_of_an_approval_that_do_not_fit_are_refused_where_it_is_made(terms: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        require_approval("act", **terms)


def test_an_undeclared_wait_without_a_message_shows_its_reason(plant: Any) -> None:
    @tool
    def ask(ctx: Context) -> str:
        """Ask."""
        return ctx.ask(reason="publish", resume=str)

    w = plant(Agent("agent", model=ScriptedModel([call("ask"), say("done")]), tools=[ask]))
    action = w.the_action(w.start())
    assert (action.prompt, action.input) == ("publish", {"reason": "publish"})
    w.answer(action, "yes")
    assert w.outputs(action.origin.run_id)[-1].content == "yes"
