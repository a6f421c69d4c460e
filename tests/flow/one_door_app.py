"""An app whose answers only its own code can judge. Run by the workers of `tests/flow/test_one_door.py`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic import BaseModel, field_validator

from adjourn import App, Context, WaitPoint, tool


class Ask(BaseModel):
    prompt: str


class Amount(BaseModel):
    """What JSON Schema cannot say: the amount is even, and some amounts break the validator."""

    amount: int

    @field_validator("amount")
    @classmethod
    def is_even(cls, amount: int) -> int:
        breaks(amount)
        if amount % 2:
            raise ValueError("is not even")
        return amount


class Panic(BaseException):
    """As a Rust extension raises it."""


def breaks(amount: int) -> None:
    if amount == -2:
        raise Panic("rust")
    if amount == -4:
        raise asyncio.CancelledError
    if amount == -6:
        sys.exit(3)
    if amount == -8:
        breaks(amount)
    if amount == -10:
        raise KeyboardInterrupt
    if amount == -12:
        raise GeneratorExit


class Plain(BaseModel):
    amount: int


even = WaitPoint("even", suspend=Ask, resume=Amount)
plain = WaitPoint("plain", suspend=Ask, resume=Plain)
signed = WaitPoint("signed", suspend=Ask, resume=Amount, answerers=["ann"])


@tool(wait_points=[even])
def gate(ctx: Context) -> dict[str, Any]:
    """Ask for an even amount."""
    return ctx.ask(even, Ask(prompt="How much?")).model_dump()


@tool(wait_points=[plain])
def open_gate(ctx: Context) -> dict[str, Any]:
    """Ask for any amount."""
    return ctx.ask(plain, Ask(prompt="How much?")).model_dump()


@tool(wait_points=[signed])
def anns_gate(ctx: Context) -> dict[str, Any]:
    """Ask Ann for an even amount."""
    return ctx.ask(signed, Ask(prompt="How much?")).model_dump()


app = App(blocks=[gate, open_gate, anns_gate])
