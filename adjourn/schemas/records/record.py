"""The base of every stored or sent record: frozen, closed, JSON in and JSON out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError


class Record(BaseModel):
    """A frozen model that refuses unknown keys.

    Everything that Adjourn stores or puts on a wire is a `Record`: two equal records are the
    same fact, and a key nobody declared is a fault of the writer, not something to drop.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _integer(value: Any) -> Any:
    """In Python `True` and `1.0` equal 1, and a literal takes them; in JSON they are other values."""
    if type(value) is not int:
        raise PydanticCustomError("int_type", "Input should be an integer")
    return value


Version1 = Annotated[Literal[1], BeforeValidator(_integer)]
"""The version of a message on a wire."""
