"""What the code of a tool or of a model may do wrong: its own call or run pays for it, in words, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import wraps
from threading import Barrier
from typing import Any

import pytest

from adjourn import Agent, Context, ModelRequest, ModelResponse, RetryingModel, WaitPoint, tool
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import RequestedCall, Usage
from adjourn.tasks.models.protocol import Deltas
from adjourn.tasks.models.scripted import call, say
from adjourn.tasks.streaming.deltas import PAUSE_SECONDS
from tests.flow.report_tools import Approval, Prompt
from tests.waiting import LIMIT_SECONDS
from tests.world import Counters, scripted, world

approval = WaitPoint("approval", suspend=Prompt, resume=Approval)
YES = {"approved": True}


# --- run_once -----------------------------------------------------------------------------------


def test_one_key_of_run_once_never_runs_twice_at_once(database_url: str, redis_url: str) -> None:
    fx = Counters()
    both = Barrier(2)

    @tool
    def in_threads(ctx: Context) -> list[str]:
        """Use one key in two threads."""

        def once() -> str:
            both.wait(LIMIT_SECONDS)
            try:
                return ctx.run_once("mail", lambda: (fx.bump("mail"), both.wait(LIMIT_SECONDS), "sent")[-1])
            except Exception as error:
                both.wait(LIMIT_SECONDS)
                return type(error).__name__

        with ThreadPoolExecutor(2) as pool:
            return sorted(each.result() for each in [pool.submit(once), pool.submit(once)])

    @tool
    async def in_tasks(ctx: Context) -> list[Any]:
        """Use one key in two tasks."""

        async def send() -> str:
            fx.bump("async mail")
            await asyncio.sleep(0)
            return "sent"

        both = (ctx.run_once("mail", send), ctx.run_once("mail", send))
        said = await asyncio.gather(*both, return_exceptions=True)
        return [each if isinstance(each, str) else type(each).__name__ for each in said]

    @tool
    def around_itself(ctx: Context) -> str:
        """Use one key inside itself."""
        return ctx.run_once("a", lambda: ctx.run_once("a", lambda: "inner"))

    calls = [call("in_threads"), call("in_tasks"), call("around_itself")]
    with world(database_url, redis_url, in_threads, in_tasks, around_itself, model=scripted(calls, say("ok"))) as w:
        outputs = {output.tool: output for output in w.outputs(w.start())}
        assert outputs["in_threads"].content == ["RunOnceClashError", "sent"]
        assert outputs["in_tasks"].content == ["sent", "RunOnceClashError"]
        assert "run_once('a') while it was still running" in outputs["around_itself"].content
        assert (fx["mail"], fx["async mail"]) == (1, 1)


def test_a_key_of_run_once_may_be_any_text(database_url: str, redis_url: str) -> None:
    fx = Counters()

    @tool(wait_points=[approval])
    def odd(ctx: Context) -> int:
        """Remember under a key that no database takes."""
        count = ctx.run_once("half \ud800 and \x00", lambda: fx.bump("fx"))
        ctx.ask(approval, Prompt(prompt="?"))
        return count

    with world(database_url, redis_url, odd, model=scripted(call("odd"), say("ok"))) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == [1]
        assert fx["fx"] == 1


# --- ids and caches -------------------------------------------------------------------------------


def test_an_empty_key_is_not_no_key(database_url: str, redis_url: str) -> None:
    @tool(wait_points=[approval])
    def twice(ctx: Context) -> str:
        """Hand out an id, and ask under no key and under the empty one."""
        ctx.action_id(approval)
        ctx.ask(approval, Prompt(prompt="1"))
        ctx.ask(approval, Prompt(prompt="2"), key="")
        return "asked twice"

    with world(database_url, redis_url, twice, model=scripted(call("twice"), say("ok"))) as w:
        run_id = w.start()
        for _ in range(2):
            w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == ["asked twice"]


def test_a_cached_result_is_for_equal_json_only(database_url: str, redis_url: str) -> None:
    fx = Counters()

    @tool(cacheable=True)
    def kind(ctx: Context, x: int | bool) -> str:
        """Say what it was given."""
        fx.bump("fx")
        return type(x).__name__

    steps = (call("kind", x=1), call("kind", x=True), call("kind", x=1), say("ok"))
    with world(database_url, redis_url, kind, model=scripted(*steps)) as w:
        assert [output.content for output in w.outputs(w.start())] == ["int", "bool", "int"]
        assert fx["fx"] == 2


# --- bodies -----------------------------------------------------------------------------------------


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not know that what it wraps is async."""

    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


