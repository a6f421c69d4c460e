"""A body that returns a generator, as a wrapper around a generator function does: it runs inside the pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from adjourn import Agent, Context, WaitPoint, call, say, tool
from tests.flow.conftest import Plant
from tests.world import World, scripted

point: WaitPoint[str, int] = WaitPoint("gate", suspend=str, resume=int)


class PanicError(BaseException):
    """As of a Rust extension."""


def asking(ctx: Context) -> Iterator[int]:
    yield 1
    yield ctx.ask(point, "How many?")


async def asking_async(ctx: Context) -> AsyncIterator[int]:
    yield 1
    yield ctx.ask(point, "How many?")


def breaking(ctx: Context) -> Iterator[int]:
    yield 1
    raise PanicError("broken")


async def breaking_async(ctx: Context) -> AsyncIterator[int]:
    yield 1
    raise PanicError("broken")


def planted(plant: Plant, generate: Callable[[Context], Any], *, is_async: bool) -> World:
    def gate(ctx: Context) -> Any:
        """Ask."""
        return generate(ctx)

    async def gate_async(ctx: Context) -> Any:
        """Ask."""
        return generate(ctx)

    made = tool(name="gate", wait_points=[point])(gate_async if is_async else gate)
    return plant(Agent("agent", model=scripted(call("gate"), say("done")), tools=[made]))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("generate", [asking, asking_async])
def test_a_returned_generator_may_ask(plant: Plant, generate: Any, is_async: bool) -> None:
    world = planted(plant, generate, is_async=is_async)
    run_id = world.start()
    world.answer(world.the_action(run_id), 7)
    (output,) = world.outputs(run_id)
    assert (output.outcome, output.content) == ("success", [1, 7])
    assert world.run(run_id).status == "completed"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("generate", [breaking, breaking_async])
def test_what_a_returned_generator_raises_is_an_error_of_the_tool(plant: Plant, generate: Any, is_async: bool) -> None:
    world = planted(plant, generate, is_async=is_async)
    run_id = world.start()
    (output,) = world.outputs(run_id)
    assert (output.outcome, output.content) == ("error", "PanicError: broken")
    assert world.run(run_id).status == "completed"
