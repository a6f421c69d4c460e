"""Read by mypy only: each line with `# error:` has to be refused, every other one accepted."""

from pydantic import BaseModel

from adjourn import Context, WaitPoint, tool


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool
    comment: str | None = None


approval = WaitPoint("approval", suspend=Ask, resume=Approval)
defaulted = WaitPoint("defaulted", suspend=Ask, resume=Approval, on_timeout=Approval(approved=False))
WaitPoint("wrong_default", suspend=Ask, resume=Approval, on_timeout=Ask(prompt="?"))  # error: arg-type
WaitPoint("no_resume", suspend=Ask)  # error: call-arg


@tool(wait_points=[approval])
def right(ctx: Context, summary: str) -> str:
    decision = ctx.ask(approval, Ask(prompt=summary))
    if not decision.approved:
        return decision.comment or "no"
    ctx.suspend(approval, Ask(prompt=summary))


@tool(wait_points=[approval])
def wrong(ctx: Context, summary: str) -> str:
    decision = ctx.ask(approval, Approval(approved=True))  # error: arg-type
    decision = ctx.ask(approval, Ask(prompt=7))  # error: arg-type
    print(decision.aproved)  # error: attr-defined
    ctx.ask(approval, Ask(prompt="?")).comment.upper()  # error: union-attr
    number: int = ctx.ask(approval, Ask(prompt="?"))  # error: assignment
    ctx.suspend(approval, {"prompt": 7})  # error: arg-type
    return number


@tool
def ad_hoc(ctx: Context) -> str:
    answer = ctx.ask(reason="human_approval", message="?", resume=Approval)
    return answer.note  # error: attr-defined


right(7)  # error: call-arg arg-type
