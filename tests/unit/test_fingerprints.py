from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, create_model

from adjourn.schemas.fingerprints import changes, fingerprint
from adjourn.schemas.values import Contract


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
    assert prints(Contract(Approval).json_schema) == {
        "input": "7664dbd867c0b58104d28f7786699a69b5dd5ee37731ec36cdba01fb288e6310",
    }


def test_the_order_of_a_set_in_a_default_is_no_change() -> None:
    one, other = ({"properties": {"s": {"default": {"tags": tags}}}} for tags in (["a", "b"], ["b", "a"]))
    assert fingerprint({"input": one}) == fingerprint({"input": other})
    assert fingerprint({"input": one}) != fingerprint({"input": {"properties": {"s": {"default": {"tags": ["a"]}}}}})
