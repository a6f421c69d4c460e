"""Types and helpers that several tests of contracts share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, timedelta
from enum import Enum, IntEnum, StrEnum
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
)
from typing_extensions import TypedDict

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import (
    PayloadError,
    ToolOutputError,
)

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Name(StrEnum):
    A = "a"


class Size(IntEnum):
    S = 1


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


@dataclasses.dataclass
class Point:
    x: int
    color: Color = Color.RED


class Row(TypedDict):
    at: date
    blob: bytes


class Pair(NamedTuple):
    a: int
    b: Color


class Envelope(BaseModel, Generic[T]):
    data: T


class Blob(BaseModel):
    model_config = ConfigDict(val_json_bytes="utf8", ser_json_bytes="utf8", ser_json_timedelta="float")
    data: bytes
    wait: timedelta = timedelta()


class Inner(BaseModel):
    a: int = 0


class Outer(BaseModel):
    inner: Inner
    items: list[Inner] = []
    point: Point | None = None
    row: Row | None = None


def dump(type_: Any, value: Any, error: type[PayloadError] = ToolOutputError) -> Any:
    return Contract.of(type_).dump(value, "here", error)


def issues_of(action: Callable[[], Any], error: type[PayloadError]) -> list[tuple[str, str]]:
    with pytest.raises(PayloadError) as caught:
        action()
    assert type(caught.value) is error
    assert caught.value.where == "here"
    return [(issue.path, issue.message) for issue in caught.value.issues]
