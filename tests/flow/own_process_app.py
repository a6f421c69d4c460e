"""Tools that run in processes of their own: what they ask, remember, raise, leave behind and hold on to."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from adjourn import (
    Agent,
    App,
    Context,
    Limits,
    Recovered,
    RequireApproval,
    Resume,
    Sequential,
    SubAgent,
    Tool,
    ToolError,
    WaitPoint,
    call,
    say,
    tool,
)
from adjourn.schemas.records.runs import Run
from tests.effects import Effects
from tests.odd_errors import ODD_ERRORS
from tests.waiting import wait_until
from tests.world import scripted


class Question(BaseModel):
    prompt: str
    seen: str = ""


class Verdict(BaseModel):
    approved: bool
    note: str = ""


class Ticket(BaseModel):
    number: int


question = WaitPoint("q", suspend=Question, resume=Verdict)


def note(name: str) -> None:
    Effects.of_this_process().note(name)


def count(name: str) -> int:
    return Effects.of_this_process().count(name)


@tool(own_process=True, wait_points=[question])
def consult(ctx: Context, x: int) -> dict[str, Any]:
    """Ask, with all that a context offers."""
    handed = ctx.action_id(question)
    ticket = ctx.run_once("ticket", lambda: _ticket(x), returns=Ticket)
    first = ctx.step("first", lambda: os.getpid())
    began = ctx.now()
    verdict = ctx.ask(question, Question(prompt=f"May {x} be?", seen=handed))
    (record,) = ctx.suspend_history
    return {
        "handed": handed,
        "action": ctx.entry.action.id if isinstance(ctx.entry, Resume) else None,
        "ticket": ticket.number,
        "first_process": first,
        "began": began.isoformat(),
        "process": os.getpid(),
        "parent": os.getppid(),
        "note": verdict.note,
        "typed": type(verdict).__name__,
        "history": [record.name, record.status, record.resume.note],
        "approvals": [each.comment for each in ctx.approvals],
        "key": ctx.idempotency_key,
        "thread": ctx.thread_id,
    }


def _ticket(x: int) -> Ticket:
    note("ticket")
    return Ticket(number=x * 10)


@tool(own_process=True, wait_points=[question])
def enter(ctx: Context) -> str:
    """Ask in entry style."""
    if isinstance(ctx.entry, Resume):
        return f"{ctx.entry.resume.note} to {ctx.suspend_history[0].input.prompt}"
    ctx.suspend(question, Question(prompt="well?"))


@tool(own_process=True)
def request(ctx: Context) -> Any:
    """Ask in short."""
    if ctx.answer is None:
        ctx.request(7, "form", "Fill it in", {"a": 1})
    return [ctx.answer.id, ctx.answer.ok, ctx.answer.data]


@tool(own_process=True, wait_points=[question])
async def asynchronous(ctx: Context) -> str:
    """Remember and ask, asynchronously."""

    async def made() -> str:
        note("made")
        return "made"

    said = await ctx.run_once("made", made)
    return f"{said}: {ctx.ask(question, Question(prompt=said)).note}"


ODD = (
    "two_arguments",
    "no_text",
    "of_a_base_only",
    "of_text_that_cannot_be_stored",
    "deep_group",
    "system_exit",
    "keyboard_interrupt",
    "recursion_for_real",
    "future_cancelled",
)


def throw_here(kind: str) -> str:
    """Raise something odd."""
    raise ODD_ERRORS[kind]()


throw = tool(name="throw", own_process=True)(throw_here)


@tool(own_process=True)
def large(ctx: Context) -> str:
    """Remember more than is allowed."""
    try:
        return ctx.run_once("large", lambda: "x" * 5_000)
    except Exception as error:
        return f"{type(error).__name__} over {getattr(error, 'limit', None)}"


@tool(own_process=True, retries=1)
def reordered(ctx: Context) -> str:
    """Take another step each time."""
    note("pass")
    try:
        ctx.step(f"step of pass {count('pass')}", lambda: 1)
    except Exception:
        note("caught")
    os._exit(1) if count("pass") == 1 else None
    return "no matter"


@tool(own_process=True, repeatable=False, wait_points=[question])
def mismatched(ctx: Context) -> str:
    """Take another step on each pass."""
    ctx.step(f"step {len(ctx.suspend_history)}", lambda: 1)
    ctx.ask(question, Question(prompt="?"))
    return "never"


def _end(how: str) -> str:
    note("begun")
    if how == "segfault":
        ctypes.string_at(0)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)


@tool(own_process=True, retries=1)
def end(ctx: Context, how: str) -> str:
    """End its own process."""
    ctx.run_once("before", lambda: note("before"))
    return _end(how)


@tool(own_process=True, repeatable=False)
def end_once(how: str) -> str:
    """End its own process; nobody knows what it did."""
    return _end(how)


def _found(ctx: Context) -> Recovered[str] | None:
    return Recovered("found")


@tool(own_process=True, verify=_found)
def end_verified(how: str) -> str:
    """End its own process; its work can be looked up."""
    return _end(how)


def _not_found(ctx: Context) -> Recovered[str] | None:
    note("looked")
    return None


@tool(own_process=True, verify=_not_found, retries=1)
def end_not_found(how: str) -> str:
    """End its own process before it had done anything."""
    return _end(how)


def _hold() -> str:
    sleeper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Effects.of_this_process().note(f"grandchild-{sleeper.pid}")
    Effects.of_this_process().hold("held")
    note("went-on")
    return "released"


@tool(own_process=True)
def hold(ctx: Context) -> str:
    """Start a program and linger."""
    said = _hold()
    ctx.run_once("after", lambda: note("after"))
    return said


@tool(own_process=True, timeout=timedelta(seconds=2))
def hold_briefly() -> str:
    """Start a program and linger for too long."""
    return _hold()


@tool(own_process=True)
def lengthy(size: int) -> str:
    """Return a lot."""
    return "x" * size


@tool(own_process=True)
def fork(ctx: Context) -> str:
    """Return twice: in a process that was forked here as well."""
    pid = os.fork()
    if pid == 0:
        try:
            ctx.run_once("forked", lambda: 1)
        except ToolError:
            note("refused")
        return "forked"
    os.waitpid(pid, 0)
    return str(ctx.run_once("here", lambda: "here"))


def _local() -> Any:
    class OfThisProcess(BaseModel):
        number: int

    return OfThisProcess(number=7)


def _deep() -> Any:
    value: Any = 1
    for _ in range(3_000):
        value = [value]
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "local": _local,
    "deep": _deep,
    "huge": lambda: 10**5_000,
    "surrogates": lambda: {"a\ud800": "b\x00\u2028"},
    "no_json": lambda: len,
}


def give_here(value: str) -> Any:
    """Return something odd."""
    return VALUES[value]()


give = tool(name="give", own_process=True)(give_here)


@tool
def fork_worker() -> str:
    """Fork the worker once the other tool holds, as `multiprocessing` does: the copy has all that the worker has."""
    wait_until(lambda: count("held") > 0, what="the other tool")
    if (pid := os.fork()) == 0:
        signal.pause()
    note(f"copy-{pid}")
    note("forked")
    return "forked"


@tool(own_process=True)
def freeze() -> str:
    """Hold the interpreter, so that no thread of the process can do anything."""
    note("held")
    ctypes.PyDLL(None).pause()
    return "thawed"


@tool(own_process=True)
def leave_behind() -> str:
    """Return while a program runs that holds everything that it has inherited."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    note(f"grandchild-{pid}")
    return "left"


