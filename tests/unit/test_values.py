"""What a contract accepts, and what it refuses, for types of every kind."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    computed_field,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from adjourn.schemas.contracts.issues import MAX_ISSUES
from adjourn.schemas.contracts.values import Contract, ensure_round_trip
from adjourn.schemas.errors import (
    AnswerPayloadError,
    DefinitionError,
    ToolInputError,
    ToolOutputError,
)
from tests.unit.shapes import (
    Cat,
    Color,
    Dog,
    Envelope,
    Inner,
    Outer,
    Point,
    Row,
    Size,
    dump,
    issues_of,
)


def answer_issues(type_: Any, data: Any) -> list[tuple[str, str]]:
    return issues_of(lambda: Contract.of(type_).validate_answer(data, "here"), AnswerPayloadError)


# --- answers ------------------------------------------------------------------------------------


T = TypeVar("T")


class Lax(BaseModel, Generic[T]):
    """A model that asks for leniency, as users write them. It changes nothing about an answer."""

    model_config = ConfigDict(strict=False, coerce_numbers_to_str=True, extra="ignore")
    data: T


class Strict(BaseModel, Generic[T]):
    """A model that asks for pydantic's strictness, which would refuse a date as text."""

    model_config = ConfigDict(strict=True)
    data: T


REFUSED: list[tuple[Any, list[Any]]] = [
    (bool, ["yes", "true", 1, 0, 1.0, None]),
    (int, [True, "3", 3.0, None, [3]]),
    (float, [True, "3.0", "nan", None]),
    (str, [3, True, None, ["a"]]),
    (date, [0, 1_700_000_000, "1700000000", "2020-01-01T00:00:00", "2020-02-30", "today", True]),
    (datetime, [0, "1700000000", "2020-01-01", "2020-01-01T25:00:00"]),
    (time, [3, "3", "25:00"]),
    (timedelta, [3, "3", "1 day", "00:00:01"]),
    (UUID, [1, "1", b""]),
    (Decimal, [True, "NaN", "Infinity", " 1", "1_0", "x", [1]]),
    (bytes, [1, "a", "*", ["YQ=="]]),
    (Color, ["RED", 1, None]),
    (Size, [True, 1.0, "1", 2]),
    (Literal[1], [True, 1.0, "1"]),
    (Literal[True], [1, "true"]),
    (None, [0, "", False, []]),
    (list[int], [{}, "1", {"0": 1}, None]),
    (tuple[int, int], [[1], [1, 2, 3], {"0": 1}]),
    (set[int], [[1, 1], [1, True]]),
    (dict[int, int], [{"01": 1}, {" 1": 1}, {"1.0": 1}, {"x": 1}, {"-0": 1}, []]),
    (dict[bool, int], [{"yes": 1}, {"1": 1}, {"True": 1}]),
]


@pytest.mark.parametrize(("type_", "data"), [(type_, data) for type_, each in REFUSED for data in each], ids=repr)
def test_json_types_are_exact_everywhere(type_: Any, data: Any) -> None:
    assert answer_issues(type_, data)
    assert answer_issues(list[type_], [data])[0][0].startswith("/0")
    assert answer_issues(dict[str, type_], {"k": data})[0][0].startswith("/k")
    assert answer_issues(Envelope[type_], {"data": data})[0][0].startswith("/data")
    assert answer_issues(Annotated[type_, BeforeValidator(lambda v: v)], data)
    assert answer_issues(Lax[type_], {"data": data})[0][0].startswith("/data")


