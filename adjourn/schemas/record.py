"""The base of every stored or sent record: frozen, closed, JSON in and JSON out."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen model that refuses unknown keys.

    Everything that Adjourn stores or puts on a wire is a `Record`: two equal records are the
    same fact, and a key nobody declared is a fault of the writer, not something to drop.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
