"""The suspend schema as it is stored: smaller, and accepting exactly what it did."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from adjourn import WaitPoint
from adjourn.schemas.contracts.suspend_schema import compact


class Line(BaseModel):
    title: str = Field(title="What it is called")
    unit_price: int


class Order(BaseModel):
    """An order."""

    title: str = "Title"
    lines: list[Line]
    kind: str = Field(default="Kind", examples=[{"title": "Title"}])


def test_titles_that_repeat_their_key_are_left_out_and_all_others_stay() -> None:
    schema = WaitPoint("order", suspend=Order, resume=bool).suspend.json_schema
    stored = compact(schema)
    assert stored["title"] == "Order"
    assert set(stored["properties"]) == {"title", "lines", "kind"}
    assert "title" not in stored["properties"]["title"]
    assert stored["properties"]["title"]["default"] == "Title"
    assert stored["properties"]["kind"]["examples"] == [{"title": "Title"}]
    assert stored["$defs"]["Line"]["properties"]["title"]["title"] == "What it is called"
    assert "title" not in stored["$defs"]["Line"]["properties"]["unit_price"]
    assert len(json.dumps(stored)) < 0.9 * len(json.dumps(schema))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["title", "lines", "unit_price", "kind"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_it_accepts_what_the_whole_schema_accepts(value: Any) -> None:
    schema = WaitPoint("order", suspend=Order, resume=bool).suspend.json_schema
    whole, stored = Draft202012Validator(schema), Draft202012Validator(compact(schema))
    assert whole.is_valid(value) == stored.is_valid(value)
