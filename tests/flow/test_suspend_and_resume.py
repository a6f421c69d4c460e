"""Tools that suspend and are resumed, in entry style and in inline style."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from adjourn import Context, Initial, Limits, RefusedEntry, Resume, Tool, tool
from adjourn.tasks.models.scripted import call, say
from tests.flow.report_tools import (
    Approval,
    Details,
    Drafted,
    Prompt,
    approval,
    approval_entry,
    approval_inline,
    collect_entry,
    collect_inline,
    draft_entry,
    draft_inline,
    pick_file,
)
from tests.world import Counters, World, scripted, world

Build = Callable[..., World]


@pytest.fixture
def build(database_url: str, redis_url: str) -> Iterator[Build]:
    with ExitStack() as stack:

        def make(*tools: Tool[..., Any], model: Any, **options: Any) -> World:
            return stack.enter_context(world(database_url, redis_url, *tools, model=model, **options))

        yield make


@pytest.mark.parametrize("collect", [collect_entry, collect_inline], ids=["entry", "inline"])
def test_report_details_are_collected(build: Build, collect: Tool[..., Any]) -> None:
    counters = Counters()
    model = scripted(
        call("collect_report_details", report_id="r1", known_summary="Q3"), say("thanks"), counters=counters
    )
    w = build(collect, model=model)
    run_id = w.start()

    run = w.run(run_id)
    assert (run.status, counters["model"]) == ("parked", 1)
    action = w.the_action(run_id)
    assert action.name == "collect_report_details.collect_details"
    assert action.input == {
        "prompt": "For whom is it, and when is it due?",
        "missing_fields": ["audience", "deadline"],
    }
    assert action.prompt == "For whom is it, and when is it due?"
    assert action.origin.tool == "collect_report_details"
    assert action.origin.wait_point == "collect_details"
    assert action.origin.run_id == run_id
    assert action.origin.block_path == ("agent", "collect_report_details")
    response = w.items(run_id)[1]
    assert action.origin.message_id == f"{run_id}:{response.seq}"
    assert action.origin.tool_call_id == response.body.calls[0].id  # type: ignore[union-attr]

    refused = w.answer(action, {"audience": 7})
    assert refused.status == "invalid"
    assert [issue.path for issue in refused.issues] == ["/audience"]
    assert w.run(run_id).status == "parked"

    assert w.answer(action, {"audience": "Product", "deadline": "Friday"}).status == "accepted"
    run = w.run(run_id)
    assert (run.status, run.output, counters["model"]) == ("completed", "thanks", 2)
    (output,) = w.outputs(run_id)
    assert (output.outcome, output.content) == ("success", {"audience": "Product", "deadline": "Friday"})


@pytest.mark.parametrize("draft", [draft_entry, draft_inline], ids=["entry", "inline"])
def test_three_wait_points_in_one_tool(build: Build, draft: Tool[..., Any]) -> None:
    w = build(draft, model=scripted(call("draft_report", report_id="r7"), say("ok")))
    run_id = w.start()
    seen = []
    for data in ({"audience": "Board"}, {"approved": True}, {"file_id": "f1"}):
        action = w.the_action(run_id)
        seen.append((action.name, action.input))
        assert w.answer(action, data).status == "accepted"
    assert seen == [
        ("draft_report.collect_details", {"prompt": "What should be in it?", "missing_fields": []}),
        ("draft_report.approve_draft", {"summary": "for Board"}),
        ("draft_report.attach_reference_file", {"report_id": "r7"}),
    ]
    (output,) = w.outputs(run_id)
    assert output.content == {"status": "done", "comment": None, "file_id": "f1"}
    assert w.run(run_id).status == "completed"


@pytest.mark.parametrize("draft", [draft_entry, draft_inline], ids=["entry", "inline"])
def test_a_rejection_is_an_ordinary_answer(build: Build, draft: Tool[..., Any]) -> None:
    w = build(draft, model=scripted(call("draft_report", report_id="r7"), say("ok")))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"audience": "Board"})
    w.answer(w.the_action(run_id), {"approved": False, "comment": "too long"})
    (output,) = w.outputs(run_id)
    assert output.outcome == "success"
    assert output.content == {"status": "rejected", "comment": "too long", "file_id": None}
    assert w.pending(run_id) == []


@pytest.mark.parametrize("ask", [approval_entry, approval_inline], ids=["entry", "inline"])
def test_approval(build: Build, ask: Tool[..., Any]) -> None:
    w = build(ask, model=scripted(call("request_approval", summary="Send Q3?"), say("sent")))
    run_id = w.start()
    action = w.the_action(run_id)
    assert action.input == {"prompt": "Send Q3?"}
    w.answer(action, {"approved": True, "comment": "Send it."})
    (output,) = w.outputs(run_id)
    assert output.content == {"approved": True, "comment": "Send it."}


@pytest.mark.parametrize("ask", [approval_entry, approval_inline], ids=["entry", "inline"])
def test_cancel_is_a_denial_that_the_model_reads(build: Build, ask: Tool[..., Any]) -> None:
    w = build(ask, model=scripted(call("request_approval", summary="Send Q3?"), say("then not")))
    run_id = w.start()
    action = w.the_action(run_id)
    assert w.answer(action, kind="cancel", reason="out of office").status == "accepted"
    (output,) = w.outputs(run_id)
    assert output.outcome == "declined"
    assert output.content == "declined: Send Q3? (reason: out of office)"
    assert (w.run(run_id).status, w.status_of(action.id)) == ("completed", "cancelled")


@pytest.mark.parametrize("ask", [approval_entry, approval_inline], ids=["entry", "inline"])
def test_fail_is_told_to_the_model(build: Build, ask: Tool[..., Any]) -> None:
    w = build(ask, model=scripted(call("request_approval", summary="Send Q3?"), say("then not")))
    run_id = w.start()
    action = w.the_action(run_id)
    assert w.answer(action, kind="fail", message="form is broken").status == "accepted"
    (output,) = w.outputs(run_id)
    assert output.outcome == "failed"
    assert output.content == "request_approval.approval could not be answered: form is broken"
    assert (w.run(run_id).status, w.status_of(action.id)) == ("completed", "failed")


def test_history_lists_every_earlier_wait_typed(build: Build) -> None:
    seen: list[Any] = []

    @tool(wait_points=[approval], reenter_on=["cancelled", "failed"])
    def persistent(ctx: Context, summary: str) -> Drafted:
        """Ask until somebody says something."""
        seen.append((ctx.entry, ctx.suspend_history))
        if len(ctx.suspend_history) < 3:
            ctx.suspend(approval, Prompt(prompt=f"{summary} {len(ctx.suspend_history)}"))
        return Drafted(status="done")

    w = build(persistent, model=scripted(call("persistent", summary="Q"), say("ok")))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": False, "comment": "no"})
    w.answer(w.the_action(run_id), kind="cancel", reason="busy")
    w.answer(w.the_action(run_id), kind="fail", message="lost")

    entry, history = seen[-1]
    assert [type(e) for e, _ in seen] == [Initial, Resume, RefusedEntry, RefusedEntry]
    assert entry.status == "failed"
    assert [(h.name, h.status, h.input) for h in history] == [
        ("approval", "submitted", Prompt(prompt="Q 0")),
        ("approval", "cancelled", Prompt(prompt="Q 1")),
        ("approval", "failed", Prompt(prompt="Q 2")),
    ]
    assert history[0].resume == Approval(approved=False, comment="no")
    assert (history[1].reason, history[2].message) == ("busy", "lost")
    assert all(h.resolved_at >= h.suspended_at for h in history)
    assert w.run(run_id).status == "completed"


def test_an_output_that_does_not_fit_is_a_tool_error_that_no_client_can_correct(build: Build) -> None:
    @tool(wait_points=[approval], output=Details)
    def wrong(ctx: Context) -> Any:
        """Answer with the wrong thing."""
        ctx.ask(approval, Prompt(prompt="?"))
        return {"audience": 7}

    w = build(wrong, model=scripted(call("wrong"), say("noted")))
    run_id = w.start()
    assert w.answer(w.the_action(run_id), {"approved": True}).status == "accepted"
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert "/audience" in output.content
    assert w.pending(run_id) == []
    assert w.run(run_id).status == "completed"


def test_a_client_tool_waits_for_its_output(build: Build) -> None:
    w = build(pick_file, model=scripted(call("pick_file", report_id="r1"), say("got it")))
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.name, action.input) == ("pick_file.result", {"report_id": "r1"})
    assert w.answer(action, {"file": "f"}).status == "invalid"
    assert w.status_of(action.id) == "pending"
    assert w.answer(action, {"file_id": "f9"}).status == "accepted"
    (output,) = w.outputs(run_id)
    assert output.content == {"file_id": "f9"}


def test_a_bad_suspend_payload_is_a_tool_error_and_opens_nothing(build: Build) -> None:
    @tool(wait_points=[approval])
    def careless(ctx: Context) -> str:
        """Ask with the wrong data."""
        return str(ctx.ask("approval", {"prompt": 7}))

    w = build(careless, model=scripted(call("careless"), say("hm")))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert "/prompt" in output.content
    assert (w.pending(run_id), w.run(run_id).status) == ([], "completed")


@pytest.mark.parametrize(("own", "status"), [(None, "failed"), (Limits(turns=2), "completed")])
def test_the_limits_of_a_run_are_its_own_or_its_agents(build: Build, own: Limits | None, status: str) -> None:
    w = build(approval_inline, model=scripted(call("request_approval", summary="?"), say("ok")), limits=Limits(turns=1))
    run_id = w.start(limits=own)
    w.answer(w.the_action(run_id), {"approved": True})
    run = w.run(run_id)
    assert run.status == status
    assert (run.error is None) == (status == "completed")
    assert run.error is None or run.error.type == "LimitExceededError"
