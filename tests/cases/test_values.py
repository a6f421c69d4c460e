"""Values where they are decided: in contracts, before any run is involved."""

from __future__ import annotations

import json
import re
from enum import Enum, StrEnum
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import pytest
from pydantic import BaseModel, Field

from adjourn.schemas.contracts.values import Contract, validate_pinned
from adjourn.schemas.errors import AnswerPayloadError, MalformedJsonError, SuspendPayloadError, ToolOutputError
from adjourn.schemas.strict_json import clean, parse

T = TypeVar("T")


class Envelope(BaseModel, Generic[T]):
    data: T


class Color(Enum):
    RED = "red"


class Mood(StrEnum):
    CALM = "calm"


class Ask(BaseModel):
    color: Color
    mood: Mood
    nested: dict[str, list[Color | None]]


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = ""


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"


class Payment(BaseModel):
    by: Annotated[Card | Cash, Field(discriminator="kind")]
    other: Card | Cash


def answered(type_: Any, document: bytes) -> Any:
    """What an answer becomes on its whole way: the door, the pinned schema, the live type."""
    contract = Contract.of(type_)
    data = parse(document, max_bytes=1000, max_depth=16)
    validate_pinned(json.loads(json.dumps(contract.json_schema)), data, "ask.q")
    return contract.validate_answer(data, "ask.q")


def stored(contract: Contract[T], value: T) -> T:
    """A value after its way through the store."""
    return contract.load(json.loads(json.dumps(contract.dump(value, "ask.q", SuspendPayloadError))))


@pytest.mark.parametrize(
    ("type_", "document", "value"),
    [
        (bool, b"false", False),
        (int, b"0", 0),
        (str, b'""', ""),
        (list[int], b"[]", []),
        (dict[str, int], b"{}", {}),
        (Optional[bool], b"null", None),  # noqa: UP045 - as users write it
        (Optional[int], b"0", 0),  # noqa: UP045
        (None, b"null", None),
    ],
)
def test_empty_values_are_answers(type_: Any, document: bytes, value: Any) -> None:
    found = answered(type_, document)
    assert found == value
    assert type(found) is type(value)
    inside = answered(Envelope[type_], b'{"data":' + document + b"}")
    assert inside.data == value
    assert type(inside.data) is type(value)


@pytest.mark.parametrize("type_", [bool, int, str, list[int], Optional[bool]])  # noqa: UP045
def test_an_empty_value_is_not_a_missing_one(type_: Any) -> None:
    with pytest.raises(AnswerPayloadError) as caught:
        answered(Envelope[type_], b"{}")
    assert [issue.path for issue in caught.value.issues] == ["/data"]
    if type(None) not in getattr(type_, "__args__", ()):
        with pytest.raises(AnswerPayloadError):
            answered(Envelope[type_], b'{"data":null}')


def test_generic_models_have_legal_names_and_round_trip() -> None:
    for type_ in (Envelope[int], Envelope[Envelope[int]], list[Envelope[dict[str, Mood]]]):
        schema = Contract.of(type_).json_schema
        names = [*schema.get("$defs", {}), *re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema))]  # type: ignore[misc]
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)
        assert set(names) == set(schema.get("$defs", {}))  # type: ignore[arg-type]
    value = answered(Envelope[int], b'{"data":3}')
    assert value == Envelope[int](data=3)
    assert type(stored(Contract.of(Envelope[int]), value)) is Envelope[int]


def test_nul_is_replaced_in_what_a_tool_says() -> None:
    output = {"a\x00b": "a\x00b", "list": ["\x00", "a\ud800"], "a\ufffdb": 1}
    expected = {"a\ufffdb~2": "a\ufffdb", "list": ["\ufffd", "a\ufffd"], "a\ufffdb": 1}
    assert Contract.of(dict[str, Any]).dump(output, "ask", ToolOutputError) == expected
    assert clean(output) == expected
    assert Contract.of(str).dump("a\x00b", "ask", ToolOutputError) == "a\ufffdb"


@pytest.mark.parametrize("document", [rb'"a\u0000b"', rb'{"a\u0000b":1}', rb'{"note":["a\u0000b"]}'])
def test_nul_in_an_answer_is_refused_with_the_reason(document: bytes) -> None:
    with pytest.raises(MalformedJsonError, match="NUL character"):
        parse(document, max_bytes=1000, max_depth=16)


def test_the_six_literal_characters_survive() -> None:
    literal = "\\u0000"
    assert len(literal) == 6
    assert answered(dict[str, str], json.dumps({literal: literal}).encode()) == {literal: literal}
    assert Contract.of(dict[str, str]).dump({literal: literal}, "ask", ToolOutputError) == {literal: literal}


def test_enums_come_back_as_themselves() -> None:
    value = Ask(color=Color.RED, mood=Mood.CALM, nested={"a": [Color.RED, None]})
    back = stored(Contract.of(Ask), value)
    assert back.color is Color.RED
    assert back.mood is Mood.CALM
    assert back.nested == {"a": [Color.RED, None]}


def test_a_defaulted_tag_is_written_and_brings_the_class_back() -> None:
    contract = Contract.of(Payment)
    assert contract.dump(Payment(by=Cash(), other=Cash()), "ask", ToolOutputError) == {
        "by": {"kind": "cash"},
        "other": {"kind": "cash"},
    }
    for one in (Card(number="1"), Cash()):
        back = stored(contract, Payment(by=one, other=one))
        assert (type(back.by), type(back.other)) == (type(one), type(one))
    listed: Contract[Any] = Contract.of(list[Card | Cash])
    assert [type(each) for each in stored(listed, [Cash(), Card()])] == [Cash, Card]


def test_int_keys_are_int_after_resume() -> None:
    contract: Contract[dict[int, str]] = Contract.of(dict[int, str])
    assert stored(contract, {1: "a", -20: "b"}) == {1: "a", -20: "b"}
    assert answered(Envelope[dict[int, str]], b'{"data":{"7":"x"}}').data == {7: "x"}
    with pytest.raises(AnswerPayloadError):
        answered(dict[int, str], b'{"07":"x"}')
