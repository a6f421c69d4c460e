"""Which changes of a type leave every earlier value readable, with the same meaning."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, RootModel, create_model

from adjourn.schemas.contracts.compatible import incompatibilities
from adjourn.schemas.contracts.values import Contract

YES: Any = (bool, ...)


def model(**fields: Any) -> Any:
    return create_model("Answer", **fields)


def found(old: Any, new: Any) -> list[str]:
    return incompatibilities(Contract(old).json_schema, Contract(new).json_schema)


class Colour(Enum):
    RED = "red"


class MoreColours(Enum):
    BLUE = "blue"
    RED = "red"


class Card(BaseModel):
    kind: Literal["card"]
    number: str


class Cash(BaseModel):
    kind: Literal["cash"]


class WideCard(BaseModel):
    kind: Literal["card"]
    number: str
    holder: str | None = None


class DefaultCash(BaseModel):
    kind: Literal["cash"] = "cash"


class Tree(BaseModel):
    name: str
    below: list[Tree] = []


class NewTree(BaseModel):
    below: list[NewTree] = []
    name: str
    note: str | None = None


class OtherTree(BaseModel):
    below: list[OtherTree] = []
    name: int


class Chain(BaseModel):
    name: str
    next: Chain | None = None


class NewChain(BaseModel):
    name: str
    next: NewChain | None = None
    note: str | None = None


class OtherChain(BaseModel):
    name: int
    next: OtherChain | None = None


class Leaf(BaseModel):
    kind: Literal["leaf"]
    value: int


class And(BaseModel):
    kind: Literal["and"]
    both: list[Annotated[Leaf | And, Field(discriminator="kind")]]


class NewLeaf(BaseModel):
    kind: Literal["leaf"]
    value: int
    note: str | None = None


class NewAnd(BaseModel):
    kind: Literal["and"]
    both: list[Annotated[NewLeaf | NewAnd, Field(discriminator="kind")]]


class Json(RootModel[list["Json"] | dict[str, "Json"] | int | None]):
    """A type that is a union of itself."""


class WiderJson(RootModel[list["WiderJson"] | dict[str, "WiderJson"] | int | str | None]):
    """The same with one more leaf."""


Paid = Annotated[Card | Cash, Field(discriminator="kind")]

COMPATIBLE = {
    "an optional field": (model(ok=YES), model(ok=YES, note=(str | None, None))),
    "a field with a factory": (model(ok=YES), model(ok=YES, tags=(list[str], Field(default_factory=list)))),
    "a required field becomes optional": (model(ok=YES), model(ok=(bool, True))),
    "another order of the fields": (model(a=YES, b=YES), model(b=YES, a=YES)),
    "a nested optional field": (model(tree=(Tree, ...)), model(tree=(NewTree, ...))),
    "a nested model in a default": (model(tree=(Tree, Tree(name="x"))), model(tree=(NewTree, NewTree(name="x")))),
    "a recursive type": (Tree, NewTree),
    "a recursive type in a union": (Chain, NewChain),
    "a recursive type in a tagged union": (And, NewAnd),
    "a field of a recursive tagged union": (
        model(x=(Annotated[Leaf | And, Field(discriminator="kind")], ...)),
        model(x=(Annotated[NewLeaf | NewAnd, Field(discriminator="kind")], ...)),
    ),
    "a union of itself": (Json, WiderJson),
    "a wider literal": (Literal["a"], Literal["b", "a"]),
    "a wider enum": (Colour, MoreColours),
    "a wider union": (model(x=(int, ...)), model(x=(int | str | None, ...))),
    "a wider union of models": (Card, Card | Cash),
    "one more tagged model": (Card, Paid),
    "a wider member of a tagged union": (Paid, Annotated[WideCard | Cash, Field(discriminator="kind")]),
    "another order of a union": (int | None, None | int),
    "a longer text": (Annotated[str, Field(max_length=3)], Annotated[str, Field(max_length=4)]),
    "a text of any form": (Annotated[str, Field(pattern="^a")], str),
    "a lower bound": (Annotated[int, Field(gt=3)], Annotated[int, Field(ge=3)]),
    "an earlier date": (Annotated[date, Field(ge=date(2021, 1, 1))], Annotated[date, Field(ge=date(2020, 1, 1))]),
    "a decimal without a limit": (Annotated[Decimal, Field(ge=1)], Decimal),
    "what never had a value": (model(x=(dict[str, int], ...)), model(x=(dict[str, int | None], ...))),
}

INCOMPATIBLE = {
    "a field removed": (model(a=YES, b=(str, "")), model(a=YES), "/b was removed"),
    "a field renamed": (model(a=YES), model(b=YES), "/a was removed"),
    "a field that is required": (model(a=YES), model(a=YES, b=YES), "/b was added and is required"),
    "a field becomes required": (model(a=(bool, True)), model(a=YES), "/a is required now"),
    "another type": (model(a=YES), model(a=(str, ...)), "/a has another type"),
    "an integer becomes a number": (model(a=(int, ...)), model(a=(float, ...)), "/a has another type"),
    "a text becomes a date": (model(a=(str, ...)), model(a=(date, ...)), "/a has another format"),
    "another default": (model(a=(int, 1)), model(a=(int, 2)), "/a has another default"),
    "another order in a default": (model(a=(list[int], [1, 2])), model(a=(list[int], [2, 1])), "default"),
    "another default inside": (
        model(tree=(Tree, Tree(name="x"))),
        model(tree=(NewTree, NewTree(name="x", note="y"))),
        "/tree has another default",
    ),
    "a default instead of a factory": (
        model(a=(list[str], Field(default_factory=list))),
        model(a=(list[str], ["x"])),
        "/a has another default",
    ),
    "a recursive type": (Tree, OtherTree, "/name has another type"),
    "a recursive type in a union": (Chain, OtherChain, "/name has another type"),
    "a smaller union of itself": (WiderJson, Json, "every type of before"),
    "a smaller enum": (MoreColours, Colour, '"blue"'),
    "a smaller union": (int | str, int, "type"),
    "null no more": (model(a=(int | None, ...)), model(a=(int, ...)), "/a"),
    "a union in which a text may be an id": (str, str | UUID, "another type of its union"),
    "a union in which a model may be another": (Tree, Tree | dict[str, Any], "another type of its union"),
    "another order of members that overlap": (str | date, date | str, "order"),
    "a tag that values may lack": (DefaultCash, Annotated[Card | DefaultCash, Field(discriminator="kind")], "tag"),
    "a tighter bound": (Annotated[int, Field(ge=3)], Annotated[int, Field(gt=3)], "tighter minimum"),
    "a bound": (int, Annotated[int, Field(le=3)], "tighter maximum"),
    "a shorter text": (str, Annotated[str, Field(max_length=3)], "tighter maxLength"),
    "a form of text": (str, Annotated[str, Field(pattern="^a")], "another pattern"),
    "a later date": (date, Annotated[date, Field(ge=date(2020, 1, 1))], "tighter ge"),
    "fewer whole digits": (
        Annotated[Decimal, Field(max_digits=4, decimal_places=1)],
        Annotated[Decimal, Field(max_digits=4, decimal_places=2)],
        "",
    ),
    "a list becomes a set": (list[int], set[int], "another uniqueItems"),
    "a list becomes a tuple": (list[int], tuple[int, int], ""),
    "more items": (tuple[int], tuple[int, int], ""),
    "a mapping becomes a model": (dict[str, int], model(a=(int, 1)), ""),
    "an open model gets a field": (
        create_model("Open", __config__={"extra": "allow"}, a=YES),
        create_model("Open", __config__={"extra": "allow"}, a=YES, b=(str, "")),
        "/b has another type",
    ),
    "anything": (int, Any, "another type"),
    "no longer anything": (Any, int, "another type"),
}


@pytest.mark.parametrize("case", COMPATIBLE)
def test_a_change_that_every_value_survives_is_compatible(case: str) -> None:
    old, new = COMPATIBLE[case]
    assert found(old, new) == []


@pytest.mark.parametrize("case", INCOMPATIBLE)
def test_a_change_that_some_value_does_not_survive_is_named(case: str) -> None:
    old, new, said = INCOMPATIBLE[case]
    problems = found(old, new)
    assert problems
    assert said in "; ".join(problems)


@pytest.mark.parametrize("type_", [each for old_new in COMPATIBLE.values() for each in old_new], ids=str)
def test_a_type_is_compatible_with_itself(type_: Any) -> None:
    assert found(type_, type_) == []