ACCEPTED: list[tuple[Any, Any, Any]] = [
    (float, 3, 3.0),
    (date, "2020-01-01", date(2020, 1, 1)),
    (datetime, "2020-01-01T10:00:00Z", datetime(2020, 1, 1, 10, tzinfo=UTC)),
    (datetime, "2020-01-01 10:00", datetime(2020, 1, 1, 10)),
    (time, "10:00", time(10)),
    (timedelta, "P1DT2S", timedelta(days=1, seconds=2)),
    (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, 1.5, Decimal("1.5")),
    (Decimal, "1E+5", Decimal("1E+5")),
    (bytes, "//8=", b"\xff\xff"),
    (bytes, "__8", b"\xff\xff"),
    (Color, "red", Color.RED),
    (Size, 1, Size.S),
    (tuple[int, str], [1, "a"], (1, "a")),
    (set[int], [1, 2], {1, 2}),
    (dict[int, str], {"-1": "a"}, {-1: "a"}),
    (dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (int | str, "3", "3"),
    (Envelope[int], {"data": 3}, Envelope[int](data=3)),
]


@pytest.mark.parametrize(("type_", "data", "value"), ACCEPTED, ids=repr)
def test_text_forms_are_read_everywhere(type_: Any, data: Any, value: Any) -> None:
    def read(contract: Any, given: Any) -> Any:
        return Contract.of(contract).validate_answer(given, "here")

    assert read(type_, data) == value
    assert type(read(type_, data)) is type(value)
    assert read(list[type_], [data]) == [value]
    assert read(Envelope[type_], {"data": data}).data == value
    # Pydantic's own strict JSON mode refuses most of these behind a validator that runs before.
    assert read(Annotated[type_, BeforeValidator(lambda v: v)], data) == value
    assert read(Strict[type_], {"data": data}).data == value


class Before(BaseModel):
    day: date
    color: Color
    pair: tuple[int, int]

    @model_validator(mode="before")
    @classmethod
    def keep(cls, data: Any) -> Any:
        return data


def test_models_with_before_validators_read_text_forms() -> None:
    value = Contract.of(Before).validate_answer({"day": "2020-01-01", "color": "red", "pair": [1, 2]}, "here")
    assert value == Before(day=date(2020, 1, 1), color=Color.RED, pair=(1, 2))


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("type_", "data", "path"),
    [
        (Inner, {"b": 1}, "/b"),
        (Outer, {"inner": {"b/c": 1}}, "/inner/b~1c"),
        (Outer, {"inner": {}, "items": [{}, {"b": 1}]}, "/items/1/b"),
        (Outer, {"inner": {}, "point": {"x": 1, "y": 2}}, "/point/y"),
        (Outer, {"inner": {}, "row": {"at": "2020-01-01", "blob": "", "y": 2}}, "/row/y"),
        (Open, {"inner": {"b": 1}}, "/inner/b"),
        (Envelope[Inner], {"data": {"b": 1}}, "/data/b"),
        (Inner | None, {"b": 1}, "/b"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "cat": 1}, "/cat"),
    ],
)
def test_unknown_keys_are_refused_at_every_level(type_: Any, data: Any, path: str) -> None:
    assert answer_issues(type_, data) == [(path, "unknown key")]


def test_extras_are_kept_where_a_model_allows_them() -> None:
    value = Contract.of(Open).validate_answer({"more": {"x": [1]}}, "here")
    assert value.model_extra == {"more": {"x": [1]}}
    assert Contract.of(Open).json_schema["additionalProperties"] is True
    assert dump(Open, value) == {"inner": {"a": 0}, "more": {"x": [1]}}


def test_missing_and_null_differ() -> None:
    class Maybe(BaseModel):
        a: int = 1
        b: int | None

    assert answer_issues(Maybe, {"a": None, "b": None})[0][0] == "/a"
    assert answer_issues(Maybe, {}) == [("/b", "Field required")]
    assert Contract.of(Maybe).validate_answer({"b": None}, "here") == Maybe(b=None)


def test_a_key_has_one_name_for_others_and_two_for_us() -> None:
    class Priced(BaseModel):
        model_config = ConfigDict(validate_by_name=True)
        amount: int = Field(alias="Amount")

    contract = Contract.of(Priced)
    assert contract.validate_answer({"Amount": 1}, "here").amount == 1
    assert ("/amount", "unknown key") in answer_issues(Priced, {"amount": 1})
    assert contract.dump(Priced(Amount=1), "here", ToolOutputError) == {"Amount": 1}
    assert dump(Priced, {"amount": 1}) == {"Amount": 1}
    assert contract.load({"amount": 1}) == contract.load({"Amount": 1})