def test_an_async_body_may_be_wrapped_by_a_plain_function(database_url: str, redis_url: str) -> None:
    @tool(wait_points=[approval])
    @wrapping
    async def wrapped(ctx: Context) -> bool:
        """Ask from behind a decorator."""
        await asyncio.sleep(0)
        return ctx.ask(approval, Prompt(prompt="?")).approved

    with world(database_url, redis_url, wrapped, model=scripted(call("wrapped"), say("ok"))) as w:
        run_id = w.start()
        w.answer(w.the_action(run_id), YES)
        assert [output.content for output in w.outputs(run_id)] == [True]


def test_the_context_of_another_call_suspends_nobody(database_url: str, redis_url: str) -> None:
    kept: list[Context] = []

    @tool(wait_points=[approval])
    def keep(ctx: Context) -> str:
        """Keep the first context for ever."""
        kept.append(ctx)
        if len(kept) > 1:
            kept[0].ask(approval, Prompt(prompt="?"), key=str(len(kept)))
        return "kept"

    with world(database_url, redis_url, keep, model=scripted(call("keep"), call("keep"), say("ok"))) as w:
        run_id = w.start()
        assert w.run(run_id).status == "completed"
        outcomes = [(output.outcome, output.content) for output in w.outputs(run_id)]
        assert outcomes[0] == ("success", "kept")
        assert outcomes[1][0] == "error"
        assert "context of another call" in outcomes[1][1]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_an_error_that_cannot_be_put_into_words_closes_its_call(database_url: str, redis_url: str) -> None:
    @tool
    def unspeakable(ctx: Context) -> str:
        """Fail beyond words."""
        raise Unspeakable

    with world(database_url, redis_url, unspeakable, model=scripted(call("unspeakable"), say("ok"))) as w:
        (output,) = w.outputs(w.start())
        assert (output.outcome, output.content) == ("error", "Unspeakable: (its message cannot be read)")


# --- models -----------------------------------------------------------------------------------------


class OddModel:
    name = "odd"

    def __init__(self, does: Callable[[], Any]) -> None:
        self._does = does

    async def request(self, request: ModelRequest) -> ModelResponse:
        made: ModelResponse = self._does()
        return made


def leave() -> Any:
    raise SystemExit(3)


def interrupt() -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("does", "problem"),
    [(leave, "SystemExit"), (interrupt, "KeyboardInterrupt"), (lambda: "text", "not str"), (lambda: None, "NoneType")],
)
def test_a_model_that_does_not_do_as_models_do_fails_its_run(
    database_url: str, redis_url: str, does: Callable[[], Any], problem: str
) -> None:
    with world(database_url, redis_url, model=OddModel(does)) as w:
        run = w.run(w.start())
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.type == "ModelRequestError"
        assert problem in run.error.message


class Plainly(OddModel):
    """Says its response while it comes, as an ordinary function."""

    def stream(self, request: ModelRequest, deltas: Deltas) -> Any:
        return say("ok")


class InPieces(OddModel):
    """Says its response while it comes, as many libraries do."""

    async def stream(self, request: ModelRequest, deltas: Deltas) -> Any:
        yield "ok"


class Switched(OddModel):
    """Has something else under this name."""

    stream = True


class Blocking:
    name = "blocking"

    def request(self, request: ModelRequest) -> ModelResponse:
        return say("ok")


@pytest.mark.parametrize("wrap", [lambda model: model, RetryingModel], ids=["itself", "retrying"])
@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Plainly(say), "stream() has to be `async def … -> ModelResponse`, and gave ModelResponse"),
        (InPieces(say), "stream() has to be `async def … -> ModelResponse`, and gave async_generator"),
        (Switched(say), "has to be `async def … -> ModelResponse`, and gave bool"),
        (Blocking(), "request() has to be `async def … -> ModelResponse`, and gave ModelResponse"),
    ],
    ids=["plain", "generator", "attribute", "request"],
)
def test_a_model_whose_methods_are_not_async_is_told_so(
    database_url: str, redis_url: str, model: Any, told: str, wrap: Callable[[Any], Any]
) -> None:
    with world(database_url, redis_url, model=wrap(model), stream=True) as w:
        run = w.run(w.start())
        assert run.error is not None
        assert (run.error.type, run.error.data["retryable"]) == ("ModelRequestError", False)
        assert told in run.error.message


