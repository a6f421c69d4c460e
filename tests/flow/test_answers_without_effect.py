"""A pass that ends without coming by an accepted answer fails the run, which keeps the answer for a retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, App, Context, Tool, WaitPoint, call, say, tool
from adjourn.tasks.lifecycle.retry import retry
from tests.flow.conftest import Plant
from tests.world import Counters, World, scripted


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    ok: bool


GATE = WaitPoint("gate", suspend=Ask, resume=Verdict)
OTHER = WaitPoint("other", suspend=Ask, resume=Verdict)


def agent(work: Tool[..., Any]) -> Agent:
    return Agent("agent", model=scripted(call("work"), say("done")), tools=[work])


def asking(**options: Any) -> Tool[..., Any]:
    @tool(wait_points=[GATE], **options)
    def work(ctx: Context) -> str:
        """Ask."""
        return "wiped" if ctx.ask(GATE, Ask(prompt="wipe?")).ok else "kept"

    return work


def no_longer_asking() -> Tool[..., Any]:
    @tool(wait_points=[GATE])
    def work(ctx: Context) -> str:
        """Ask."""
        return "wiped"

    return work


def asking_elsewhere() -> Tool[..., Any]:
    @tool(wait_points=[OTHER], version="2", resumes_from=["1"])
    def work(ctx: Context) -> str:
        """Ask."""
        return "wiped" if ctx.ask(OTHER, Ask(prompt="wipe?")).ok else "kept"

    return work


def asking_with_a_key() -> Tool[..., Any]:
    @tool(wait_points=[GATE], version="2", resumes_from=["1"])
    def work(ctx: Context) -> str:
        """Ask."""
        return "wiped" if ctx.ask(GATE, Ask(prompt="wipe?"), key="x").ok else "kept"

    return work


def failed_for_its_answer(w: World, run_id: str) -> None:
    run = w.run(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ReplayMismatchError"
    assert "was answered" in run.error.message
    assert w.pending(run_id) == [], "nobody is asked anew"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (asking, no_longer_asking),
        (lambda: asking(version="1"), asking_elsewhere),
        (lambda: asking(version="1"), asking_with_a_key),
    ],
    ids=["no longer asks", "asks at another wait point", "asks with a key"],
)
@pytest.mark.parametrize("kind", ["submit", "cancel"])
def test_a_body_that_a_deploy_leads_past_an_answer_fails_the_run_and_a_retry_uses_it(
    plant: Plant, before: Callable[[], Tool[..., Any]], after: Callable[[], Tool[..., Any]], kind: str
) -> None:
    w = plant(agent(before()))
    run_id = w.start()
    action = w.the_action(run_id)
    if kind == "submit":
        assert w.answer(action, {"ok": False}, settle=False).status == "accepted"
    else:
        assert w.answer(action, kind="cancel", reason="no", settle=False).status == "accepted"
    w.deploy(App(agents=[agent(after())]))
    w.settle()
    failed_for_its_answer(w, run_id)
    w.deploy(App(agents=[agent(before())]))
    retry(w.services, run_id)
    w.settle()
    assert w.run(run_id).status == "completed"
    content = w.outputs(run_id)[-1].content
    assert content == "kept" if kind == "submit" else "no" in content


def test_a_body_that_takes_another_branch_fails_the_run(plant: Plant, counters: Counters) -> None:
    @tool(wait_points=[GATE])
    def work(ctx: Context) -> str:
        """Ask on the first pass only."""
        if counters.bump("pass") == 1 and not ctx.ask(GATE, Ask(prompt="wipe?")).ok:
            return "kept"
        return "wiped"

    w = plant(agent(work))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"ok": False})
    failed_for_its_answer(w, run_id)


def test_a_body_that_stops_elsewhere_fails_the_run(plant: Plant, counters: Counters) -> None:
    @tool(wait_points=[GATE, OTHER])
    def work(ctx: Context) -> str:
        """Ask somewhere else on the second pass."""
        point = GATE if counters.bump("pass") == 1 else OTHER
        return str(ctx.ask(point, Ask(prompt="wipe?")).ok)

    w = plant(agent(work))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"ok": False})
    failed_for_its_answer(w, run_id)


@pytest.mark.parametrize("read", ["entry", "answer", "history"])
def test_an_answer_that_the_body_reads_in_another_way_is_used(plant: Plant, read: str) -> None:
    @tool(wait_points=[GATE])
    def work(ctx: Context) -> str:
        """Ask once, and then read what was said."""
        if ctx.call_id in _SEEN:
            match read:
                case "entry":
                    return str(ctx.entry.resume.ok)
                case "answer":
                    return str(ctx.answer and ctx.answer.data.ok)
            return str(ctx.history(GATE)[0].resume.ok)
        _SEEN.add(ctx.call_id)
        return str(ctx.ask(GATE, Ask(prompt="wipe?")).ok)

    w = plant(agent(work))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"ok": False})
    assert w.run(run_id).status == "completed"
    assert w.outputs(run_id)[-1].content == "False"


_SEEN: set[str] = set()
"""Calls that have had their first pass."""
