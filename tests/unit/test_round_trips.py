"""Values come back from their JSON as they went."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import (
    AnswerPayloadError,
    PayloadError,
    RoundTripError,
    SuspendPayloadError,
    ToolOutputError,
)
from tests.unit.shapes import (
    Blob,
    Cat,
    Color,
    Dog,
    Envelope,
    Inner,
    Name,
    Outer,
    Pair,
    Point,
    Row,
    Size,
    dump,
    issues_of,
)


class Everything(BaseModel):
    model_config = ConfigDict(strict=True)
    color: Color
    name: Name
    size: Size
    day: date
    at: datetime
    clock: time
    wait: timedelta
    price: Decimal
    id: UUID
    raw: bytes
    blob: Blob
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    by_number: dict[int, Name]
    by_color: dict[Color, int]
    pair: tuple[int, Color]
    named: Pair
    many: set[Name]
    frozen: frozenset[Size]
    point: Point
    row: Row
    queue: deque[int]
    ordered: OrderedDict[str, int]
    defaults: defaultdict[str, list[int]]
    either: int | str | None
    z: complex
    anything: Any
    value: JsonValue


# A fold without a zone has no form in JSON, and is refused: `test_given_values.py`.
naive = st.datetimes(min_value=datetime(1900, 1, 1)).map(lambda at: at.replace(fold=0))
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
durations = st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000))
plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    max_leaves=4,
)
everything = st.builds(
    Everything,
    color=st.sampled_from(Color),
    name=st.sampled_from(Name),
    size=st.sampled_from(Size),
    day=st.dates(),
    at=naive | st.datetimes(min_value=datetime(1900, 1, 1), timezones=offsets),
    clock=st.times().map(lambda at: at.replace(fold=0)),
    wait=durations,
    price=st.decimals(allow_nan=False, allow_infinity=False),
    id=st.uuids(),
    raw=st.binary(max_size=5),
    blob=st.builds(Blob, data=st.binary(max_size=5), wait=durations),
    pet=st.builds(Cat) | st.builds(Dog),
    by_number=st.dictionaries(st.integers(), st.sampled_from(Name), max_size=3),
    by_color=st.dictionaries(st.sampled_from(Color), st.integers(), max_size=2),
    pair=st.tuples(st.integers(), st.sampled_from(Color)),
    named=st.builds(Pair, st.integers(), st.sampled_from(Color)),
    many=st.sets(st.sampled_from(Name)),
    frozen=st.frozensets(st.sampled_from(Size)),
    point=st.builds(Point, st.integers(), st.sampled_from(Color)),
    row=st.fixed_dictionaries({"at": st.dates(), "blob": st.binary(max_size=5)}),
    queue=st.lists(st.integers(), max_size=3).map(deque),
    ordered=st.dictionaries(plain_text, st.integers(), max_size=2).map(OrderedDict),
    defaults=st.just(defaultdict(list, {"a": [1]})),
    either=st.none() | st.integers() | plain_text,
    z=st.complex_numbers(allow_nan=False, allow_infinity=False),
    anything=plain_json,
    value=plain_json,
)


@settings(max_examples=150, deadline=None)
@given(everything)
def test_values_come_back_as_they_went(value: Everything) -> None:
    contract = Contract.of(Everything)
    wire = contract.dump(value, "here", ToolOutputError)
    back = contract.load(json.loads(json.dumps(wire)))
    assert back == value
    assert type(back.name) is Name
    assert type(back.named) is Pair
    assert type(back.pet) is type(value.pet)
    assert {type(each) for each in back.many} <= {Name}
    assert back.at.utcoffset() == value.at.utcoffset()
    assert str(back.price) == str(value.price)


@given(st.binary())
def test_any_bytes_come_back_also_from_nested_models(data: bytes) -> None:
    value = Envelope[Blob](data=Blob(data=data))
    assert Contract.of(Envelope[Blob]).load(dump(Envelope[Blob], value)) == value


def test_bytes_with_an_encoding_of_their_own_are_encoded_once() -> None:
    class Upload(BaseModel):
        data: Base64Bytes

    contract = Contract.of(Upload)
    value = contract.validate_answer({"data": "aGk="}, "here")
    assert value.data == b"hi"
    assert contract.load(dump(Upload, value)) == value


def test_zones_come_back_as_their_offset() -> None:
    value = datetime(2020, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert dump(datetime, value) == "2020-07-01T00:00:00+02:00"


def test_a_plain_dict_may_stand_for_a_model() -> None:
    assert dump(Outer, {"inner": {"a": 1}}) == {"inner": {"a": 1}, "items": [], "point": None, "row": None}


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (Inner, {"a": "1"}, "/a"),
        (Inner, {"b": 1}, "/b"),
        (Inner, Dog(), ""),
        (Outer, {"inner": {"a": True}}, "/inner/a"),
        (Inner, Inner.model_construct(a="1"), "/a"),
        (list[Point], [Point(x="1")], "/0/x"),  # type: ignore[arg-type]
        (Envelope[Point], Envelope[Point].model_construct(data=Point(x=1, color="x")), "/data/color"),  # type: ignore[arg-type]
        (int, "3", ""),
        (int, None, ""),
        (bool, 1, ""),
        (date, 0, ""),
        (bytes, object(), ""),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_the_field(type_: Any, value: Any, path: str) -> None:
    [(where, _)] = issues_of(lambda: dump(type_, value, SuspendPayloadError), SuspendPayloadError)
    assert where == path


class Sub(Inner):
    more: int = 0


class Same(Inner):
    pass


class Held(BaseModel):
    _held: int = PrivateAttr(default=0)


class Hidden(BaseModel):
    a: int = Field(default=0, exclude=True)


def held() -> Held:
    value = Held()
    value._held = 1
    return value


class Shout(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (float, math.nan, ""),
        (float, math.inf, ""),
        (Envelope[list[float]], {"data": [1.0, math.nan]}, "/data/1"),
        (Any, {"a": [math.nan]}, "/a/0"),
        (Inner, Sub(), ""),
        (Inner, Same(), ""),
        (Outer, Outer(inner=Inner(), items=[Inner(), Sub(more=1)]), "/items/1"),
        (Any, {"a": Name.A}, "/a"),
        (Any, {"a": (1,)}, "/a"),
        (Any, [date(2020, 1, 1)], "/0"),
        (Any, {1: "a"}, "/1"),
        (Any, Inner(), ""),
        (Any, object(), ""),
        (dict[str, Any], {"a": {1: 2}}, "/a/1"),
        (Any, 10**400, ""),
        (date | str, date(2020, 1, 1), ""),
        (Held, held(), "/_held"),
        (Hidden, Hidden(a=1), "/a"),
        (SecretStr, SecretStr("S3CRET"), ""),
        (Annotated[int, PlainSerializer(str)], 3, ""),
        (Annotated[float, PlainSerializer(round, return_type=int)], 1.5, ""),
        (Annotated[int, PlainSerializer(lambda v: 1 / 0)], 3, ""),
        (list[Any], [Shout("x")], "/0"),
        (set[Any], {Name.A}, ""),
        (Any, {"a": {1, 2}}, "/a"),
    ],
)
def test_what_would_not_come_back_is_refused_naming_the_place(type_: Any, value: Any, path: str) -> None:
    [(where, message)] = issues_of(lambda: dump(type_, value), RoundTripError)
    assert where == path
    assert "S3CRET" not in message


def test_a_lone_surrogate_as_a_key_inside_an_instance_is_refused() -> None:
    # Pydantic writes such a key in a way of its own; in plain values it is replaced as everywhere.
    [(path, _)] = issues_of(lambda: dump(Envelope[dict[str, int]], Envelope(data={"\ud800": 1})), RoundTripError)
    assert path == "/data/\ufffd"


def test_a_value_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadError):
        dump(Any, endless)


def test_text_is_repaired_wherever_it_stands() -> None:
    class Said(BaseModel):
        text: str
        by: dict[str, Any]

    bad = "a\x00\ud800"
    good = "a\ufffd\ufffd"
    expected = {"text": good, "by": {good: [good]}}
    assert dump(Said, {"text": bad, "by": {bad: [bad]}}) == expected
    assert dump(Said, Said(text="a\x00", by={"a\x00": ["a\x00"]})) == {
        "text": "a\ufffd",
        "by": {"a\ufffd": ["a\ufffd"]},
    }
    assert dump(Said, Said.model_construct(text=bad, by={"k": [bad]})) == {"text": good, "by": {"k": [good]}}
    assert dump(Any, {bad: 1, good: 2}) == {good + "~2": 1, good: 2}
    assert dump(str, bad) == good


def test_a_stored_value_that_no_longer_fits_is_named() -> None:
    with pytest.raises(RoundTripError) as caught:
        Contract.of(Inner).load({"a": "x"})
    assert [issue.path for issue in caught.value.issues] == ["/a"]


@pydantic_dataclass(config=ConfigDict(extra="allow"))
class Loose:
    a: int = 0


def test_pydantic_dataclasses_follow_the_same_rules() -> None:
    value = Contract.of(Loose).validate_answer({"a": 1, "more": "x"}, "here")
    # Pydantic does not write the extras of a dataclass; they must not get lost in silence.
    assert issues_of(lambda: dump(Loose, value), RoundTripError) == [("/more", "does not come back")]
    with pytest.raises(AnswerPayloadError):
        Contract.of(Loose).validate_answer({"a": "1"}, "here")


def test_a_set_is_written_in_one_order() -> None:
    """Every process hashes text differently, and a question must have the same digest in all of them."""
    names = [f"name-{number:02}" for number in range(40)]
    assert dump(set[str], set(names)) == names
    assert dump(dict[str, frozenset[str]], {"k": frozenset(names)}) == {"k": names}


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        (deque[int], deque([1, 2], maxlen=3), "maxlen"),
        (defaultdict[str, list[int]], defaultdict(lambda: [0], {"a": [1]}), "default_factory"),
    ],
    ids=["a bounded deque", "a default of its own"],
)
def test_what_a_container_knows_beside_its_items_is_not_lost_without_a_word(type_: Any, value: Any, said: str) -> None:
    with pytest.raises(RoundTripError, match=said):
        Contract.of(type_).dump(value, "here", SuspendPayloadError)


def test_containers_whose_type_says_all_of_them_come_back() -> None:
    assert Contract.of(deque[int]).dump(deque([1, 2]), "here", SuspendPayloadError) == [1, 2]
    value = defaultdict(list, {"a": [1]})
    assert Contract.of(defaultdict[str, list[int]]).dump(value, "here", SuspendPayloadError) == {"a": [1]}
