"""What is asked and remembered is proven against the value that was given; what is left out stays out."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ByteSize, ConfigDict, Field, field_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass

from adjourn import DefinitionError, WaitPoint
from adjourn.schemas.contracts.given import given_json
from adjourn.schemas.contracts.unset import without
from adjourn.schemas.contracts.values import Contract, validate_pinned
from adjourn.schemas.errors import AnswerPayloadError, PayloadError, RoundTripError, ToolOutputError
from tests.unit.shapes import Cat, Color, Dog, Envelope, dump, issues_of

BERLIN = ZoneInfo("Europe/Berlin")


class Either(BaseModel):
    raw: bytes | str = "!"
    color: Color | str = ""
    keys: dict[int | str, int] = {}
    day: date | None = None


class Patch(BaseModel):
    name: str | None = None
    tags: list[str] = []
    more: dict[str, str] = Field(default_factory=dict)


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (bytes | str, "note", ""),
        (Color | str, "red", ""),
        (date | Color | str, "red", ""),
        (Literal["a"] | Color | str, "red", ""),
        (list[bytes] | list[str], ["note"], "/0"),
        (dict[int | str, str], {1: "a", "1": "b"}, "/1"),
        (dict[int, str], {1: "a", "1": "b"}, ""),
        (dict[Color | str, int], {"red": 1}, "/red"),
        (Either, {"raw": "note"}, "/raw"),
        (Either, {"color": "red"}, "/color"),
        (Either, {"keys": {1: 1, "1": 2}}, "/keys/1"),
        (Envelope[Either], {"data": {"color": "red"}}, "/data/color"),
        (list[Either], [{"raw": "note"}], "/0/raw"),
        (Path | str, "note", ""),
        (IPv4Address | str, "1.1.1.1", ""),
        (re.Pattern[str] | str, "a", ""),
        (ByteSize | int, 1, ""),
        (ByteSize | str, "2026", ""),
        (Patch | dict[str, Any], {"name": "a"}, ""),
        (list[Patch] | list[dict[str, Any]], [{"name": "a"}], "/0"),
        (dict[str, int] | Counter[str], Counter("a"), ""),
        (dict[str, Path | str | None], {"a": "note"}, "/a"),
    ],
)
def test_a_value_that_json_would_change_is_refused(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(RoundTripError) as caught:
        dump(type_, value)
    assert [issue.path for issue in caught.value.issues] == [path]


@pytest.mark.parametrize(
    ("type_", "value", "wire"),
    [
        (bytes | str, "no!", "no!"),
        (bytes | str, b"note", "bm90ZQ=="),
        (Color | str, Color.RED, "red"),
        (Color | str, "other", "other"),
        (dict[int | str, int], {1: 1, "b": 2}, {"1": 1, "b": 2}),
        (Either, {"day": "2026-01-01"}, {"raw": "!", "color": "", "keys": {}, "day": "2026-01-01"}),
        (Either, {"day": date(2026, 1, 1)}, {"raw": "!", "color": "", "keys": {}, "day": "2026-01-01"}),
        (list[float], [1], [1.0]),
        (Envelope[int], Envelope(data=1), {"data": 1}),
        (str | Path, "note", "note"),
        (Path | str, Path("note"), "note"),
        (dict[str, Any] | Patch, {"name": "a"}, {"name": "a"}),
        (Patch | dict[str, int], {"a": 1}, {"a": 1}),
        (Patch | list[Patch], {"name": "a"}, {"name": "a", "tags": [], "more": {}}),
        (Patch | None, {"name": "a"}, {"name": "a", "tags": [], "more": {}}),
        (Point | None, {"x": 1}, {"x": 1}),
        (Point | dict[str, int], {"x": 1}, {"x": 1}),
        (OrderedDict[str, int] | dict[str, int], {"a": 1}, {"a": 1}),
    ],
)
def test_a_value_that_json_keeps_is_written(type_: Any, value: Any, wire: Any) -> None:
    assert dump(type_, value) == wire


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("wall", [datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30)])
def test_times_in_the_repeated_and_the_skipped_hour_come_back(wall: datetime, fold: int) -> None:
    at = wall.replace(tzinfo=BERLIN, fold=fold)
    values: list[tuple[Any, Any, Callable[[Any], datetime]]] = [
        (datetime, at, lambda back: back),
        (list[datetime], [at], lambda back: back[0]),
        (set[datetime], {at}, lambda back: next(iter(back))),
        (dict[datetime, int], {at: 1}, lambda back: next(iter(back))),
    ]
    for type_, value, only in values:
        back = only(Contract.of(type_).load(dump(type_, value)))
        assert (back.utcoffset(), back.replace(tzinfo=None)) == (at.utcoffset(), wall)


FOLDED: list[tuple[Any, Any, str]] = [
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1), ""),
    (time, time(2, 30, fold=1), ""),
    (list[datetime], [datetime(2026, 10, 25, 2, 30, fold=1)], "/0"),
    (dict[str, time], {"a": time(2, 30, fold=1)}, "/a"),
    (dict[datetime, int], {datetime(2026, 10, 25, 2, 30, fold=1): 1}, "/2026-10-25 02:30:00"),
    (set[datetime], {datetime(2026, 10, 25, 2, 30, fold=1)}, ""),
    (frozenset[tuple[time, int]], frozenset({(time(2, 30, fold=1), 1)}), "/0"),
]


@pytest.mark.parametrize(("type_", "value", "path"), FOLDED)
def test_a_fold_without_a_zone_is_refused(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(RoundTripError, match="fold=1 and no zone") as caught:
        dump(type_, value)
    assert [issue.path for issue in caught.value.issues] == [path]
    assert dump(datetime, datetime(2026, 10, 25, 2, 30)) == "2026-10-25T02:30:00"
    assert dump(time, time(2, 30, fold=1, tzinfo=UTC)) == "02:30:00Z"


@dataclasses.dataclass
class Sum:
    parts: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@pydantic_dataclass
class Dated:
    a: int
    b: int = Field(init=False)
    c: int = Field(init=False, default=7)

    def __post_init__(self) -> None:
        self.b = self.a


@dataclasses.dataclass(slots=True, frozen=True)
class Fixed:
    a: int
    total: int = dataclasses.field(init=False, default=7)


MADE: list[Any] = [Sum([1, 2]), Dated(2), Fixed(2)]


@pytest.mark.parametrize("value", MADE)
def test_a_field_that_the_class_makes_comes_back_as_it_was(value: Any) -> None:
    wire = dump(type(value), value)
    assert Contract.of(type(value)).load(wire) == value
    assert Contract.of(list[type(value)]).load(dump(list[type(value)], [value])) == [value]  # type: ignore[misc]
    assert set(wire) < {each.name for each in dataclasses.fields(value)}
    schema: Any = Contract.of(type(value)).json_schema
    assert set(schema["required"]) <= set(wire), "what nobody can send is not asked for"
    assert Contract.of(type(value)).validate_answer(wire, "an answer") == value


@pytest.mark.parametrize("value", MADE)
def test_a_field_that_the_class_would_make_otherwise_is_refused(value: Any) -> None:
    other = copy.copy(value)
    name = next(each.name for each in dataclasses.fields(other) if not each.init)
    object.__setattr__(other, name, 99)
    with pytest.raises(RoundTripError) as caught:
        dump(type(other), other)
    assert [issue.path for issue in caught.value.issues] == [f"/{name}"]


def test_a_zone_that_a_time_of_day_would_lose_is_refused() -> None:
    assert dump(time, time(1, tzinfo=UTC)) == "01:00:00Z"
    with pytest.raises(RoundTripError):
        dump(time, time(1, tzinfo=BERLIN))  # which offset that is depends on the day


class Boom(BaseModel):
    a: int = 1

    @field_serializer("a")
    def _write(self, value: int) -> int:
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, object()]}, "/a/1"),
        ([{"b": Color}], "/0/b"),
        ({"a": {"b": [Boom()]}}, "/a/b/0/a"),
    ],
)
def test_a_nested_value_without_a_json_form_is_refused_at_its_own_path(value: Any, path: str) -> None:
    [(where, _)] = issues_of(lambda: dump(Any, value), RoundTripError)
    assert where == path


# --- unset and null ------------------------------------------------------------------------------


class Made(BaseModel):
    id: UUID = Field(default_factory=uuid4)
    note: str | None = None


class Nest(BaseModel):
    pet: Cat | Dog = Dog()
    tagged: Annotated[Cat | Dog, Field(discriminator="kind")]
    made: list[Made] = []
    patch: Patch | None = None


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (Patch(), {}),
        (Patch(name=None), {"name": None}),
        (Patch(tags=[], more={}), {"tags": [], "more": {}}),
        (Nest(tagged=Dog()), {"tagged": {"kind": "dog"}}),
        (
            Nest(tagged=Cat(), pet=Dog(), patch=Patch(name=None)),
            {"tagged": {"kind": "cat"}, "pet": {"kind": "dog"}, "patch": {"name": None}},
        ),
    ],
)
def test_what_nobody_set_is_left_out_and_stays_unset(value: BaseModel, wire: Any) -> None:
    contract = Contract.of(type(value))
    assert contract.dump_set(value, "here", ToolOutputError) == wire
    back = contract.load(wire)
    assert (back, back.model_fields_set) == (value, value.model_fields_set)
    full, unset = contract.dump_unset(value, "here", ToolOutputError)
    assert full == dump(type(value), value)
    assert without(full, unset) == wire


def test_a_default_that_was_changed_in_place_is_written() -> None:
    value = Patch()
    value.tags.append("new")
    assert Contract.of(Patch).dump_set(value, "here", ToolOutputError) == {"tags": ["new"]}


def test_a_default_that_a_function_made_is_written() -> None:
    value = Nest(tagged=Dog(), made=[Made(), Made(note=None)])
    wire: Any = Contract.of(Nest).dump_set(value, "here", ToolOutputError)
    assert [set(each) for each in wire["made"]] == [{"id"}, {"id", "note"}]
    assert Contract.of(Nest).load(wire) == value


def test_an_answer_is_the_same_however_often_it_is_read() -> None:
    contract = Contract.of(Nest)
    given: Any = {"tagged": {"kind": "dog"}, "made": [{}, {"note": None}]}
    value, stored = contract.canonical(given, "here")
    assert given == {"tagged": {"kind": "dog"}, "made": [{}, {"note": None}]}
    for _ in range(2):
        back = contract.load(stored)
        assert back == value
        assert [each.model_fields_set for each in back.made] == [{"id"}, {"id", "note"}]
        assert back.model_fields_set == {"tagged", "made"}
    assert Contract.of(Patch).canonical({"name": None}, "here")[1] == {"name": None}
    with pytest.raises(AnswerPayloadError):
        contract.canonical({}, "here")


def test_an_answer_by_another_member_of_a_union_is_the_same_too() -> None:
    class Other(BaseModel):
        note: str | None = None

    contract: Contract[Any] = Contract.of(Made | Other)
    value, stored = contract.canonical({"note": "x"}, "here")
    assert contract.load(stored) == value == contract.load(stored)
    assert type(contract.load(stored)) is type(value)


def test_a_default_of_a_wait_point_keeps_what_is_unset() -> None:
    assert WaitPoint("p", suspend=str, resume=Patch, default=Patch(name=None)).default == {"name": None}
    with pytest.raises(DefinitionError, match="comes back as bytes"):
        WaitPoint("p", suspend=str, resume=bytes | str, default="note")


# --- values of callers ---------------------------------------------------------------------------


class Kind(Enum):
    A = "a"


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (Patch(name=None), {"name": None}),
        ({"a": [Patch(), Kind.A]}, {"a": [{}, "a"]}),
        (Kind.A, "a"),
        (date(2026, 1, 1), "2026-01-01"),
        (b"\xff", "/w=="),
        ({Kind.A: 1, 2: 2}, {"a": 1, "2": 2}),
        ((1, None, True), [1, None, True]),
    ],
)
def test_a_value_of_a_caller_is_written_as_a_wait_point_writes_it(value: Any, wire: Any) -> None:
    assert given_json(value, "here", AnswerPayloadError) == wire


@pytest.mark.parametrize(
    ("value", "path"),
    [({"a": [object()]}, "/a/0"), ({"a": [Boom()]}, "/a/0/a"), ({1: 1, "1": 2}, ""), ([Either(raw="note")], "/0/raw")],
)
def test_a_value_of_a_caller_that_would_not_come_back_is_refused_at_its_place(value: Any, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        given_json(value, "here", AnswerPayloadError)
    assert [issue.path for issue in caught.value.issues] == [path]


class Renamed(BaseModel):
    """A field of each kind of alias."""

    a: int = Field(alias="A")
    b: int = Field(validation_alias="readB", serialization_alias="writtenB")
    c: int = Field(0, validation_alias=AliasChoices(AliasPath("deep", "c"), "firstC", "secondC"))
    d: int = Field(0, serialization_alias="writtenD")
    e: int = Field(0, validation_alias=AliasChoices("oldE", "e2"), serialization_alias="e2")


class Upper(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper, populate_by_name=True)
    a: int


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (
            Renamed.model_validate({"A": 1, "readB": 2, "secondC": 3, "d": 4, "e2": 5}),
            {"A": 1, "readB": 2, "firstC": 3, "d": 4, "oldE": 5},
        ),
        (Upper(a=1), {"A": 1}),
    ],
)
def test_a_model_is_written_by_the_names_that_an_answer_may_have(value: BaseModel, wire: Any) -> None:
    contract = Contract.of(type(value))
    assert given_json(value, "here", AnswerPayloadError) == wire
    assert contract.validate_answer(wire, "here") == value
    validate_pinned(contract.json_schema, wire, "here")
    assert contract.filled(wire, "here")[0] == dump(type(value), value)
    assert contract.load({"a": 1, "b": 2} if type(value) is Renamed else {"a": 1}).model_fields_set <= {"a", "b"}
