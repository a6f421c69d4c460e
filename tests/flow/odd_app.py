"""An app whose code outside tool bodies raises what no `except Exception` catches, and one agent in good order."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator

from adjourn import Agent, App, Context, ModelRequest, ModelResponse, Router, ScriptedModel, tool
from adjourn.tasks.models.scripted import call, say


class PanicException(BaseException):
    """As pyo3 makes it: a Rust panic, which is not an `Exception`."""


class Speechless(BaseException):
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise PanicException("no text")

    __repr__ = __str__


RAISED: dict[str, Callable[[], BaseException]] = {
    "panic": lambda: PanicException("in Rust"),
    "speechless": Speechless,
    "cancelled": asyncio.CancelledError,
    "future_cancelled": concurrent.futures.CancelledError,
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "recursion": RecursionError,
    "memory": MemoryError,
    "group": lambda: BaseExceptionGroup("group", [PanicException("in a group"), asyncio.CancelledError()]),
}
ALL = "all"


class Hostile:
    """An object of which nothing can be asked."""

    def __getattribute__(self, name: str) -> Any:
        raise PanicException("not to be looked at")

    def __eq__(self, other: object) -> bool:
        raise PanicException("not to be compared")

    def __bool__(self) -> bool:
        raise PanicException("neither true nor false")

    def __repr__(self) -> str:
        raise PanicException("not to be shown")

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]


Does = Callable[..., Any]


def raising(make: Callable[[], BaseException]) -> Does:
    def does(*_: Any) -> Any:
        raise make()

    return does


def hostile(*_: Any) -> Any:
    return Hostile()


async def awaitable(*_: Any) -> Any:
    return "text"


def generator(*_: Any) -> Any:
    yield "text"


DOES: dict[str, Does] = {
    **{name: raising(make) for name, make in RAISED.items()},
    "hostile": hostile,
    "awaitable": awaitable,
    "generator": generator,
}


@tool
def fine(ctx: Context) -> str:
    """Do what is asked."""
    return "fine"


@tool
def asks(ctx: Context) -> str:
    """Ask, with a resolver of the agent around it."""
    return str(ctx.ask(reason="gate", message="?", resume=str))


@tool
def echo(text: str) -> str:
    return text


class Unnamed:
    """A model whose name is lost after its agent is made."""

    def __init__(self, does: Does) -> None:
        self._does = does
        self._asked = False

    @property
    def name(self) -> str:
        if not self._asked:
            self._asked = True
            return "once"
        named: str = self._does()
        return named

    async def request(self, request: ModelRequest) -> ModelResponse:
        return say("ok")


class Uncopied:
    """A setting that cannot be copied for a request."""

    def __init__(self, does: Does) -> None:
        self._does = does

    def __deepcopy__(self, memo: Any) -> Any:
        return self._does()


def _calls(name: str, *steps: Any) -> ScriptedModel:
    return ScriptedModel([call(name), *(steps or (say("done"),))])


def places(kind: str, does: Does) -> list[Any]:
    """The blocks that run `does`, each at another place outside the body of a tool."""
    validated = Annotated[str, AfterValidator(lambda _: does())]
    return [
        Agent(f"policy-{kind}", _calls("fine"), tools=[fine], policies=[does]),
        Agent(f"tools-{kind}", _calls("fine"), tools=does),
        Agent(f"user-{kind}", ScriptedModel([say("ok")]), prompt=does),
        Agent(f"resolver-{kind}", _calls("asks"), tools=[asks], resolver=does),
        Agent(f"output-{kind}", ScriptedModel(lambda _: call("final_output", input="x")), output_type=validated),
        Agent(f"settings-{kind}", ScriptedModel([say("ok")]), model_settings={"odd": Uncopied(does)}),
        Agent(f"model-{kind}", Unnamed(does)),
        Agent(f"request-{kind}", ScriptedModel([say("ok")], on_request=does)),
        Router(f"selector-{kind}", [echo], does),
    ]


app = App(
    blocks=[
        *(block for kind, does in DOES.items() for block in places(kind, does)),
        Agent("ordinary", _calls("fine"), tools=[fine]),
    ]
)
