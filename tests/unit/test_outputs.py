"""Outputs are written, not proven: the work is done, and an error would make the model do it again."""

from __future__ import annotations

import dataclasses
import math
from datetime import date
from enum import Flag
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, PrivateAttr, SerializeAsAny, field_serializer

from adjourn.schemas.errors import ToolOutputError
from adjourn.schemas.values import Contract
from tests.unit.shapes import Color, Inner


class Hidden(BaseModel):
    a: int
    secret: str = Field(exclude=True)


class Said(BaseModel):
    a: int

    @field_serializer("a")
    def _write(self, value: int) -> str:
        return f"<{value}>"


class Boom(BaseModel):
    a: int
    b: date = date(2026, 1, 1)
    c: str = Field(default="", exclude=True)

    @field_serializer("a")
    def _write(self, value: int) -> str:
        raise RuntimeError("boom")


class Private(BaseModel):
    a: int = 0
    _p: Any = PrivateAttr(default=0)

    def model_post_init(self, context: Any, /) -> None:
        self._p = object()


@dataclasses.dataclass
class Total:
    a: int
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.a * 2


@dataclasses.dataclass(slots=True, frozen=True)
class Slots:
    a: int
    total: int = dataclasses.field(init=False, default=7)


class Sub(Inner):
    more: int = 9


class Rights(Flag):
    READ = 1
    WRITE = 2


class Mixed(BaseModel):
    raw: bytes | str


@pytest.mark.parametrize(
    ("type_", "value", "wire"),
    [
        (Hidden, Hidden(a=1, secret="s"), {"a": 1}),
        (Said, Said(a=1), {"a": "<1>"}),
        (Boom, Boom(a=1, c="x"), {"a": 1, "b": "2026-01-01"}),
        (list[Boom], [Boom(a=1)], [{"a": 1, "b": "2026-01-01"}]),
        (Private, Private(), {"a": 0}),
        (Total, Total(2), {"a": 2}),  # as pydantic writes it: the field has no default
        (Slots, Slots(2), {"a": 2, "total": 7}),
        (Inner, Sub(), {"a": 0}),
        (list[Inner], [Sub()], [{"a": 0}]),
        (list[SerializeAsAny[Inner]], [Sub()], [{"a": 0, "more": 9}]),
        (str | UUID, UUID(int=1), str(UUID(int=1))),
        (str | date, date(2026, 1, 1), "2026-01-01"),
        (bytes | str, "ab", "ab"),
        (Mixed, {"raw": "ab"}, {"raw": "ab"}),
        (Color | str, "red", "red"),
        (dict[int | str, int], {1: 1, "b": 2}, {"1": 1, "b": 2}),
        (Rights, Rights.READ | Rights.WRITE, 3),
        (Any, {"a": [object()]}, {"a": ["<object: no JSON form>"]}),
        (dict[str, Any], {"a": Sub(), "b": {1}, "c": math.nan}, {"a": {"a": 0, "more": 9}, "b": [1], "c": None}),
    ],
)
def test_an_output_of_its_declared_type_is_written(type_: Any, value: Any, wire: Any) -> None:
    assert Contract.of(type_).write(value, "tool 't'", ToolOutputError) == wire


def test_a_value_without_end_is_cut() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    contract: Contract[Any] = Contract.of(Any)
    assert isinstance(contract.write(endless, "tool 't'", ToolOutputError), dict)


def test_what_is_not_of_the_declared_type_says_that_the_tool_has_run() -> None:
    with pytest.raises(ToolOutputError, match="The tool has run to its end and its effects stand"):
        Contract.of(int).write("x", "tool 't'", ToolOutputError)  # type: ignore[arg-type]
