"""Outputs are written, not proven: the work is done, and an error would make the model do it again."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Flag
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SerializeAsAny,
    SkipValidation,
    WrapValidator,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import core_schema
from typing_extensions import TypedDict

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import ToolOutputError
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


@pydantic_dataclass
class Made:
    a: int
    total: int = Field(init=False)
    at: date = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total, self.at = self.a * 2, date(2026, 1, 1)


@dataclasses.dataclass
class Late:
    a: int
    total: int = dataclasses.field(init=False)


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
        (Total, Total(2), {"a": 2, "total": 4}),
        (list[Total], [Total(2)], [{"a": 2, "total": 4}]),
        (Made, Made(2), {"a": 2, "total": 4, "at": "2026-01-01"}),
        (Late, Late(2), {"a": 2}),  # never set
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


def _split(text: str) -> list[str]:
    return text.split(",")


def _at_least_ten(value: int) -> int:
    if value < 10:
        raise ValueError("at least 10")
    return value


MIDNIGHT = datetime(2026, 1, 1)
Tags = Annotated[list[str], BeforeValidator(_split)]


class Tagged(TypedDict):
    tags: Tags


class Money:
    """Read from a number, and written as one."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        written = core_schema.plain_serializer_function_ser_schema(lambda money: money.cents)
        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema(), serialization=written)


@pytest.mark.parametrize(
    ("type_", "value", "wire"),
    [
        (Tags, ["a", "b"], ["a", "b"]),
        (Tags, "a,b", ["a", "b"]),
        (Tagged, {"tags": ["a"]}, {"tags": ["a"]}),
        (list[Tagged] | None, [{"tags": ["a"]}], [{"tags": ["a"]}]),
        (Json[dict[str, int]], {"a": 1}, '{"a":1}'),
        (Json, [1], "[1]"),
        (Base64Bytes, b"hello", "aGVsbG8="),
        (Money, Money(3), 3),
        (dict[str, Money], {"a": Money(3)}, {"a": 3}),
        (
            Annotated[datetime, WrapValidator(lambda text, read: read(text[1:]))],
            datetime(2026, 1, 1),
            "2026-01-01T00:00:00",
        ),
        (Annotated[Inner, SkipValidation], Inner(), {"a": 0}),
        (Decimal, Decimal("NaN"), "NaN"),
        (list[Decimal], [Decimal("Infinity"), Decimal("1.50")], ["Infinity", "1.50"]),
    ],
)
def test_what_code_of_a_type_makes_is_of_that_type(type_: Any, value: Any, wire: Any) -> None:
    assert Contract.of(type_).write(value, "tool 't'", ToolOutputError) == wire


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Tags, 3),
        (Tags, [3]),
        (Money, "x"),
        (Annotated[int, AfterValidator(_at_least_ten)], 3),
        (Annotated[int, AfterValidator(_at_least_ten)], object()),
        (Decimal, "x"),
    ],
)
def test_what_no_code_of_a_type_makes_is_not_of_it(type_: Any, value: Any) -> None:
    with pytest.raises(ToolOutputError):
        Contract.of(type_).write(value, "tool 't'", ToolOutputError)


def test_a_value_without_end_is_cut() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    contract: Contract[Any] = Contract.of(Any)
    assert isinstance(contract.write(endless, "tool 't'", ToolOutputError), dict)


def test_what_is_not_of_the_declared_type_says_that_the_tool_has_run() -> None:
    with pytest.raises(ToolOutputError, match="The tool has run to its end and its effects stand"):
        Contract.of(int).write("x", "tool 't'", ToolOutputError)  # type: ignore[arg-type]


# --- keys that are the same text in JSON ---------------------------------------------------------