class Adding(OddModel):
    """Tells what it is given, and time enough for that to go out."""

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        deltas.add(*self._does())
        await asyncio.sleep(2 * PAUSE_SECONDS)
        return say("ok")


@pytest.mark.parametrize("piece", [("first", "text"), (None, "text"), (0, None), (0, b"text"), (0, "text", 7)])
def test_what_is_no_piece_of_a_response_is_the_fault_of_the_model(
    database_url: str, redis_url: str, piece: tuple[Any, ...]
) -> None:
    with world(database_url, redis_url, model=Adding(lambda: piece), stream=True) as w:
        error = w.run(w.start()).error
        assert error is not None
        assert (error.type, error.data["retryable"]) == ("ModelRequestError", False)
        assert "TypeError: a delta is add(part: int, text: str" in error.message


def test_a_piece_of_a_response_may_be_any_text(database_url: str, redis_url: str) -> None:
    odd = "half \ud800 and \x00"
    with world(database_url, redis_url, model=Adding(lambda: (0, odd, odd)), stream=True) as w:
        assert w.run(w.start()).output == "ok"


def test_a_model_without_a_name_is_refused_at_definition() -> None:
    class Nameless:
        async def request(self, request: ModelRequest) -> ModelResponse:
            """Never called."""

    with pytest.raises(DefinitionError, match="which has a name"):
        Agent("agent", Nameless())


FINE = ModelResponse(text="ok", calls=(call("none"),))
"""In order, until it is copied with something else in it."""


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": None}, "/text"),
        ({"calls": None}, "/calls"),
        ({"calls": ("text",)}, "/calls/0"),
        ({"calls": (RequestedCall.model_construct(args="{}"),)}, "/calls/0/name"),
        ({"calls": (RequestedCall.model_construct(name="none", args={}),)}, "/calls/0/args"),
        ({"usage": None}, "/usage"),
        ({"usage": Usage(input_tokens=-1)}, "/usage/input_tokens"),
        ({"usage": Usage(output_tokens=2**63)}, "/usage/output_tokens"),
        ({"usage": Usage.model_construct(input_tokens=float("nan"))}, "/usage/input_tokens"),
        ({"usage": Usage().model_copy(update={"cost": Decimal("NaN")})}, "/usage/cost"),
        ({"usage": Usage().model_copy(update={"cost": Decimal(-1)})}, "/usage/cost"),
        ({"usage": Usage(cost=Decimal(10) ** 11)}, "/usage/cost"),
        ({"model": 7}, "/model"),
        ({"raw": object()}, "/raw"),
        ({"finish": "stop"}, "/finish"),
    ],
)
def test_a_response_with_an_illegal_field_is_the_fault_of_its_model(
    database_url: str, redis_url: str, fields: dict[str, Any], named: str
) -> None:
    with world(database_url, redis_url, model=OddModel(lambda: FINE.model_copy(update=fields))) as w:
        run = w.run(w.start())
        assert run.error is not None
        assert (run.error.type, run.error.data["retryable"]) == ("ModelRequestError", False)
        assert f"model odd: its response has an illegal {named}: " in run.error.message


def test_what_a_model_says_of_its_response_may_be_any_text(database_url: str, redis_url: str) -> None:
    odd = "half \ud800 and \x00"
    response = ModelResponse(text=odd, model=odd, finish_reason=odd, provider=odd, raw=odd)
    with world(database_url, redis_url, model=OddModel(lambda: response)) as w:
        run_id = w.start()
        assert w.run(run_id).output == "half \ufffd and \ufffd"
        said = w.items(run_id)[1].body
        assert isinstance(said, ResponseItem)
        assert {said.model, said.finish_reason, said.provider, said.raw} == {"half \ufffd and \ufffd"}


def test_a_response_that_nobody_checked_is_read_as_if_it_was_constructed(database_url: str, redis_url: str) -> None:
    counted = {"usage": {"input_tokens": "7"}, "calls": []}
    with world(database_url, redis_url, model=OddModel(lambda: FINE.model_copy(update=counted))) as w:
        run = w.run(w.start())
        assert (run.output, run.usage.input_tokens) == ("ok", 7)