def test_a_field_is_written_by_the_name_that_it_is_read_by() -> None:
    class Odd(BaseModel):
        a: int = Field(serialization_alias="out", validation_alias="in")
        b: int = Field(default=0, serialization_alias="out_b")

    value = Contract.of(Odd).validate_answer({"in": 1}, "here")
    assert dump(Odd, value) == {"in": 1, "b": 0}


def test_a_path_leads_through_unions_to_the_place() -> None:
    class Deep(BaseModel):
        x: list[dict[str, Inner | Annotated[Cat | Dog, Field(discriminator="kind")] | None]]

    assert answer_issues(Deep, {"x": [{"k": {"a": "1"}}]})[0][0] == "/x/0/k/a"
    # A key that is called as a tag or a class is a key.
    tagged = Annotated[Cat | Dog, Field(discriminator="kind")]
    assert answer_issues(tagged, {"kind": "cat", "cat": {"x": 1}, "lives": 9}) == [("/cat", "unknown key")]
    assert answer_issues(tagged, {"kind": "cow"}) == [("", 'The tag \'kind\' should be one of: "cat", "dog"')]
    assert answer_issues(tagged, {"kind": ["cat"]})[0][0] == ""
    assert answer_issues(dict[int, int], {"a/b": 1}) == [("/a~1b", "Input should be a valid integer")]


@pytest.mark.parametrize(
    "problem", [KeyError("S3CRET"), TypeError("S3CRET"), ZeroDivisionError(), RecursionError(), Exception("S3CRET")]
)
def test_any_exception_of_a_validator_is_an_issue_at_its_place(problem: Exception) -> None:
    def fail(_: Any) -> Any:
        raise problem

    class Checked(BaseModel):
        field: Annotated[int, AfterValidator(fail)]

    told = [("/field", f"its validator failed ({type(problem).__name__})")]
    assert answer_issues(Checked, {"field": 1}) == told
    assert answer_issues(list[Annotated[int, BeforeValidator(fail)]], [1])[0][0] == "/0"


def test_an_exception_outside_validators_is_an_issue_too() -> None:
    @dataclasses.dataclass
    class Fragile:
        a: int

        def __post_init__(self) -> None:
            raise KeyError("S3CRET")

    assert answer_issues(Fragile, {"a": 1}) == [("", "a validator failed (KeyError)")]


def test_a_message_of_a_validator_reaches_the_answerer_but_not_whole_inputs() -> None:
    class Checked(BaseModel):
        a: str

        @field_validator("a")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise ValueError(f"no: {value}")

    assert answer_issues(Checked, {"a": "x"}) == [("/a", "Value error, no: x")]
    [(_, message)] = answer_issues(Checked, {"a": "x" * 100_000})
    assert len(message) == 200


def test_errors_are_bounded_and_hold_no_input() -> None:
    secret = "S3CR" + "ET"
    told = answer_issues(list[int], [secret] * 1000)
    assert len(told) == MAX_ISSUES + 1
    assert told[-1] == ("", f"and {1000 - MAX_ISSUES} more")
    with pytest.raises(AnswerPayloadError) as caught:
        Contract.of(list[int]).validate_answer([secret], "here")
    assert secret not in "".join(traceback.format_exception(caught.value, chain=True))
    behind: BaseException | None = caught.value
    while (behind := behind.__context__) is not None:
        assert secret not in repr(vars(behind)) + str(behind)
        assert not isinstance(behind, ValidationError), "it holds the whole input"
    [(path, _)] = answer_issues(Inner, {"k" * 100_000: 1})
    assert len(path) < 300


def test_a_models_own_init_does_not_open_a_way_around() -> None:
    class Own(BaseModel):
        a: int

        def __init__(self, **data: Any) -> None:
            super().__init__(**data)

    assert answer_issues(Own, {"a": "1", "b": 2}) == [
        ("/a", "Input should be a valid integer"),
        ("/b", "unknown key"),
    ]