class Root(RootModel[dict[int | str, int]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Held(BaseModel):
    held: dict[Any, Any]


class Boxed(BaseModel):
    """Its keys have another form in JSON than pydantic's own."""

    held: dict[bytes | str, int]


@dataclasses.dataclass(frozen=True)
class Plain:
    held: dict[Any, Any]


class Pair(NamedTuple):
    held: dict[Any, Any]
    more: int = 0


Lower = Annotated[str, PlainSerializer(str.lower)]
TWO: Any = {1: "i", "1": "s"}
BOTH = {"1": "s", "1~2": "i"}


@pytest.mark.parametrize(
    ("type_", "value", "wire"),
    [
        (dict[int | str, str], TWO, BOTH),
        (Mapping[int | str, str], TWO, BOTH),
        (Any, TWO, BOTH),
        (dict, TWO, BOTH),
        (list[Any], [TWO], [BOTH]),
        (dict[str, Any], {"a": [TWO]}, {"a": [BOTH]}),
        (tuple[Any, ...], (TWO,), [BOTH]),
        (deque[Any], deque([TWO]), [BOTH]),
        (Pair, Pair(TWO), [BOTH, 0]),
        (Any, [Pair(TWO)], [[BOTH, 0]]),
        (OrderedDict[int | str, int], OrderedDict({1: 1, "1": 2}), {"1": 2, "1~2": 1}),
        (defaultdict[int | str, int], defaultdict(int, {1: 1, "1": 2}), {"1": 2, "1~2": 1}),
        (Counter[int | str], Counter({1: 1, "1": 2}), {"1": 2, "1~2": 1}),
        (Root, Root({1: 1, "1": 2}), {"1": 2, "1~2": 1}),
        (Held, Held(held=TWO), {"held": BOTH}),
        (Any, Held(held=TWO), {"held": BOTH}),
        (Open, Open(more=TWO), {"more": BOTH}),  # type: ignore[call-arg]
        (Plain, Plain(TWO), {"held": BOTH}),
        (Any, [Plain(TWO)], [{"held": BOTH}]),
        (Boxed, Boxed(held={b"a": 1, "YQ==": 2, "a": 3}), {"held": {"YQ==": 2, "YQ==~2": 1, "a": 3}}),
        (dict[Lower, int], {"A": 1, "a": 2, "À": 3}, {"a": 2, "a~2": 1, "à": 3}),
        (Any, {None: 1, "None": 2, True: 3, "true": 4}, {"None": 2, "None~2": 1, "true": 4, "true~2": 3}),
        (Any, {Color.RED: 1, "red": 2}, {"red": 2, "red~2": 1}),
        (Any, {date(2026, 1, 1): 1, "2026-01-01": 2}, {"2026-01-01": 2, "2026-01-01~2": 1}),
        (Any, {("a", "b"): 1, ("a,b",): 2}, {"a,b": 1, "a,b~2": 2}),
        (Any, {1: 1, "1": 2, "1~2": 3}, {"1": 2, "1~2": 3, "1~3": 1}),
        (Any, {object(): 1, object(): 2}, {"<object: no JSON form>": 1, "<object: no JSON form>~2": 2}),
        (Any, {"a": {object(): 1, object(): 2}, "b": Boom(a=1)}, None),
    ],
)
def test_no_entry_is_lost_to_a_key_that_is_the_same_text(type_: Any, value: Any, wire: Any) -> None:
    written: Any = Contract.of(type_).write(value, "tool 't'", ToolOutputError)
    if wire is None:  # written part by part, because a serializer raises
        assert list(written["a"].values()) == [1, 2]
    else:
        assert written == wire


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (dict[int, str], {1: "a", "1": "b"}, ""),
        (list[dict[int, str]], [{1: "a", "1": "b"}], "/0"),
        (dict[str, dict[date, int]], {"a": {date(2026, 1, 1): 1, "2026-01-01": 2}}, "/a"),
        (set[UUID], {UUID(int=1), str(UUID(int=1))}, ""),
    ],
)
def test_what_its_type_would_read_as_one_is_not_of_its_type(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(ToolOutputError, match="read as one") as caught:
        Contract.of(type_).write(value, "tool 't'", ToolOutputError)
    assert [issue.path for issue in caught.value.issues] == [path]
