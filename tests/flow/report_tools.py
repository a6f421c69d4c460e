"""The tools of `test_suspend_and_resume`, each in both styles."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from adjourn import Context, Resume, WaitPoint, client_tool, tool

Missing = Literal["audience", "deadline"]


class AskDetails(BaseModel):
    prompt: str
    missing_fields: list[Missing] = []


class Details(BaseModel):
    audience: str
    deadline: str | None = None


class AskApproval(BaseModel):
    summary: str


class Prompt(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool
    comment: str | None = None


class WantedFile(BaseModel):
    report_id: str


class File(BaseModel):
    file_id: str


class Drafted(BaseModel):
    status: str
    comment: str | None = None
    file_id: str | None = None


details = WaitPoint("collect_details", suspend=AskDetails, resume=Details)
approve = WaitPoint("approve_draft", suspend=AskApproval, resume=Approval)
attach = WaitPoint("attach_reference_file", suspend=WantedFile, resume=File)
approval = WaitPoint("approval", suspend=Prompt, resume=Approval)


# --- entry style ----------------------------------------------------------------------------


@tool(name="collect_report_details", wait_points=[details])
def collect_entry(ctx: Context, report_id: str, known_summary: str) -> Details:
    """Collect missing report details from the user."""
    entry = ctx.entry
    if isinstance(entry, Resume) and entry.name == "collect_details":
        answer: Details = entry.resume
        return answer
    ctx.suspend(
        details,
        AskDetails(prompt="For whom is it, and when is it due?", missing_fields=["audience", "deadline"]),
    )


@tool(name="draft_report", wait_points=[details, approve, attach])
def draft_entry(ctx: Context, report_id: str) -> Drafted:
    """Draft a report with a person."""
    entry = ctx.entry
    if not isinstance(entry, Resume):
        ctx.suspend(details, AskDetails(prompt="What should be in it?"))
    if entry.name == "collect_details":
        ctx.suspend(approve, AskApproval(summary=f"for {entry.resume.audience}"))
    if entry.name == "approve_draft":
        if not entry.resume.approved:
            return Drafted(status="rejected", comment=entry.resume.comment)
        ctx.suspend(attach, WantedFile(report_id=ctx.input.report_id))
    return Drafted(status="done", file_id=entry.resume.file_id)


@tool(name="request_approval", wait_points=[approval])
def approval_entry(ctx: Context, summary: str) -> Approval:
    """Request an approval before a report is sent."""
    if isinstance(ctx.entry, Resume):
        answer: Approval = ctx.entry.resume
        return answer
    ctx.suspend(approval, Prompt(prompt=ctx.input.summary))


# --- inline style ---------------------------------------------------------------------------


@tool(name="collect_report_details", wait_points=[details])
def collect_inline(ctx: Context, report_id: str, known_summary: str) -> Details:
    """Collect missing report details from the user."""
    return ctx.ask(
        details,
        AskDetails(prompt="For whom is it, and when is it due?", missing_fields=["audience", "deadline"]),
    )


@tool(name="draft_report", wait_points=[details, approve, attach])
async def draft_inline(ctx: Context, report_id: str) -> Drafted:
    """Draft a report with a person."""
    known = ctx.ask(details, AskDetails(prompt="What should be in it?"))
    decision = ctx.ask(approve, AskApproval(summary=f"for {known.audience}"))
    if not decision.approved:
        return Drafted(status="rejected", comment=decision.comment)
    return Drafted(status="done", file_id=ctx.ask(attach, WantedFile(report_id=report_id)).file_id)


@tool(name="request_approval", wait_points=[approval])
def approval_inline(ctx: Context, summary: str) -> Approval:
    """Request an approval before a report is sent."""
    return ctx.ask(approval, Prompt(prompt=summary))


pick_file = client_tool("pick_file", description="Let the user pick a file.", input=WantedFile, output=File)
