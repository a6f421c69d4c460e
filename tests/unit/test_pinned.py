"""A stored schema and the live type accept and refuse the same."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AnyUrl, BaseModel, BeforeValidator, ConfigDict, Field, HttpUrl, JsonValue, RootModel
from typing_extensions import TypedDict

from adjourn.schemas.contracts.issues import MAX_ISSUES
from adjourn.schemas.contracts.pinned import validate_pinned
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import AnswerPayloadError, PayloadError, ToolOutputError


class Color(Enum):
    RED = "red"
    WHEN = date(2020, 1, 1)


class Size(IntEnum):
    S = 1
    L = 2


class Name(StrEnum):
    A = "a"


class Share(Enum):
    HALF = 0.5
    WHOLE = 1.0


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    meow: int = 0


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    cat: str = ""
    bark: bool


class One(BaseModel):
    n: Literal[1] = 1
    a: int = 0


class Two(BaseModel):
    n: Literal[2] = 2


class Approval(BaseModel):
    approved: bool
    note: str | None = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int] = Field(init=False)
    a: int = 0


class Aliased(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    amount: Annotated[int, Field(alias="Amount", ge=0)]


@dataclasses.dataclass
class Node:
    x: int
    below: list[Node] = dataclasses.field(default_factory=list)


class Entry(TypedDict):
    a: int
    b: NotRequired[bytes]


class Pair(NamedTuple):
    a: int
    b: str = "x"


T = TypeVar("T")


class Envelope(BaseModel, Generic[T]):
    data: T


class Limits(BaseModel):
    day: Annotated[date, Field(ge=date(2020, 1, 1))]
    price: Annotated[Decimal, Field(ge=Decimal("0.10"), max_digits=5, decimal_places=2)]
    blob: Annotated[bytes, Field(min_length=1, max_length=3)]
    wait: Annotated[timedelta, Field(gt=timedelta(seconds=1))]


# No `pattern` of Python's own engine, no stripping, no custom validators: what a schema can say in full.
TYPES: list[Any] = [
    bool,
    int,
    float,
    str,
    None,
    Any,
    JsonValue,
    int | None,
    int | str,
    int | float | bool,
    date | int,
    date,
    datetime,
    time,
    timedelta,
    UUID,
    Decimal,
    bytes,
    Color,
    Size,
    Name,
    Share,
    Literal[1, "a", None],
    Literal[True],
    Literal[Size.S, Name.A],
    IPv4Address,
    Path,
    AnyUrl,
    HttpUrl,
    complex,
    list[int],
    deque[int],
    Sequence[str],
    tuple[int, str],
    tuple[int, ...],
    set[int],
    frozenset[str],
    set[float],
    dict[str, int],
    dict[int, str],
    dict[float, int],
    dict[bool, int],
    dict[Size, int],
    dict[Color, int],
    dict[Literal[1, "x"], int],
    dict[date, int],
    Mapping[str, list[int]],
    OrderedDict[str, int],
    defaultdict[str, list[int]],
    Counter[str],
    Annotated[int, Field(ge=0, lt=10, multiple_of=2)],
    Annotated[float, Field(gt=0, le=3, multiple_of=0.1)],
    Annotated[str, Field(min_length=1, max_length=3)],
    Annotated[str, Field(pattern="^[ab]+$")],
    dict[Annotated[str, Field(pattern="^a")], int],
    Annotated[list[int], Field(min_length=1, max_length=2)],
    Annotated[set[int], Field(min_length=2)],
    Annotated[date, Field(ge=date(2020, 1, 1))],
    Annotated[Decimal, Field(ge=Decimal("0.1"), decimal_places=2)],
    Annotated[bytes, Field(max_length=2)],
    Limits,
    Approval,
    Open,
    Aliased,
    Node,
    Entry,
    Pair,
    RootModel[list[int]],
    Envelope[int],
    Envelope[Annotated[Cat | Dog, Field(discriminator="kind")]],
    Annotated[One | Two, Field(discriminator="n")],
    Approval | Cat,
    list[Approval | None],
]

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=4)
TEMPTING: list[Any] = [
    *("yes", "true", "1", "01", "3.0", "1.5", " 1", "", "a", "aa", "a\n", "red", "None", "null", "x", "٣"),
    *("2020-01-01", "2019-12-31", "2020-01-01T00:00:00", "2020-01-01 10:00Z", "2020-13-01", "1700000000"),
    *("10:00", "10:00:00.5+02:00", "PT1S", "P1D", "-PT2S", "3", "1 day", "0.1", "0.10", "1e5", "NaN", "Infinity"),
    *("00000000-0000-0000-0000-000000000001", "00000000000000000000000000000001", "aGk=", "aGk", "_-8=", "a"),
    *("http://a.b/", "ftp://a.b/", "not a url", "1.2.3.4", "1.2.3", "/a/b", "1+2j"),
    *(0, 1, 2, 3, -1, 10, 0.0, 1.0, 0.3, 0.1, 0.5, 1.5, 3.0, 2**70, True, False, None),
    *([], [1], [1, 1], [1, True], [1, 1.0], [1, "a"], ["a", 1], [[1]], {}),
    *({"kind": "cat"}, {"kind": "dog", "bark": True}, {"meow": 1}, {"bark": True}, {"n": True}, {"n": 1.0}),
    *({"approved": True}, {"approved": "yes"}, {"approved": None}, {"approved": True, "more": 1}, {"note": None}),
    *({"Amount": 1}, {"amount": 1}, {"Amount": -1}, {"a": 1, "b": "aGk="}, {"a": 1, "z": 1}, {"a": 1, "z": "1"}),
    *(
        {"1": "a"},
        {"01": "a"},
        {"x": 1},
        {"true": 1},
        {"2020-01-01": 1},
        {"red": 1},
        {"1": 1},
        {"1.5": 1},
        {"-0": 1},
    ),
    *({"x": 1, "below": [{"x": 2}]}, {"x": 1, "below": [{"x": 2.0}]}, {"data": 1}, {"data": "1"}, {"data": {}}),
    *({"data": {"kind": "cat"}}, {"data": {"kind": "cow"}}, {"data": {"meow": 1}}, {"kind": ["cat"]}),
    {"day": "2020-01-01", "price": "0.10", "blob": "YQ==", "wait": "PT2S"},
    {"day": "2019-01-01", "price": "0.09", "blob": "", "wait": "PT1S"},
    {"day": "2020-01-02", "price": 1.234, "blob": "YWFhYQ==", "wait": "PT2S"},
]
tempting = st.sampled_from(TEMPTING)
anything = st.recursive(
    tempting | texts | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.just("a"), inner, max_size=3),
    max_leaves=5,
)


def accepts(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments, "here")
    except PayloadError:
        return False
    return True


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=anything)
def test_pinned_and_live_agree(type_: Any, data: Any) -> None:
    contract = Contract.of(type_)
    live = accepts(contract.validate_answer, data)
    assert accepts(validate_pinned, contract.json_schema, data) == live


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_pinned_and_live_agree_on_every_tempting_value(type_: Any) -> None:
    contract = Contract.of(type_)
    for data in TEMPTING:
        live = accepts(contract.validate_answer, data)
        assert accepts(validate_pinned, contract.json_schema, data) == live, data


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=anything)
def test_what_is_accepted_comes_back_and_fits_the_output_schema(type_: Any, data: Any) -> None:
    contract = Contract.of(type_)
    try:
        value = contract.validate_answer(data, "here")
    except PayloadError:
        return
    wire = contract.dump(value, "here", ToolOutputError)
    assert contract.load(wire) == value
    validate_pinned(contract.output_schema, wire, "here")
    validate_pinned(contract.json_schema, wire, "here")


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_schemas_are_legal_draft_2020_12(type_: Any) -> None:
    for schema in (Contract.of(type_).json_schema, Contract.of(type_).output_schema):
        Draft202012Validator.check_schema(schema)


def issues(schema: dict[str, Any], data: Any) -> list[tuple[str, str]]:
    with pytest.raises(AnswerPayloadError) as caught:
        validate_pinned(schema, data, "here")
    return [(issue.path, issue.message) for issue in caught.value.issues]


def test_issues_name_the_place_and_do_not_quote_the_value() -> None:
    schema = Contract.of(Envelope[Approval | None]).json_schema
    assert issues(schema, {}) == [("/data", "Field required")]
    assert issues(schema, {"data": {"approved": "S3CRET", "a/b": 1}}) == [
        ("/data/a~1b", "unknown key"),
        ("/data/approved", "should be of type boolean"),
    ]
    limits = {"type": "object", "properties": {"a": {"maxLength": 2}, "b": {"maximum": 2}, "c": {"not": {}}}}
    assert issues({"not": {}, "allOf": [False]}, "S3CRET")[1] == ("", "is not allowed")
    told = issues(limits, {"a": "S3CRET", "b": 123456, "c": "S3CRET"})
    assert told == [
        ("/a", "should have at most 2 characters"),
        ("/b", "should be at most 2"),
        ("/c", "does not keep the schema's not"),
    ]


def test_of_several_forms_the_tagged_one_is_explained() -> None:
    schema = Contract.of(Envelope[Annotated[Cat | Dog, Field(discriminator="kind")]]).json_schema
    assert issues(schema, {"data": {"kind": "dog", "bark": 1}}) == [("/data/bark", "should be of type boolean")]
    assert issues(schema, {"data": {"kind": "cow"}}) == [
        ("/data", "does not fit exactly one of the allowed forms"),
    ]


def test_many_issues_are_counted() -> None:
    told = issues({"items": {"type": "integer"}}, ["x"] * 1000)
    assert len(told) == MAX_ISSUES + 1
    assert told[-1] == ("", f"and {1000 - MAX_ISSUES} more")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://example.invalid/schema.json"},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "#"},
        {"type": "no such type"},
        {"pattern": "("},
        {"format": "date", "x-limits": {"ge": "never"}},
    ],
)
def test_a_schema_that_cannot_be_applied_refuses(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any) -> None:
        raise AssertionError("a reference was fetched")

    monkeypatch.setattr("socket.socket.connect", connect)
    [(path, message)] = issues(schema, "2020-01-01")
    assert path == ""
    assert "cannot be applied" in message


def test_a_pattern_that_ruins_other_engines_is_linear() -> None:
    # (a+)+$ takes 2^40 steps in Python's own engine: the timeout of the suite would end it.
    assert issues({"pattern": "^(a+)+$"}, "a" * 40 + "!") == [("", "should match ^(a+)+$")]


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^\p{L}+$", "ann", "1"),
        (r"^(?<x>[a-z]+)$", "ann", "Ann"),
        (r"^[[:alpha:]]+\z", "ann", "1"),
        (r"^a(?i)b$", "aB", "Ab"),
    ],
)
def test_a_pattern_only_pydantics_engine_knows_is_no_fault_of_the_schema(
    pattern: str, fits: str, does_not: str
) -> None:
    validate_pinned({"type": "string", "pattern": pattern}, fits, "here")
    assert issues({"type": "string", "pattern": pattern}, does_not) == [("", f"should match {pattern}")]


def test_a_pattern_only_pythons_engine_knows_still_counts() -> None:
    schema = {"pattern": "^(?!x)a$"}
    validate_pinned(schema, "a", "here")
    assert issues(schema, "xa")


def test_unique_items_is_linear() -> None:
    # Comparing all pairs of 50,000 unsortable items is 10^9 comparisons.
    validate_pinned({"uniqueItems": True}, [{"n": n} for n in range(50_000)], "here")


def test_what_a_live_model_repairs_is_refused_here() -> None:
    contract = Contract.of(Annotated[int, BeforeValidator(int)])
    assert contract.validate_answer("3", "here") == 3
    assert issues(contract.json_schema, "3") == [("", "should be of type integer")]


def test_aware_datetimes_keep_their_limit() -> None:
    schema = Contract.of(Annotated[datetime, Field(gt=datetime(2020, 1, 1, tzinfo=UTC))]).json_schema
    validate_pinned(schema, "2020-01-01T00:00:01Z", "here")
    assert issues(schema, "2020-01-01T00:00:00+02:00")
