"""Which changes of a type change its fingerprint, and which are told in words."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from adjourn.schemas.contracts.fingerprints import changes, fingerprint, older_fingerprint, same_part
from adjourn.schemas.contracts.values import Contract


class Approval(BaseModel):
    """An approval."""

    approved: bool
    note: str | None = Field(default=None, description="why", examples=["x"])


def prints(schema: Any) -> dict[str, str]:
    return fingerprint({"input": schema})


def of(**fields: Any) -> dict[str, str]:
    return prints(Contract(create_model("Approval", **fields)).json_schema)


BASE: dict[str, Any] = {"approved": (bool, ...), "title": (str, "a")}


def test_words_for_people_are_no_change() -> None:
    class Reworded(BaseModel):
        """Whether the thing may be done."""

        note: str | None = Field(default=None, title="Note!", deprecated=True)
        approved: bool = Field(description="yes or no")

    assert prints(Contract(Reworded).json_schema) == prints(Contract(Approval).json_schema)


@pytest.mark.parametrize(
    "fields",
    [
        {"approved": (int, ...)},
        {"approved": (bool, False)},
        {"title": (str, "b")},
        {"title": (str | None, "a")},
        {"title": (Annotated[str, Field(max_length=3)], "a")},
        {"extra": (str, "a")},
        {"description": (str, "a")},  # a field of that name is no description
        {"title": (date, date(2020, 1, 1))},
    ],
)
def test_what_is_accepted_is_a_change(fields: dict[str, Any]) -> None:
    assert of(**{**BASE, **fields}) != of(**BASE)


def test_limits_that_json_schema_lacks_are_a_change() -> None:
    one = Contract(Annotated[date, Field(ge=date(2020, 1, 1))]).json_schema
    other = Contract(Annotated[date, Field(ge=date(2021, 1, 1))]).json_schema
    assert prints(one) != prints(other)


def test_changes_are_told_in_words() -> None:
    old = fingerprint({"input": {"type": "object"}, "output": True, "wait point q resume": {}, "version": "1"})
    new = fingerprint({"input": {"type": "array"}, "output": True, "wait point r resume": {}, "version": None})
    assert changes(old, new) == [
        "input changed",
        "version changed",
        "wait point q resume was removed",
        "wait point r resume was added",
    ]
    assert changes(old, old) == []


def test_a_fingerprint_is_pinned() -> None:
    # Parked runs hold fingerprints of earlier releases: the same schema may never get another one.
    schema = Contract(Approval).json_schema
    assert prints(schema) == {"input": "2:ec295891629ec27b0e2a29c106e3f6133961251082569c1c4717e184ec022071"}
    earlier = "7664dbd867c0b58104d28f7786699a69b5dd5ee37731ec36cdba01fb288e6310"
    assert older_fingerprint({"input": schema}) == {"input": earlier}
    assert same_part(earlier, schema)


def test_a_digest_of_either_form_is_compared_in_its_own_way() -> None:
    one, other = Contract(Approval).json_schema, Contract(Annotated[date, Field(ge=date(2020, 1, 1))]).json_schema
    for form in (fingerprint, older_fingerprint):
        assert same_part(form({"": one})[""], one)
        assert not same_part(form({"": one})[""], other)
    assert not same_part(None, one)


class Line(BaseModel):
    price: int
    kind: Literal["b", "a"] = "a"
    more: list[Line] = []


class Order(BaseModel):
    lines: list[Line]
    first: Line | None = None


class Item(BaseModel):
    """Another name, another order, the same."""

    more: list[Item] = []
    kind: Literal["a", "b"] = Field("a", json_schema_extra={"x-order": 1})
    price: int = Field(title="What it costs")


class Renamed(BaseModel):
    first: Item | None = None
    lines: list[Item]


class Dearer(BaseModel):
    more: list[Dearer] = []
    kind: Literal["a", "b"] = "a"
    price: str


class Retyped(BaseModel):
    first: Dearer | None = None
    lines: list[Dearer]


def test_names_of_nested_types_and_an_order_without_meaning_are_no_change() -> None:
    assert prints(Contract(Order).json_schema) == prints(Contract(Renamed).json_schema)
    assert prints(Contract(Line).json_schema) == prints(Contract(Item).json_schema)
    assert prints(Contract(Order).json_schema) != prints(Contract(Retyped).json_schema)


def test_an_order_with_a_meaning_is_a_change() -> None:
    assert prints(Contract(Order | Line).json_schema) != prints(Contract(Line | Order).json_schema)
    assert prints(Contract(tuple[int, str]).json_schema) != prints(Contract(tuple[str, int]).json_schema)


def test_the_order_of_a_set_in_a_default_is_no_change() -> None:
    one, other = ({"properties": {"s": {"default": {"tags": tags}}}} for tags in (["a", "b"], ["b", "a"]))
    assert fingerprint({"input": one}) == fingerprint({"input": other})
    assert fingerprint({"input": one}) != fingerprint({"input": {"properties": {"s": {"default": {"tags": ["a"]}}}}})