def test_tool_inputs_are_as_strict_and_named_as_such() -> None:
    class Arguments(TypedDict):
        n: int

    contract = Contract.of(Arguments)
    assert contract.validate_input({"n": 3}, "here") == {"n": 3}
    refused: list[dict[str, Any]] = [{"n": "3"}, {"n": 3.0}, {"n": 3, "m": 1}, {}]
    for bad in refused:
        assert issues_of(partial(contract.validate_input, bad, "here"), ToolInputError)


def test_a_message_is_about_json_not_about_python() -> None:
    for type_ in (Inner, Point, Row, dict[str, int]):
        assert answer_issues(type_, [1]) == [("", "Input should be an object")]


# --- schemas ------------------------------------------------------------------------------------


def test_generic_names_are_legal_and_references_resolve() -> None:
    schema = json.dumps(Contract.of(Envelope[Envelope[int] | Envelope[list[Inner]] | None]).json_schema)
    for name in json.loads(schema)["$defs"]:
        assert name.replace("_", "").replace("-", "").replace(".", "").isalnum()
        assert f"#/$defs/{name}" in schema


def test_a_schema_is_the_same_whatever_was_asked_before() -> None:
    one, other = Contract.of(int | str).json_schema, Contract.of(str | int).json_schema
    assert one["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert other["anyOf"] == [{"type": "string"}, {"type": "integer"}]
    assert Contract.of(Literal[1]).json_schema["const"] is not Contract.of(Literal[True]).json_schema["const"]


def test_contracts_are_made_once() -> None:
    assert Contract.of(Envelope[int]) is Contract.of(Envelope[int])
    metadata: Any = Annotated[int, {"unhashable": 1}]
    assert Contract.of(metadata).validate_answer(1, "here") == 1


def test_defaults_in_a_schema_are_json() -> None:
    class Defaulted(BaseModel):
        a: float = math.nan
        b: bytes = b"\xff"
        c: Color = Color.RED
        d: Inner = Inner()

    properties: Any = Contract.of(Defaulted).json_schema["properties"]
    assert [properties[name].get("default") for name in "abcd"] == [None, "_w==", "red", {"a": 0}]


def test_computed_fields_are_not_part_of_the_wire() -> None:
    class Area(BaseModel):
        side: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def area(self) -> int:
            return self.side**2

    assert dump(Area, Area(side=2)) == {"side": 2}
    assert list(Contract.of(Area).output_schema["properties"]) == ["side"]  # type: ignore[arg-type]


# --- definitions --------------------------------------------------------------------------------


class Arbitrary:
    pass


class Nested(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    good: int = 0
    inner: list[Arbitrary]


class InUnion(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    either: int | Arbitrary


class WithCallable(BaseModel):
    f: Callable[[int], int]


class WithObject(BaseModel):
    x: list[dict[str, object]]


class WithIterable(BaseModel):
    x: Iterable[int]


class WithTupleKeys(BaseModel):
    x: dict[tuple[int, int], int]


class BadEnum(Enum):
    A = object()


@dataclasses.dataclass
class WithIterator:
    x: list[Iterator[int]]


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (Arbitrary, ""),
        (list[Arbitrary], "/*"),
        (Nested, "/inner/*"),
        (Envelope[Nested], "/inner/*"),
        (InUnion, "/either"),
        (WithCallable, "/f"),
        (WithObject, "/x/*/*"),
        (WithIterable, "/x"),
        (WithTupleKeys, "/x/*"),
        (WithIterator, "/x/*"),
        (object, ""),
        (int | object, ""),
        (BadEnum, ""),
        (dict[str, BadEnum], "/*"),
        (Callable, ""),
        (Generator[int, None, None], ""),
        (collections.abc.AsyncIterator[int], ""),
        (type, ""),
        (type[int], ""),
        ("Unknown", ""),
        (dict[Inner, int], "/*"),
    ],
    ids=str,
)
def test_a_type_without_a_json_form_is_refused_naming_the_field(type_: Any, path: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        ensure_round_trip(type_)
    assert caught.value.where.endswith(path)
    assert (" at " in caught.value.where) == bool(path)


def test_any_and_json_values_are_allowed() -> None:
    for type_ in (Any, JsonValue, dict, list, dict[str, Any]):
        ensure_round_trip(type_)