def made(greeting: str) -> Tool[..., Any]:
    @tool(own_process=True)
    def greet(name: str) -> str:
        """Greet."""
        return f"{greeting}, {name} from {os.getpid()}"

    return greet


def of_run(run: Run) -> list[Tool[..., Any]]:
    return [made(f"run {run.id}")]


def agent(name: str, *calls: Any, tools: Any, **options: Any) -> Agent:
    return Agent(name, model=scripted(list(calls) if len(calls) > 1 else calls[0], say("done")), tools=tools, **options)


inner = agent("inner", call("greet", name="Eve"), tools=[made("inner")])

app = App(
    agents=[
        agent("consulting", call("consult", x=7), tools=[consult]),
        agent("approving", call("consult", x=7), tools=[consult], policies=[lambda called: RequireApproval()]),
        agent("entering", call("enter"), tools=[enter]),
        agent("requesting", call("request"), tools=[request]),
        agent("asynchronous", call("asynchronous"), tools=[asynchronous]),
        agent(
            "throwing",
            *(call(name, kind=kind) for kind in ODD for name in ("throw", "throw_here")),
            tools=[throw, tool(throw_here)],
        ),
        agent("reordering", call("reordered"), tools=[reordered]),
        agent("mismatched", call("mismatched"), tools=[mismatched]),
        agent("large", call("large"), tools=[large]),
        agent(
            "giving",
            *(call(name, value=value) for value in VALUES for name in ("give", "give_here")),
            tools=[give, tool(give_here)],
        ),
        agent("lengthy", call("lengthy", size=3_000), tools=[lengthy]),
        agent("forking", call("fork"), tools=[fork]),
        agent("holding", call("hold"), tools=[hold]),
        agent("forked", call("hold"), call("fork_worker"), tools=[hold, fork_worker]),
        agent("limited", call("hold"), tools=[hold], limits=Limits(seconds=6)),
        agent("briefly", call("hold_briefly"), tools=[hold_briefly]),
        agent("freezing", call("freeze"), tools=[freeze]),
        agent("leaving", call("leave_behind"), tools=[leave_behind]),
        *(agent(f"ending-{how}", call("end", how=how), tools=[end]) for how in ("exit", "segfault", "signal")),
        agent("once", call("end_once", how="exit"), tools=[end_once]),
        agent("verified", call("end_verified", how="exit"), tools=[end_verified]),
        agent("not-found", call("end_not_found", how="exit"), tools=[end_not_found]),
        agent("two", call("greet", name="Ada"), call("greet", name="Bob"), tools=[made("hello")]),
        agent("varying", call("greet", name="Ada"), tools=of_run),
        Agent("outer", model=scripted(call("inner", task="go"), say("done")), tools=[SubAgent(inner)]),
    ],
    blocks=[Sequential("steps", {"one": made("step")}), made("alone")],
)
