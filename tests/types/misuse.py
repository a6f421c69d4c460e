"""Read by mypy only: a line that ends in an error comment has to be refused with it, every other one accepted."""

# mypy: no-warn-unreachable

from pydantic import BaseModel

from adjourn import Context, WaitPoint, tool


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool
    comment: str | None = None


approval = WaitPoint("approval", suspend=Ask, resume=Approval)
defaulted = WaitPoint("defaulted", suspend=Ask, resume=Approval, default=Approval(approved=False))
WaitPoint("no_resume", suspend=Ask)  # error: call-arg


@tool(wait_points=[approval])
def right(ctx: Context, summary: str) -> str:
    decision = ctx.ask(approval, Ask(prompt=summary))
    if not decision.approved:
        return decision.comment or "no"
    ctx.suspend(approval, Ask(prompt=summary))


@tool(wait_points=[approval])
def wrong(ctx: Context, summary: str) -> str:
    decision = ctx.ask(approval, Approval(approved=True))  # error: misc
    decision = ctx.ask(approval, Ask(prompt=7))  # error: arg-type
    print(decision.aproved)  # error: attr-defined
    ctx.ask(approval, Ask(prompt="?")).comment.upper()  # error: union-attr
    number: int = ctx.ask(approval, Ask(prompt="?"))  # error: assignment
    ctx.suspend(approval, {"prompt": 7})  # error: misc
    return number


@tool
def ad_hoc(ctx: Context) -> str:
    answer = ctx.ask(reason="human_approval", message="?", resume=Approval)
    print(answer.note)  # error: attr-defined
    return "done"


@tool(wait_points=[approval])
def entries(ctx: Context, summary: str) -> str:
    if (resumed := ctx.resumed(approval)) is not None:
        print(resumed.resume.aproved)  # error: attr-defined
        return resumed.resume.comment or ""
    for record in ctx.history(approval):
        print(record.input.promt)  # error: attr-defined
        print(record.resume.comment)  # error: union-attr
    ctx.suspend(approval, Ask(prompt=summary), on_timeout=7)  # error: call-overload
    ctx.suspend(approval, Ask(prompt=summary))


@tool(wait_points=[approval])
def terms(ctx: Context) -> str:
    ctx.ask(approval, Ask(prompt="?"), resume=Approval)  # error: call-overload
    return ctx.ask(approval, Ask(prompt="?"), default=Approval(approved=False)).comment or ""


right(7)  # error: call-arg arg-type


@tool(retrys=2)  # error: call-overload untyped-decorator
def misspelled() -> None: ...


@tool(retries="2")  # error: call-overload untyped-decorator
def mistyped() -> None: ...


@tool(retries=2, reenter_on=["cancelled"], wait_points=[approval])
def optional(ctx: Context, number: int) -> str:
    return str(number)


optional("7")  # error: call-arg arg-type


async def later() -> int:
    return 7


@tool
async def steps(ctx: Context) -> int:
    ctx.run_once("a", later) + 1  # error: operator
    print(ctx.step("b", lambda: 7).upper())  # error: attr-defined
    return await ctx.run_once("c", later) + await ctx.step("d", lambda: later()) + ctx.run_once("e", lambda: 7)
